"""``distributed=``: which passes count as epochs, and what becomes of ranks that count differently.
Ranks are threads over one store, or processes."""

import copy
import itertools
import random
import threading
import warnings

import pytest
import torch
from pictures import plain_folder
from thread_ranks import ThreadRanks, flat, leave_after, make, seeded
from torch.utils.data import DistributedSampler, TensorDataset
from torchrun import torchrun

from fastloader import EncodedImage, Error, FastLoader
from fastloader import transforms as T
from fastloader._core.order import distributed, progress
from fastloader.compat.prefetch_generator import DataLoaderX
from fastloader.datasets import ImageFolder
from support import Pictures

pytestmark = pytest.mark.covering

OTHER_EPOCH = "the ranks are not in the same epoch of a loader with distributed="


@pytest.fixture
def ranks(monkeypatch):
    return ThreadRanks(monkeypatch)


def close_one(loader):
    iterator = iter(loader)
    next(iterator)
    iterator.close()
    return iterator  # held, but of no use


def number_of(loader):
    return loader._runtime.position.current.epoch


# What one rank alone may do between two epochs.
LOOKS = {
    "next": lambda loader: next(iter(loader)),
    "break": lambda loader: leave_after(loader, 1),
    "iter": iter,
    "two": lambda loader: next(zip(loader, loader, strict=True)),
    "closed": close_one,
    "headspace": lambda loader: list(loader.headspace(3)),
    "state": lambda loader: loader.state_dict(),
    "copy": copy.copy,
    "len": len,
}


def test_random_schedules_of_epochs_breaks_and_looks(ranks):
    """All ranks have the same epochs, some of which every rank leaves when it likes, and each rank looks
    at batches in between. No rank raises, and of each epoch the shares are disjoint and cover all."""
    rng = random.Random(seed := random.randrange(1 << 30))
    for _ in range(50):
        world, policy = rng.choice([2, 3]), rng.choice(["pad", "drop", "exact"])
        size = rng.randint(1, 4)
        length = rng.randint(2 * size * world, 40)  # two batches for each rank, or more
        epochs = [rng.choice(["whole", "whole", "left"]) for _ in range(rng.randint(1, 6))]
        plans = [
            [
                (rng.choices(list(LOOKS), k=rng.choice([0, 0, 1, 2])), rng.randint(2, 5))
                for _ in epochs
            ]
            for _ in range(world)
        ]

        def work(rank, length=length, size=size, policy=policy, epochs=epochs, plans=plans):
            loader, got = make(length, size, policy), []
            for what, (looks, batches) in zip(epochs, plans[rank], strict=True):
                for look in looks if got else []:  # before its first epoch a rank meets the others
                    LOOKS[look](loader)
                keys = flat(loader) if what == "whole" else leave_after(loader, batches)
                got.append((number_of(loader), keys))
            return got

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of many looks
            done = ranks.run(world, work)
        case = (seed, world, policy, size, length, epochs, plans)
        assert not [each for each in done if isinstance(each, Error)], (done, case)
        for epoch, what in enumerate(epochs):
            assert {each[epoch][0] for each in done} == {epoch}, case
            shares = [each[epoch][1] for each in done]
            order = torch.randperm(length, generator=torch.Generator().manual_seed(5 + epoch))
            for rank, share in enumerate(shares):
                whole = order.tolist()[rank::world]
                assert share[: len(whole)] == whole[: len(share)], case
            if what == "left" or policy == "drop":
                continue
            everything = sorted(key for share in shares for key in share)
            assert sorted(set(everything)) == list(range(length)), case
            assert policy == "pad" or len(everything) == length, case


# What takes a number that the other ranks' next epoch will not have.
STRAYS = {
    "held": lambda loader: next(iterator := iter(loader)) and iterator,
    "left": lambda loader: leave_after(loader, 2),
    "whole": lambda loader: flat(loader),
    "set": lambda loader: loader.set_epoch(7),
    "set on the sampler": lambda loader: loader.sampler.set_epoch(7),
}


def test_random_schedules_with_a_stray(ranks, monkeypatch):
    """One rank counts an epoch that the others do not have. It waits at its second batch, so that up to
    there the ranks are in the same epoch; then all raise that go further."""
    monkeypatch.setenv(distributed.PATIENCE, "0.3")
    rng = random.Random(seed := random.randrange(1 << 30))
    for number in range(16):
        world, size = rng.choice([2, 3]), rng.randint(1, 3)
        length, stray = rng.randint(3 * size * world, 40), rng.choice(list(STRAYS))
        epochs, at, who = rng.randint(1, 3), rng.randint(1, 3), rng.randrange(world)
        case = (seed, number, world, size, length, stray, epochs, at, who)

        def work(rank, length=length, size=size, stray=stray, epochs=epochs, at=at, who=who):
            loader, got, held = make(length, size, "exact"), [], []
            try:
                for epoch in range(epochs + 1):
                    if rank == who and epoch == min(at, epochs):
                        held.append(STRAYS[stray](loader))
                        if stray in ("left", "whole"):
                            got.append((number_of(loader), held.pop()))
                    got.append((0, []))  # of which the keys are noted batch by batch
                    for batch in loader:
                        got[-1] = (number_of(loader), got[-1][1] + batch)
            except Error as refusal:
                return got, str(refusal)
            return got, ""

        done = ranks.run(world, work)
        raised = [error for _, error in done]
        assert any(raised), case
        if stray not in ("left", "whole"):
            assert all(OTHER_EPOCH in error for error in raised), (raised, case)
        # Nobody has got a second batch of an epoch that others are not in.
        by_number = {}
        for rank, (got, _) in enumerate(done):
            for epoch, keys in got:
                if len(keys) > size:
                    by_number.setdefault(epoch, {}).setdefault(rank, keys)
        for epoch, shares in by_number.items():
            assert len(shares) == world, (epoch, shares, case)


@pytest.mark.parametrize("world", [2, 3])
def test_all_ranks_are_told_which_differ_and_what_to_do(ranks, world):
    def work(rank):
        loader = make(24, 2)
        first = flat(loader)
        iterator = iter(loader) if rank == 1 else None
        if iterator is not None:
            next(iterator)
        batches = iter(loader)
        got = [next(batches)]
        said = []
        for _ in range(2):  # the second time at once
            with pytest.raises(Error) as told:
                next(batches)
            said.append(str(told.value))
        assert said[0] == said[1]
        # The advice.
        loader.set_epoch(4)
        again = flat(loader)
        return len(first), got, said[0], again

    done = ranks.run(world, work)
    assert not any(isinstance(each, Error) for each in done), done
    for each in done:
        assert each[2].startswith(OTHER_EPOCH)
        assert "the epoch is 1 on rank 0 and 2 on rank 1" in each[2]
        assert "set_epoch(n)" in each[2]
    assert sorted(flat(each[3] for each in done)) == list(range(24))


def test_a_rank_with_nothing_to_do_is_asked_as_well(ranks):
    """It comes to its epoch's end at once."""

    def work(rank):
        loader = make(3, 1, "exact")
        whole = [list(loader), list(loader)]
        if rank == 4:
            loader.set_epoch(9)
        with pytest.raises(Error, match="the epoch is 2 on rank 0 and 9 on rank 4"):
            list(loader)
        return whole

    done = ranks.run(5, work)
    assert not any(isinstance(each, Error) for each in done), done
    assert [sorted(flat(flat(each[e] for each in done))) for e in range(2)] == [[0, 1, 2]] * 2


def test_ranks_of_one_batch(ranks):
    """A loop that asks for the end counts. One that knows the length stays in its epoch, all ranks
    alike, and is told."""

    def work(rank):
        loader = make(4, 2)
        looped = [flat(loader) for _ in range(2)]
        if rank == 0:
            next(iter(loader))
        looped.append(flat(loader))
        counted = [next(iter(loader)) for _ in range(2)]
        return looped, counted

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        done = ranks.run(2, work)
    orders = [torch.randperm(4, generator=torch.Generator().manual_seed(5 + e)) for e in range(4)]
    for rank in range(2):
        assert done[rank][0] == [order.tolist()[rank::2] for order in orders[:3]]
        assert done[rank][1] == [orders[3].tolist()[rank::2]] * 2


def test_a_loop_of_looks_is_told(group):
    loader = make(8, 2)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        firsts = [next(iter(loader)) for _ in range(6)]
    assert all(first == firsts[0] for first in firsts)
    (told,) = caught
    assert told.category is RuntimeWarning and told.filename == __file__
    assert "all of them were of epoch 0" in str(told.message)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for epoch in range(6):
            loader.set_epoch(epoch)
            next(iter(loader))


# --- a pass of one rank, and loops in which every step is one of all ranks ------------------------


@pytest.fixture
def short(monkeypatch):
    monkeypatch.setattr(progress, "_SHORTLY", 0.05)


def in_step(loader, barrier):
    """The keys of an epoch, whose every step waits for the other ranks, as gradients do."""
    got = []
    for batch in loader:
        got += batch
        barrier.wait(30)
    return got


@pytest.mark.parametrize("who", [0, 1])
@pytest.mark.parametrize("batches", [2, 3])
def test_a_rank_that_takes_two_batches_for_its_log_stops_nobody(
    ranks, short, who, batches, monkeypatch
):
    """The other rank waits for it in its first step, and it goes on from its second batch. Then the
    ranks differ, which both are told in the next epoch."""
    monkeypatch.setenv("FASTLOADER_AUDIT", "0")  # its account would wait for the other rank
    barrier = threading.Barrier(2)

    def work(rank):
        loader = make(24, 2)
        first = in_step(loader, barrier)
        if rank == who:
            list(itertools.islice(loader, batches))
        with pytest.raises(Error, match=OTHER_EPOCH):
            in_step(loader, barrier)
        loader.set_epoch(4)
        return first, in_step(loader, barrier)

    done = ranks.run(2, work)
    assert not any(isinstance(each, Error) for each in done), done
    for epoch in range(2):
        assert sorted(key for each in done for key in each[epoch]) == list(range(24))


@pytest.mark.parametrize("who", [0, 1])
def test_without_shuffle_a_rank_may_make_passes_of_its_own(ranks, short, who, monkeypatch):
    """All epochs have one order, so no sample is lost: as with a DistributedSampler."""
    monkeypatch.setenv("FASTLOADER_AUDIT", "0")  # to which a pass is an epoch of all ranks
    barrier = threading.Barrier(2)

    def work(rank):
        loader, got = make(24, 2, shuffle=False), []
        for _ in range(3):
            got.append(in_step(loader, barrier))
            if rank == who:
                list(itertools.islice(loader, 4))
        return got

    done = ranks.run(2, work)
    assert [each for each in done] == [[list(range(rank, 24, 2))] * 3 for rank in range(2)]


@pytest.mark.parametrize("late", [0, 1])
@pytest.mark.parametrize("epoch", [1, 7])
def test_ranks_that_go_on_without_a_late_one_compare_with_it_later(ranks, short, late, epoch):
    """``epoch``: the late one's. The other one hears of another number at its end at the latest."""
    ahead = threading.Event()

    def work(rank):
        loader = make(24, 2)
        got = [flat(loader)]
        if rank == late:
            loader.set_epoch(epoch)
        share = []
        for batch in loader:
            share += batch
            if len(share) == 8:
                ahead.set()
            if rank == late:
                assert ahead.wait(30)
        return [*got, share]

    done = ranks.run(2, work)
    if epoch == 1:
        for number in range(2):
            assert sorted(key for each in done for key in each[number]) == list(range(24))
    else:
        assert all(isinstance(each, Error) and OTHER_EPOCH in str(each) for each in done), done


@pytest.mark.parametrize("who", [0, 1])
def test_a_pass_that_was_dropped_speaks_for_no_later_one(ranks, short, who):
    """What the rank said for it is taken back before the next pass has its first batch: or the others
    would take the two passes for one."""
    begun, over = threading.Event(), threading.Event()

    def work(rank):
        loader = make(24, 2)
        flat(loader)
        if rank == who:
            list(itertools.islice(loader, 2))
            batches = iter(loader)
            next(batches)
            begun.set()
            assert over.wait(30)
        else:
            assert begun.wait(30)
            batches = iter(loader)
            got = [*next(batches), *next(batches)]  # after a moment, without the other one
            over.set()
            assert len(got) == 4
        flat(batches)

    done = ranks.run(2, work)
    assert all(isinstance(each, Error) and OTHER_EPOCH in str(each) for each in done), done


@pytest.mark.parametrize("who", [0, 1])
def test_a_pass_that_was_dropped_hides_no_error(ranks, short, monkeypatch, who):
    """The others were told that the ranks differ while the loop had dropped the pass: so is the next."""
    monkeypatch.setattr(distributed, "_HEARD", 0.1)
    dropped, over = threading.Event(), threading.Event()

    def work(rank):
        loader = make(24, 2)
        flat(loader)
        if rank == who:
            loader.set_epoch(5)
            list(itertools.islice(loader, 2))
            dropped.set()
            assert who == 0 or over.wait(30)
            flat(loader)
        else:
            assert dropped.wait(30)
            try:
                flat(loader)
            finally:
                over.set()

    done = ranks.run(2, work)
    assert all(isinstance(each, Error) and OTHER_EPOCH in str(each) for each in done), done


# --- one rank, on every path ----------------------------------------------------------------------


@pytest.fixture
def group():
    store = torch.distributed.HashStore()
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


class Encoded(torch.utils.data.Dataset):
    def __init__(self, files):
        self.files = files

    def __len__(self):
        return len(self.files)

    def __getitem__(self, index):
        transform = T.Compose([T.Resize((8, 8)), T.PILToTensor()])
        return EncodedImage(self.files[index], transform), index


def arrays(_root):
    return TensorDataset(torch.zeros(12, 3, 8, 8, dtype=torch.uint8), torch.arange(12))


def folder(root):
    return ImageFolder(root, T.Compose([T.Resize((8, 8)), T.PILToTensor()]))


def encoded(root):
    return Encoded([path for path, _ in folder(root).samples])


def python(_root):
    return Pictures(12)


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return str(plain_folder(tmp_path_factory.mktemp("pictures"), 12, classes=12))


SOURCES = {
    "python": (python, {}),
    "workers": (python, {"num_workers": 2}),
    "persistent": (python, {"num_workers": 2, "persistent_workers": True}),
    "threads": (python, {"num_workers": 2, "worker_backend": "thread"}),
    "arrays": (arrays, {}),
    "arrays ahead": (arrays, {"num_workers": 2, "persistent_workers": True}),
    "pictures": (folder, {"num_workers": 2}),
    "encoded": (encoded, {}),
    "encoded workers": (encoded, {"num_workers": 2, "persistent_workers": True}),
    "another thread": (python, {}),
}
DELIVERIES = {"plain": {}, "normalised": {"mean": (0.5, 0.5, 0.5)}}


@pytest.mark.exhaustive
@pytest.mark.parametrize("delivery", DELIVERIES)
@pytest.mark.parametrize("source", SOURCES)
def test_a_look_takes_no_number_on_any_path(group, way, root, source, delivery):
    """And what the state says is what comes next: a look is no progress, a held iterator is."""
    data, options = SOURCES[source]
    kind = DataLoaderX if source == "another thread" else FastLoader
    options = {**options, **DELIVERIES[delivery], **(way.options if delivery != "plain" else {})}
    with kind(data(root), 2, shuffle=True, distributed="auto", **options) as loader:

        def keys():
            return [key for batch in loader for key in batch[1].tolist()]

        def wanted(epoch):
            sampler = DistributedSampler(range(12), 1, 0)
            sampler.set_epoch(epoch)
            return list(sampler)

        for epoch in range(2):
            iterator = iter(loader)
            next(iterator)
            state = loader.state_dict()
            assert (state["begun"], state["epoch"], state["batches"]) == (True, epoch, 1)
            del iterator
            state = loader.state_dict()
            assert (state["begun"], state["epoch"]) == (False, epoch)
            assert loader.sampler.epoch == epoch
            for _ in loader:
                break
            assert keys() == wanted(epoch)


def test_two_iterators_at_once_are_two_epochs(ranks):
    def work(_rank):
        loader = make(12, 2)
        pairs = list(zip(loader, loader, strict=True))
        return [flat(pair[i] for pair in pairs) for i in range(2)], flat(loader)

    done = ranks.run(2, work)
    for epoch, shares in enumerate([*zip(*(each[0] for each in done)), [each[1] for each in done]]):
        order = torch.randperm(12, generator=torch.Generator().manual_seed(5 + epoch)).tolist()
        assert list(shares) == [order[0::2], order[1::2]]


def test_a_look_does_not_lose_a_state_that_was_loaded(ranks):
    """Neither of the middle of an epoch nor of its end."""
    for received in (2, None):

        def work(rank, received=received):
            loader = make(24, 2, "exact")
            got = flat(itertools.islice(iterator := iter(loader), received))
            state = loader.state_dict()
            del iterator
            loader.load_state_dict(state)
            if rank == 1:
                list(itertools.islice(loader, 1))
                assert loader.state_dict() == state
                iter(loader)
            return got, [flat(loader), flat(loader)]

        done = ranks.run(2, work)
        if received is None:
            epochs = [
                [each[0] for each in done],
                *([each[1][i] for each in done] for i in range(2)),
            ]
        else:
            epochs = [
                [each[0] + each[1][0] for each in done],
                [each[1][1] for each in done],
            ]
        for epoch in epochs:
            assert sorted(flat(epoch)) == list(range(24))


def test_ranks_compare_their_places_again_after_a_state(ranks):
    def work(rank):
        loader = make(24, 2)
        flat(loader)
        iterator = iter(loader)
        for _ in range(2 + rank):
            next(iterator)
        loader.load_state_dict(loader.state_dict())
        return flat(loader)

    done = ranks.run(2, work)
    for each in done:
        assert "the number of samples consumed is 8 on rank 0 and 12 on rank 1" in str(each)


@pytest.mark.parametrize("sets", ["loader", "sampler"])
def test_a_number_that_is_set_after_a_look_stands(group, sets):
    loader = make(8, 2)
    for epoch in (0, 1, 5, 6, 0):
        next(iter(loader))
        (loader if sets == "loader" else loader.sampler).set_epoch(epoch)
        flat(loader)
        assert number_of(loader) == epoch
        assert loader.sampler.epoch == epoch + 1
    loader.sampler.epoch = 3
    flat(loader)
    assert number_of(loader) == 3


class Foreign(FastLoader):
    """Whose iterator is none of ours, so that nobody knows how many batches it was asked for."""

    def _get_iterator(self):
        return iter([[1], [2]])


def test_an_iterator_of_a_subclass_counts_at_once(ranks):
    def work(rank):
        loader = Foreign(list(range(8)), 2, distributed="pad", shuffle=True, generator=seeded())
        list(loader)
        loader.set_epoch(1 + rank)
        iter(loader)

    for each in ranks.run(2, work):
        assert "the epoch is 1 on rank 0 and 2 on rank 1" in str(each)


# --- processes ------------------------------------------------------------------------------------

COUNTED = """
    from torch.utils.data import TensorDataset
    looks, options, arrays = ARGUMENT
    data = Pictures(100)
    if arrays:
        data = TensorDataset(torch.zeros(100, 3, 4, 4, dtype=torch.uint8), torch.arange(100))
    loader = FastLoader(data, 7, shuffle=True, distributed="auto", **options)
    epochs = []
    for epoch in range(4):
        epochs.append(sum(keys(loader), []))
        if RANK == 0:
            for _ in range(looks):
                next(iter(loader))
    report(epochs)
"""


@pytest.mark.exhaustive
@pytest.mark.processes
@pytest.mark.parametrize("world", [2, 3])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"num_workers": 2},
        {"num_workers": 1, "persistent_workers": True},
        {"mean": [0.5, 0.5, 0.5]},
    ],
    ids=["loop", "workers", "persistent", "arrays"],
)
def test_a_rank_that_logs_pictures_loses_no_sample(tmp_path, world, options):
    ranks = torchrun(tmp_path, world, COUNTED, [1, options, "mean" in options])
    for epoch in range(4):
        assert {key for rank in ranks for key in rank[epoch]} == set(range(100))
        assert sum(len(rank[epoch]) for rank in ranks) == -(-100 // world) * world


@pytest.mark.processes
def test_the_first_batch_waits_for_nobody(tmp_path):
    """The second one does: no rank is ahead of the others by more than a batch of the next epoch."""
    source = """
    loader = FastLoader(Pictures(12), 2, distributed="pad", shuffle=True)
    first = keys(loader)
    if RANK == 1:
        iterator = iter(loader)
        got = keys(itertools.islice(iterator, 1))
        dist.barrier()
        got += keys(iterator)
    else:
        dist.barrier()
        got = keys(loader)
    report([first, got])
    """
    ranks = torchrun(tmp_path, 2, source)
    for epoch in range(2):
        assert sorted(key for rank in ranks for batch in rank[epoch] for key in batch) == list(
            range(12)
        )


@pytest.mark.processes
@pytest.mark.parametrize("gone", [0, 1])
@pytest.mark.parametrize("how", ["elsewhere", "ended"])
def test_a_rank_that_has_gone_is_waited_for_with_an_end(tmp_path, gone, how):
    """It is at something else, or its process has ended, and with rank 0 perhaps the store."""
    source = """
    gone, how = ARGUMENT
    os.environ["FASTLOADER_RANK_TIMEOUT"] = "1.5"
    loader = FastLoader(Pictures(8), 2, distributed="pad")
    keys(loader)
    if RANK == gone:
        if how == "elsewhere":
            dist.barrier()
        report("gone")
    else:
        try:
            report(f"no error {keys(loader)}")
        except Error as error:
            report(str(error))
        if how == "elsewhere":
            dist.barrier()
    """
    said = torchrun(tmp_path, 2, source, [gone, how])[1 - gone]
    assert f"rank {gone} did not come to the second batch of its next epoch within 1.5 s" in said
    assert "FASTLOADER_RANK_TIMEOUT" in said


@pytest.mark.processes
@pytest.mark.parametrize("where", ["first iter()", "second batch"])
@pytest.mark.parametrize("who", [0, 1])
def test_ctrl_c_while_ranks_wait(tmp_path, where, who):
    """The wait ends, and goes on with the next call."""
    source = """
    import _thread, threading
    who, where = ARGUMENT
    loader = FastLoader(Pictures(8), 2, distributed="pad", shuffle=True)
    seen = []
    if where == "second batch":
        seen = keys(loader)
    if RANK == who:
        threading.Timer(0.3, _thread.interrupt_main).start()
        iterator = None
        try:
            iterator = iter(loader)
            next(iterator)
            next(iterator)
            interrupted = False
        except KeyboardInterrupt:
            interrupted = True
        dist.barrier()
        rest = keys(loader if iterator is None else iterator)
    else:
        dist.barrier()
        interrupted = True
        rest = keys(loader)[1 if where == "second batch" else 0:]
    report([interrupted, rest])
    """
    ranks = torchrun(tmp_path, 2, source, [who, where])
    assert all(rank[0] for rank in ranks)
    count = 4 if where == "second batch" else 8
    assert len({key for rank in ranks for batch in rank[1] for key in batch}) == count


@pytest.mark.parametrize("said", ["soon", "0", "-1", "nan", ""])
def test_a_patience_that_is_no_time(ranks, monkeypatch, said):
    monkeypatch.setenv(distributed.PATIENCE, said)
    with pytest.raises(ValueError, match=f"FASTLOADER_RANK_TIMEOUT='{said}': a number of seconds"):
        ranks.run(1, lambda _rank: list(make(4, 2)))
