"""``distributed=``: shares of the ranks, their ends, their disagreements, and going on with another
number of them. Ranks are processes under torchrun, over gloo."""

import itertools
import json
import types

import pytest
import torch
from pictures import plain_folder
from torch.utils.data import DistributedSampler
from torchrun import torchrun

from fastloader import FastLoader
from fastloader._core.machine import limits
from fastloader._core.order import distributed
from support import Pictures, Stream

pytestmark = pytest.mark.covering


@pytest.mark.processes
@pytest.mark.parametrize("world", [2, 4])
def test_order_is_distributed_samplers_and_epochs_are_counted(tmp_path, world):
    """Shuffled and not, with workers, persistent ones too: the loader sets the epoch."""
    source = """
    from torch.utils.data import DataLoader, DistributedSampler
    seen = []
    for options in (
        {"shuffle": True},
        {"shuffle": False, "drop_last": True},
        {"shuffle": True, "num_workers": 2, "persistent_workers": True},
        {"shuffle": True, "generator": torch.Generator().manual_seed(41)},
    ):
        data = Pictures(31)
        loader = FastLoader(data, 3, distributed="auto", **options)
        got = [keys(loader) for _ in range(3)]
        sampler = DistributedSampler(data, shuffle=options["shuffle"])
        if "generator" in options:
            sampler.seed = 41
        reference = DataLoader(data, 3, sampler=sampler, drop_last=options.get("drop_last", False))
        wanted = []
        for epoch in range(3):
            sampler.set_epoch(epoch)
            wanted.append(keys(reference))
        assert got == wanted, (got, wanted)
        assert len(loader) == len(reference)
        seen.append(got)
    report(seen)
    """
    # Two as torchrun starts them, whose hashes of strings differ; four as warm interpreters.
    ranks = torchrun(tmp_path, world, source, launcher=world == 2)
    for case in range(4):
        one, two, _ = (
            {k for rank in ranks for batch in rank[case][e] for k in batch} for e in range(3)
        )
        if case != 1:
            assert one == two == set(range(31))
            assert ranks[0][case][0] != ranks[0][case][1]


@pytest.mark.processes
def test_uneven_ends(tmp_path):
    source = """
    seen = {}
    for policy in ("pad", "drop", "exact"):
        loader = FastLoader(Pictures(ARGUMENT), 2, distributed=policy, shuffle=True)
        seen[policy] = sum(keys(loader), [])
        assert len(seen[policy]) == len(loader.sampler), policy
        assert len(keys(loader)) == len(loader)
    report(seen)
    """
    count = 10
    ranks = torchrun(tmp_path, 4, source, count)
    everything = list(range(count))
    sizes = {policy: [len(rank[policy]) for rank in ranks] for policy in ranks[0]}
    assert sizes == {"pad": [3, 3, 3, 3], "drop": [2, 2, 2, 2], "exact": [3, 3, 2, 2]}
    together = {p: sorted(k for rank in ranks for k in rank[p]) for p in ranks[0]}
    assert together["exact"] == everything
    assert sorted(set(together["pad"])) == everything
    assert len(set(together["drop"])) == 8


RESUME = """
    received, state, total = ARGUMENT
    loader = FastLoader(Pictures(total), 2, distributed="exact", shuffle=True,
                        num_workers=2 if RANK % 2 else 0)
    torch.manual_seed(RANK)
    if state:
        loader.load_state_dict(state)
    iterator = iter(loader)
    got = keys(itertools.islice(iterator, received))
    state = loader.state_dict()
    rest = keys(iterator) if received is None else None
    following = keys(loader) if received is None else None
    report([sum(got, []), state, following])
"""


@pytest.mark.processes
@pytest.mark.parametrize("worlds", [[(4, 2), (2, None)], [(2, 3), (3, None)], [(2, 4), (1, None)]])
def test_elastic_restart(tmp_path, worlds):
    """Another number of ranks: every sample of the epoch once, and then the next epoch."""
    total = 45
    received, state, ranks = [], None, []
    for world, batches in worlds:
        ranks = torchrun(tmp_path, world, RESUME, [batches, state, total])
        received += [key for rank in ranks for key in rank[0]]
        states = [{**rank[1], "num_workers": 0} for rank in ranks]
        if batches is not None:
            assert all(each == states[0] for each in states)
            state = states[-1]
            assert state["samples"] == len(received)
            assert len(json.dumps(state)) < 2000
    assert sorted(received) == list(range(total))
    order = torch.randperm(total, generator=torch.Generator().manual_seed(1)).tolist()
    following = [[key for batch in rank[2] for key in batch] for rank in ranks]
    assert following == [order[rank :: len(ranks)] for rank in range(len(ranks))]


@pytest.mark.processes
def test_torchruns_own_restart(tmp_path):
    """Rank 1 dies in the middle of the epoch, and torchrun starts all ranks again."""
    source = """
    loader = FastLoader(Pictures(20), 2, distributed="pad", shuffle=True)
    if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
        iterator = iter(loader)
        got = keys(itertools.islice(iterator, 3))
        with open(f"{OUT}/before{RANK}.json", "w") as file:
            json.dump([got, loader.state_dict()], file)
        dist.barrier()
        if RANK == 1:
            os._exit(3)
        time.sleep(60)  # until torchrun ends this rank, too
    before = [json.load(open(f"{OUT}/before{rank}.json")) for rank in range(WORLD)]
    loader.load_state_dict(before[0][1])
    report([before[RANK][0], keys(loader)])
    """
    # Without the variable gloo itself takes the addresses of the dead processes for those of the new.
    ranks = torchrun(
        tmp_path, 2, source, options=["--max-restarts=1"], TORCH_DISABLE_SHARE_RDZV_TCP_STORE="1"
    )
    received = [key for rank in ranks for part in rank for batch in part for key in batch]
    assert sorted(received) == list(range(20))


PICTURES = """
    from fastloader import transforms as T
    from fastloader.datasets import ImageFolder
    crops = ImageFolder(ARGUMENT, T.Compose([T.RandomResizedCrop(12), T.RandomHorizontalFlip()]))
    def make(threads):
        loader = FastLoader(crops, 2, shuffle=True, distributed="auto", num_workers=threads)
        assert "native images" in loader.plan()
        return loader
"""


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return str(plain_folder(tmp_path_factory.mktemp("pictures"), 13, classes=13))


@pytest.mark.processes
def test_the_same_number_of_ranks_goes_on_to_the_bit(tmp_path, root):
    source = """
    torch.manual_seed(100 + RANK)
    loader = make(1)
    list(loader)
    iterator = iter(loader)
    next(iterator)
    state = json.loads(json.dumps(loader.state_dict()))
    wanted = [*iterator, *loader]
    torch.manual_seed(200 + RANK)
    fresh = make(2)
    fresh.load_state_dict(state)
    got = [*fresh, *fresh]
    assert len(got) == len(wanted) == 7
    for one, other in zip(got, wanted):
        assert torch.equal(one[0], other[0]) and torch.equal(one[1], other[1])
    report(state)
    """
    ranks = torchrun(tmp_path, 2, PICTURES + source, root)
    assert ranks[0] == ranks[1]  # so rank 0's is enough


@pytest.mark.processes
def test_a_pictures_crop_does_not_depend_on_the_ranks(tmp_path, root):
    source = """
    torch.manual_seed(100 + 7 * RANK)
    loader = make(1)
    list(loader), list(loader)
    report({k: loader.replay(k) for k in share(loader.sampler, 1)})
    """
    two, one = (
        torchrun(tmp_path, 2, PICTURES + source, root),
        torchrun(tmp_path, 1, PICTURES + source, root),
    )
    assert {**two[0], **two[1]} == one[0] and len(one[0]) == 13


@pytest.mark.processes
def test_ranks_that_disagree_are_told(tmp_path):
    source = """
    told = {}
    for what in ("seed", "length", "epoch", "position", "nothing"):
        differs = what if RANK == 1 else ""
        count = 21 if differs == "length" else 20
        generator = torch.Generator().manual_seed(6 if differs == "seed" else 5)
        options = {"batch_size": 2, "shuffle": True, "distributed": "auto", "generator": generator}
        loader = FastLoader(Pictures(count), **options)
        if differs == "epoch":
            loader.set_epoch(7)
        if what == "position":
            other = FastLoader(Pictures(count), **options)
            held = iter(other)
            next(held)
            if differs:
                loader.load_state_dict(other.state_dict())
        try:
            next(iter(loader))
            told[what] = ""
        except Error as error:
            told[what] = str(error)
    report(told)
    """
    ranks = torchrun(tmp_path, 2, source)
    assert ranks[0] == ranks[1]
    for what, named in {
        "seed": "the seed is 5 on rank 0 and 6 on rank 1",
        "length": "the dataset's length is 20 on rank 0 and 21 on rank 1",
        "epoch": "the epoch is 0 on rank 0 and 7 on rank 1",
        "position": "the number of samples consumed is 0 on rank 0 and 4 on rank 1",
    }.items():
        assert named in ranks[0][what], ranks[0]
    assert ranks[0]["nothing"] == ""


@pytest.mark.processes
@pytest.mark.parametrize("absent", [0, 1])
def test_a_rank_that_does_not_come_is_waited_for_with_an_end(tmp_path, absent):
    """The absent rank waits at a barrier that is no part of fastloader."""
    source = """
    os.environ["FASTLOADER_RANK_TIMEOUT"] = "1"
    loader = FastLoader(Pictures(8), 2, distributed="pad")
    if RANK == ARGUMENT:
        dist.barrier()
        report("absent")
    else:
        began = time.monotonic()
        try:
            iter(loader)
            report("no error")
        except Error as error:
            report(f"{error} after {time.monotonic() - began:.1f}")
        dist.barrier()
    """
    ranks = torchrun(tmp_path, 2, source, absent)
    assert f"rank {absent} did not call iter()" in ranks[1 - absent]


@pytest.mark.processes
def test_threads_are_divided_between_the_ranks_of_a_machine(tmp_path):
    source = """
    from fastloader._core.machine import limits as module
    module.threads_within = lambda _quota: 8
    by_launcher = module.own_threads()
    del os.environ["LOCAL_WORLD_SIZE"]
    unknown = module.own_threads()
    list(FastLoader(Pictures(8), 2, distributed="pad"))
    counted = module.own_threads()
    report([by_launcher, unknown, counted])
    """
    assert torchrun(tmp_path, 2, source) == [[4, 8, 4]] * 2


def test_what_an_earlier_attempt_left_in_the_store(monkeypatch):
    """Ranks are threads here, over one store, in which the round has been before, with other facts."""
    import threading

    store = torch.distributed.HashStore()
    monkeypatch.setattr(
        torch.distributed,
        "distributed_c10d",
        types.SimpleNamespace(_get_default_store=lambda: store),
    )
    here = threading.local()
    Ranks(monkeypatch, 2, 0)
    monkeypatch.setattr(torch.distributed, "get_rank", lambda: here.rank)
    for name in ("_ranks_here", "_ranks_sharing"):
        monkeypatch.setattr(limits, name, None)
    rounds = {}
    monkeypatch.setattr(distributed, "_rounds", rounds)

    def attempt(length):
        rounds[store] = itertools.repeat(0)
        agreed = {}

        def run(rank):
            here.rank = rank
            facts = {"length": length, distributed.EPOCH: 0}
            agreed[rank] = distributed.agree(distributed.first_meeting(), facts, 10 * length + rank)

        threads = [threading.Thread(target=run, args=(rank,)) for rank in (1, 0)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return agreed

    for length in (7, 8):
        assert {rank: each.proposal for rank, each in attempt(length).items()} == {
            0: 10 * length,
            1: 10 * length,
        }


# --- without torchrun ---------------------------------------------------------------------------


class Ranks:
    """torch.distributed as rank ``rank`` of ``world`` sees it, as far as samplers ask."""

    def __init__(self, monkeypatch, world, rank):
        monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
        monkeypatch.setenv("FASTLOADER_AUDIT", "0")  # there is no other rank
        monkeypatch.setattr(torch.distributed, "get_world_size", lambda: world)
        monkeypatch.setattr(torch.distributed, "get_rank", lambda: rank)


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("count", [1, 2, 5, 12, 13, 100])
@pytest.mark.parametrize("world", [1, 2, 3, 7, 16])
def test_shares_are_distributed_samplers(monkeypatch, world, count, shuffle):
    for rank in range(world):
        Ranks(monkeypatch, world, rank)
        for policy in ("pad", "drop"):
            ours = distributed.ShardSampler(range(count), shuffle, 3, policy)
            theirs = DistributedSampler(
                range(count), world, rank, shuffle=shuffle, seed=3, drop_last=policy == "drop"
            )
            theirs.set_epoch(4)
            ours.set_epoch(4)
            assert len(ours) == len(theirs)
            assert list(ours) == list(theirs)


def test_any_sequence_of_world_sizes_gives_every_sample_once(monkeypatch):
    import random

    seed = random.randrange(1 << 30)
    rng = random.Random(seed)
    for _ in range(50):
        count, epoch = rng.randint(1, 60), rng.randint(0, 9)
        given, start = [], 0
        while start < count:
            world, step = rng.randint(1, 6), rng.randint(1, 8)
            for rank in range(world):
                Ranks(monkeypatch, world, rank)
                sampler = distributed.ShardSampler(range(count), True, 1, "exact")
                given += distributed.share(sampler, epoch, start)[:step]
            start += step * world
        assert sorted(given) == list(range(count)), seed


def test_without_a_process_group():
    loader = FastLoader(Pictures(6), 2, distributed="auto", shuffle=True)
    assert type(loader.sampler) is torch.utils.data.RandomSampler
    assert len(list(loader)) == 3
    with pytest.raises(ValueError, match="init_process_group"):
        FastLoader(Pictures(6), distributed="pad")


def test_arguments(monkeypatch):
    Ranks(monkeypatch, 2, 0)
    with pytest.raises(ValueError, match="'pad', 'drop' or 'exact'"):
        FastLoader(Pictures(6), distributed="rank")
    with pytest.raises(ValueError, match="leave sampler out"):
        FastLoader(Pictures(6), distributed="pad", sampler=range(3))
    with pytest.raises(ValueError, match="leave batch_sampler out"):
        FastLoader(Pictures(6), distributed="exact", batch_sampler=[[0]])
    with pytest.raises(ValueError, match="iterable dataset"):
        FastLoader(Stream(6), distributed="drop")
    # "auto" leaves the user's choice alone.
    assert FastLoader(Pictures(6), distributed="auto", sampler=range(3)).sampler == range(3)
    assert len(list(FastLoader(Stream(6), distributed="auto"))) == 6
    # Frameworks make the loader again from its attributes.
    loader = FastLoader(Pictures(6), distributed="pad", shuffle=True)
    again = FastLoader(Pictures(6), distributed="pad", sampler=loader.sampler)
    assert again.sampler is loader.sampler
    assert isinstance(loader.sampler, DistributedSampler)
