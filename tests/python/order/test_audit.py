"""``audit``: whether what the ranks receive of an epoch is what the sampler promises. Ranks are threads
over one store."""

import gc
import logging
import os
import random
import re
import threading
import warnings

import numpy as np
import pytest
import torch
from side_by_side import since_2_6
from thread_ranks import ThreadRanks, flat, leave_after, make, seeded
from torch.utils.data import (
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    Sampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

import fastloader
from fastloader import Error, FastLoader
from fastloader._core.order import audit as audits
from fastloader._core.order import distributed

LONG = os.environ.get("FASTLOADER_LONG") == "1"

pytestmark = pytest.mark.covering


@pytest.fixture
def ranks(monkeypatch):
    return ThreadRanks(monkeypatch)


def shares_of(length, world, policy):
    """How many samples each rank is to get."""
    if policy == "exact":
        return [len(range(rank, length, world)) for rank in range(world)]
    return [length // world if policy == "drop" else -(-length // world)] * world


def only(done):
    """What all ranks have in common."""
    assert all(each == done[0] for each in done), done
    return done[0]


# ---- The digest.


def test_every_hash_is_undone_and_no_two_are_equal():
    numbers = np.concatenate([np.arange(5000), np.random.default_rng().integers(0, 1 << 62, 500)])
    hashed = audits.hash_of(numbers)
    assert [audits.index_of(int(each)) for each in hashed] == numbers.tolist()
    assert len(np.unique(hashed[:5000])) == 5000


def test_the_digest_does_not_know_the_order_and_knows_how_often():
    numbers = np.random.default_rng().permutation(3000)
    assert audits.digest_of(numbers) == audits.digest_of_all(3000)
    assert audits.digest_of(numbers[:1000]) + audits.digest_of(numbers[1000:]) == (
        audits.digest_of_all(3000)
    )
    assert audits.digest_of(np.append(numbers[1:], 7)) != audits.digest_of_all(3000)


# ---- Ranks that do as they should.


@pytest.mark.parametrize("policy", ["pad", "drop", "exact"])
@pytest.mark.parametrize("shuffle", [True, False])
@pytest.mark.parametrize("drop_last", [True, False])
@pytest.mark.parametrize("length", [53, 54])
def test_whole_epochs(ranks, policy, shuffle, drop_last, length):
    world, size = 3, 4

    def work(_rank):
        loader = make(length, size, policy, shuffle=shuffle, drop_last=drop_last)
        audit, said = fastloader.audit(loader), []
        assert audit.account() is None
        assert fastloader.audit(loader) is audit
        received = 0
        for _ in range(3):
            received = len(flat(loader))
            said.append(audit.account())
        return received, said

    done = ranks.run(world, work)
    for epoch, account in enumerate(only([said for _, said in done])):
        assert account.whole and account.identified, str(account)
        assert account.received == account.promised == sum(count for count, _ in done)
        assert (account.epoch, account.ranks, account.policy) == (epoch, world, policy)
        assert str(account) == (
            f"epoch {epoch}: 3 ranks received {account.received} of {account.promised} samples; each "
            f"as {policy!r} promises"
        )


def test_random_schedules_of_epochs_looks_breaks_and_resumes(ranks):
    """2 to 8 ranks make epochs, look at batches on their own, leave epochs, and go on from a state with
    another number of ranks. No sample is lost or doubled, and the audit says so of each epoch."""
    rng = random.Random(seed := random.randrange(1 << 30))
    for _ in range(200 if LONG else 40):
        policy, size, state = rng.choice(["pad", "drop", "exact"]), rng.randint(1, 3), None
        length = rng.randint(2 * size * 8, 70)
        done_before, case = [], [seed, policy, size, length]  # keys of the epoch that goes on
        for _job in range(rng.randint(1, 3)):
            world, epochs = rng.randint(2, 8), rng.randint(1, 3)
            looks = [[rng.choice([0, 0, 1, 2]) for _ in range(world)] for _ in range(epochs)]
            cut = rng.randint(1, 2)  # batches after which the job ends in its last epoch
            leaves = [rng.random() < 0.2 for _ in range(epochs)]
            case.append((world, epochs, looks, cut, leaves))

            def work(
                rank, state=state, plan=(epochs, looks, cut, leaves), size=size, length=length
            ):
                epochs, looks, cut, leaves = plan
                loader, got, made = make(length, size, policy), [], []  # noqa: B023
                audit = fastloader.audit(loader)
                if state is not None:
                    loader.load_state_dict(state)
                for epoch in range(epochs):
                    keys = leave_after(loader, 3) if leaves[epoch] and epoch else flat(loader)
                    got.append((loader._runtime.position.current.epoch, keys))
                    made.append(audit.account())
                    for _ in range(looks[epoch][rank]):
                        next(iter(loader))
                iterator = iter(loader)
                keys = flat(next(iterator) for _ in range(cut))
                return got, made, keys, loader.state_dict()

            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of many looks
                done = ranks.run(world, work)
            assert not [each for each in done if isinstance(each, Error)], (done, case)
            accounts = only([each[1] for each in done])
            for number, account in enumerate(accounts):
                shares = [each[0][number][1] for each in done]
                everything = sorted(key for share in shares for key in share)
                if leaves[number] and number:
                    promised = shares_of(length, world, policy)
                    early = [
                        (rank, len(share))
                        for rank, share in enumerate(shares)
                        if len(share) < promised[rank]
                    ]
                    assert account.left == tuple(early), (str(account), case)
                    assert account.whole is not bool(early), (str(account), case)
                    continue
                assert account.whole and account.identified, (str(account), case)
                assert account.received == len(everything), case
                if number == 0:
                    everything = sorted(everything + done_before)
                assert policy == "pad" or len(set(everything)) == len(everything), case
                if policy == "exact":
                    assert everything == list(range(length)), case
                elif policy == "pad":
                    assert set(everything) == set(range(length)), case
            done_before = [key for each in done for key in each[2]]
            state = done[0][3]


def test_a_rank_that_leaves_early_is_named_and_nobody_waits_for_it(ranks):
    """Rank 1 breaks after three batches. The other has ended its epoch before rank 1 comes back."""
    ended = threading.Event()

    def work(rank):
        loader = make(40, 2)
        audit = fastloader.audit(loader)
        if rank == 1:
            leave_after(loader, 3)
            gc.collect()
            assert ended.wait(60)
        else:
            flat(loader)
            ended.set()
        first = audit.account()
        flat(loader)
        return str(first), audit.account().whole

    assert only(ranks.run(2, work)) == (
        "epoch 0: 2 ranks received 26 of 40 samples; rank 1 left after 6",
        True,
    )


def test_an_iterator_that_is_closed_and_kept_has_left(ranks):
    def work(rank):
        loader = make(40, 2)
        audit = fastloader.audit(loader)
        if rank == 1:
            iterator = iter(loader)
            flat(next(iterator) for _ in range(3))
            iterator.close()
        else:
            flat(loader)
        return str(audit.account())

    said = only(ranks.run(2, work))
    assert said == "epoch 0: 2 ranks received 26 of 40 samples; rank 1 left after 6"


def test_an_iterator_in_a_cycle_has_left_when_a_later_pass_is_over(ranks):
    """On rank 0 nothing collects it. The others' have gone at once."""

    def work(rank):
        loader, kept = make(24, 2), []
        audit = fastloader.audit(loader)
        for _ in range(3):
            iterator = iter(loader)
            flat(next(iterator) for _ in range(3))
            if rank == 0:
                kept.append(iterator)
            del iterator
        flat(loader)
        return str(audit.account())

    assert only(ranks.run(2, work)) == (
        "epoch 3: 2 ranks received 24 of 24 samples; each as 'pad' promises"
    )


def test_two_passes_at_a_time(ranks):
    def work(_rank):
        loader, said = make(24, 2), []
        audit = fastloader.audit(loader)
        assert len([*zip(loader, loader, strict=True)]) == 6
        said.append(audit.account())
        flat(loader)
        return [*said, audit.account()]

    first, second = only(ranks.run(2, work))
    assert (first.epoch, first.received) == (1, 24)
    assert (second.epoch, second.whole) == (2, True)


def test_what_is_changed_while_the_last_batch_is_there_is_of_the_next_epoch():
    sampler = SubsetRandomSampler(list(range(8)))
    loader = FastLoader(list(range(40)), 4, sampler=sampler, collate_fn=list)
    audit = fastloader.audit(loader)
    for number, _ in enumerate(loader):
        if number == 1:
            sampler.indices = list(range(20, 40))
    assert audit.account().whole
    data = list(range(24))
    loader = FastLoader(data, 4, sampler=DistributedSampler(data, 1, 0), collate_fn=list)
    audit = fastloader.audit(loader)
    for number, _ in enumerate(loader):
        if number == 5:
            data += [1, 2, 3, 4]
    assert audit.account().whole


def test_a_loop_that_stops_by_the_length_has_had_the_epoch(ranks):
    """Lightning never asks for the end."""

    def work(_rank):
        loader, said = make(22, 2, "exact"), []
        audit = fastloader.audit(loader)
        for _ in range(2):
            iterator = iter(loader)
            for _ in range(len(loader)):
                next(iterator)
            del iterator
            said.append(str(audit.account()))
            assert audit.account().identified
        return said

    for epoch, said in enumerate(only(ranks.run(3, work))):
        assert said == f"epoch {epoch}: 3 ranks received 22 of 22 samples; each as 'exact' promises"


def test_states_that_each_rank_saved_for_itself_at_an_uneven_end(ranks):
    def first(_rank):
        loader = make(10, 1, "exact")
        list(zip(range(3), loader, strict=False))
        iterator = iter(loader)
        for _ in range(3 + (_rank == 0)):
            next(iterator, None)
        return loader.state_dict()

    states = ranks.run(3, first)

    def second(rank):
        loader = make(10, 1, "exact")
        audit = fastloader.audit(loader)
        loader.load_state_dict(states[rank])
        passes = [len(flat(loader)) for _ in range(3)]
        return audit.account().whole, passes

    done = ranks.run(3, second)
    assert all(whole for whole, _ in done), done


# ---- Samples that are lost or doubled.


def wrong_share(change):
    """A ``share`` that gives rank 1 other indices."""

    def share(sampler, epoch, start=0):
        keys = real_share(sampler, epoch, start)
        return change(keys) if sampler.rank == 1 else keys

    return share


real_share = distributed.share

FAULTS = {
    "lost": (
        lambda keys: keys[:-1],
        "rank 1 received 9 of its 10 samples; sample {last} did not come",
    ),
    "doubled": (
        lambda keys: [*keys, keys[0]],
        "rank 1 received 11 of its 10 samples; sample {first} came once too often",
    ),
    "replaced": (
        lambda keys: [keys[-1], *keys[1:]],
        "sample {first} did not come, and sample {last} came once too often",
    ),
    "many": (
        lambda keys: [keys[1]] * len(keys),
        "several samples did not come as often as they should",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("policy", ["exact", "pad"])
def test_every_rank_is_told_which_samples_differ(ranks, monkeypatch, fault, policy):
    change, said = FAULTS[fault]
    monkeypatch.setattr(distributed, "share", wrong_share(change))

    def work(rank):
        loader = make(20, 3, policy)
        audit = fastloader.audit(loader)
        keys = []
        with pytest.raises(Error) as told:
            for batch in loader:
                keys += batch
        assert not audit.account().whole
        return str(told.value)

    order = torch.randperm(20, generator=seeded()).tolist()[1::2]
    told = only(ranks.run(2, work))
    assert told.startswith("audit: epoch 0: 2 ranks received "), told
    assert told.endswith(said.format(first=order[0], last=order[-1])), told


def test_ranks_in_different_epochs(ranks):
    """torch's own sampler, without the loader's meetings: rank 1 forgets set_epoch."""

    def work(rank):
        shard = DistributedSampler(range(24), 2, rank, seed=3)
        loader = FastLoader(list(range(24)), 4, sampler=shard, collate_fn=list)
        audit = fastloader.audit(loader)
        flat(loader)
        assert audit.account().whole
        loader.sampler.set_epoch(rank)
        with pytest.raises(Error) as told:
            flat(loader)
        return str(told.value), audit.account().differences

    said, differences = only(ranks.run(2, work))
    assert differences[0] == "the epoch is 0 on rank 0 and 1 on rank 1"
    assert said.startswith(
        "audit: epoch 0: 2 ranks received 24 of 24 samples; the epoch is 0 on rank 0"
    )


def test_a_rank_that_does_not_come(ranks, monkeypatch):
    monkeypatch.setenv(distributed.PATIENCE, "0.3")
    waited = threading.Event()

    def work(rank):
        shard = DistributedSampler(range(24), 2, rank)
        loader = FastLoader(list(range(24)), 4, sampler=shard, collate_fn=list)
        fastloader.audit(loader)
        if rank == 1:
            iterator = iter(loader)
            next(iterator)
            assert waited.wait(60)
            return ""
        try:
            flat(loader)
        except Error as error:
            return str(error)
        finally:
            waited.set()

    assert ranks.run(2, work)[0] == (
        "audit: rank 1 did not end or leave epoch 0 within 0.3 s (FASTLOADER_RANK_TIMEOUT sets that "
        "time, which is otherwise the timeout= of init_process_group). A loop has left an epoch when "
        "its iterator is gone, or when the loop comes to the end of a later one"
    )


class Broken(list):
    def __getitem__(self, index):
        if index == 7:
            raise OSError("cannot read it")
        return super().__getitem__(index)


def test_a_batch_that_comes_as_an_error_is_counted_as_such():
    loader = FastLoader(Broken(range(12)), 3, collate_fn=list)
    audit, iterator, errors = fastloader.audit(loader), iter(loader), 0
    for _ in range(4):
        try:
            next(iterator)
        except OSError:
            errors += 1
    assert errors == 1
    assert next(iterator, None) is None
    account = audit.account()
    assert (account.whole, account.failed) == (False, 3)
    assert str(account) == (
        "epoch 0: one rank received 12 of 12 samples; 3 of them came as an error in their batch's place"
    )


# ---- One rank, and what cannot be audited.


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("in_order", [True, False] if since_2_6 else [True])
def test_one_rank(workers, in_order):
    options = {"num_workers": workers, "in_order": in_order, "generator": seeded()}
    for number, sampler in enumerate(
        [None, RandomSampler(range(23)), SubsetRandomSampler([3, 5, 21, -1])]
    ):
        loader = FastLoader(list(range(23)), 4, sampler=sampler, **options)
        audit = fastloader.audit(loader)
        for epoch in range(2):
            list(loader)
            account = audit.account()
            assert account.whole and account.identified, str(account)
            assert account.received == (23, 23, 4)[number]
            assert str(account).startswith(f"epoch {epoch}: one rank received ")


def test_batches_that_a_rank_goes_on_from_are_counted_only():
    loader = FastLoader(list(range(23)), 4, shuffle=True, generator=seeded(), collate_fn=list)
    leave_after(loader, 2)
    state = loader.state_dict()
    again = FastLoader(list(range(23)), 4, shuffle=True, generator=seeded(), collate_fn=list)
    audit = fastloader.audit(again)
    again.load_state_dict(state)
    assert len(flat(again)) == 15
    assert str(audit.account()) == (
        "epoch 0: one rank received 15 of 15 samples; which were counted and not compared"
    )


@pytest.mark.skipif(not since_2_6, reason="torch has no in_order")
def test_a_state_without_order_in_which_batches_are_missing():
    """What was drawn counts as received in the state, and the batches in flight are named."""
    options = {"shuffle": True, "num_workers": 2, "in_order": False, "collate_fn": list}
    loader = FastLoader(list(range(64)), 4, generator=seeded(), **options)
    loader.state_dict()
    iterator = iter(loader)
    received = flat(next(iterator) for _ in range(3))
    state = loader.state_dict()
    del iterator
    assert state["missing"]
    again = FastLoader(list(range(64)), 4, generator=seeded(), **options)
    audit = fastloader.audit(again)
    again.load_state_dict(state)
    assert sorted([*flat(again), *received]) == list(range(64))
    assert audit.account().whole, str(audit.account())
    assert audit.account().received == 52


def test_persistent_workers_whose_epoch_is_left(ranks):
    """The loader holds their iterator. One rank: two that are threads would share torch's generator with
    worker threads, whose lock and Python's then wait for each other."""

    def work(_rank):
        loader = make(24, 2, num_workers=1, persistent_workers=True, worker_backend="thread")
        audit = fastloader.audit(loader)
        leave_after(loader, 3)
        flat(loader)
        said = str(audit.account())
        loader.close()
        return said

    said = only(ranks.run(1, work))
    assert said == "epoch 1: one rank received 24 of 24 samples; each as 'pad' promises"


class Odd(Sampler):
    def __iter__(self):
        return iter([1, 2])

    def __len__(self):
        return 2


class Endless(IterableDataset):
    def __iter__(self):
        return iter([1, 2])


def test_samplers_that_promise_nothing_are_refused(ranks):
    class Changed(DistributedSampler):
        pass

    data = list(range(8))
    refused = {
        "WeightedRandomSampler": {"sampler": WeightedRandomSampler(torch.ones(8), 8)},
        "RandomSampler": {"sampler": RandomSampler(data, replacement=True)},
        "Odd": {"sampler": Odd()},
        "Changed": {"sampler": Changed(data, 1, 0)},
    }
    for name, options in refused.items():

        def work(_rank, options=options):
            with pytest.raises(ValueError) as told:
                fastloader.audit(FastLoader(data, 2, **options))
            return str(told.value)

        assert re.search(rf"a (\S+\.)?{name} ", only(ranks.run(1, work)))

    def whole(_rank):
        with pytest.raises(
            ValueError, match="gives each of them the whole dataset: give the loader"
        ):
            fastloader.audit(FastLoader(data, 2, shuffle=True))
        with pytest.raises(ValueError, match="deals out to 3 ranks, and the process group has 2"):
            fastloader.audit(FastLoader(data, 2, sampler=DistributedSampler(data, 3, 0)))

    ranks.run(2, whole)
    with pytest.raises(ValueError, match="an iterable dataset has not"):
        fastloader.audit(FastLoader(Endless(), 2))
    with pytest.raises(TypeError, match=r"audit\(\) is for a FastLoader, not for a list"):
        fastloader.audit([])


def test_keys_that_are_no_indices():
    data = {"a": 1, "b": 2}
    loader = FastLoader(data, 1, sampler=SubsetRandomSampler(["a", "b"]), collate_fn=list)
    fastloader.audit(loader)
    with pytest.raises(
        Error, match=r"by their indices, and the sampler gives '[ab]', which is none"
    ):
        flat(loader)


# ---- The environment, and what is said.


def test_the_environment_asks_for_it(ranks, monkeypatch, caplog):
    monkeypatch.setenv("FASTLOADER_AUDIT", "1")
    monkeypatch.setattr(distributed, "share", wrong_share(FAULTS["lost"][0]))

    def work(_rank):
        with pytest.raises(Error, match="did not come"):
            flat(make(20, 3, "exact"))
        return flat(
            FastLoader(list(range(4)), 2, collate_fn=list)
        )  # not of one without distributed=

    with caplog.at_level(logging.INFO, "fastloader"):
        assert only(ranks.run(2, work)) == [0, 1, 2, 3]
    assert not [each for each in caplog.messages if "audit" in each]
    monkeypatch.setattr(distributed, "share", real_share)
    with caplog.at_level(logging.INFO, "fastloader"):
        ranks.run(2, lambda _rank: flat(make(20, 3, "exact")))
    assert (
        "fastloader: audit: epoch 0: 2 ranks received 20 of 20 samples; each as 'exact' promises"
        in (caplog.messages)
    )
    monkeypatch.setenv("FASTLOADER_AUDIT", "yes")
    with pytest.raises(ValueError, match="FASTLOADER_AUDIT='yes': 1 to keep account"):
        flat(FastLoader([1, 2]))


def test_nothing_grows_in_the_store(ranks):
    both = threading.Barrier(2)  # counted while neither rank is ahead

    def work(_rank):
        loader = make(12, 2)
        fastloader.audit(loader)
        counts = []
        for _ in range(60):
            flat(loader)
            both.wait(60)
            counts.append(ranks.store.num_keys())
            both.wait(60)
        return counts

    counts = ranks.run(2, work)[0]
    assert max(counts[40:]) <= max(counts[:40]), counts


@pytest.mark.parametrize(
    "options", [{}, {"worker_backend": "thread"}, {"persistent_workers": True}]
)
def test_nothing_is_kept_of_a_pass_that_has_ended(options):
    """torch's iterators over workers begin each pass twice, and the first of the two ends nowhere."""
    loader = FastLoader(list(range(40)), 4, num_workers=1, **options)
    audit = fastloader.audit(loader)
    for _ in range(4):
        flat(loader)
        assert audit.account().whole
    assert len(audit.open) <= 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="without fork")
def test_a_forked_worker_that_collects_an_iterator_says_nothing():
    loader = FastLoader(list(range(40)), 4)
    audit = fastloader.audit(loader)
    iterator = iter(loader)
    flat([next(iterator) for _ in range(3)])
    child = os.fork()
    if child == 0:
        del iterator
        gc.collect()
        os._exit(len(audit._posted))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    del iterator
    assert str(audit.account()) == (
        "epoch 0: one rank received 12 of 40 samples; rank 0 left after 12"
    )
