"""When ``distributed="auto"`` is decided, and what frameworks that shard as well are told."""

import copy
import pickle
import warnings

import pytest
import torch
from torch.utils.data import BatchSampler, DistributedSampler, RandomSampler, SequentialSampler
from torchrun import torchrun

from fastloader import Error, FastLoader
from fastloader._core.order.distributed import ShardSampler
from support import Pictures, labels

pytestmark = pytest.mark.covering

LOOKS = {
    "sampler": lambda loader: loader.sampler,
    "batch_sampler": lambda loader: loader.batch_sampler,
    "len": len,
    "iter": lambda loader: list(loader),
    "state_dict": lambda loader: loader.state_dict(),
    "set_epoch": lambda loader: loader.set_epoch(0),
}


@pytest.fixture
def group():
    """``group()`` makes this process rank 0 of 1."""

    def begin():
        store = torch.distributed.HashStore()
        torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)

    yield begin
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


@pytest.mark.parametrize("look", LOOKS)
@pytest.mark.parametrize("size", [None, 2])
def test_a_group_that_comes_after_the_loader(group, look, size):
    """It is there when the sampler is first looked at: nothing before that decides."""
    loader = FastLoader(Pictures(7), size, shuffle=True, distributed="auto")
    copies = [copy.deepcopy(loader), pickle.loads(pickle.dumps(loader))]
    assert loader.stats()["batches"] == 0
    if size is not None:
        assert loader.plan()
    loader.close()
    group()
    for each in (loader, *copies):
        LOOKS[look](each)
        assert type(each.sampler) is ShardSampler
        if size is None:
            assert each.batch_sampler is None
        else:
            assert type(each.batch_sampler) is BatchSampler
            assert each.batch_sampler.sampler is each.sampler
        each.set_epoch(1)
        reference = DistributedSampler(range(7), 1, 0, shuffle=True)
        reference.set_epoch(1)
        flat = [
            label for batch in (labels(each) if size else [[x] for _, x in each]) for label in batch
        ]
        assert flat == list(reference)
        assert vars(each)["sampler"] is each.sampler


COPIES = {
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "pickle": lambda each: pickle.loads(pickle.dumps(each)),
}


@pytest.mark.parametrize("copied", COPIES)
@pytest.mark.parametrize("first", ["loader", "copy"])
def test_a_copy_of_an_undecided_loader_decides_as_well(group, copied, first):
    """Each for itself, whoever is the first to be looked at."""
    loader = FastLoader(Pictures(7), 2, shuffle=True, distributed="auto")
    twin = COPIES[copied](loader)
    group()
    both = [loader, twin] if first == "loader" else [twin, loader]
    for each in both:
        assert type(each.sampler) is ShardSampler
        assert each.batch_sampler.sampler is each.sampler
    assert loader.sampler is not twin.sampler
    # And so does a copy that was made before, of one that had decided for the whole dataset.
    torch.distributed.destroy_process_group()
    loader = FastLoader(Pictures(7), 2, distributed="auto")
    twin = COPIES[copied](loader)
    len(loader)
    group()
    assert type(twin.sampler) is ShardSampler
    with pytest.raises(Error, match="was decided before torch"):
        iter(loader)


@pytest.mark.parametrize("copied", COPIES)
@pytest.mark.parametrize("policy", ["auto", "pad", "exact"])
@pytest.mark.parametrize("size", [2, None])
def test_a_copy_counts_its_epochs_by_itself(group, copied, policy, size):
    group()
    loader = FastLoader(Pictures(7), size, shuffle=True, distributed=policy)

    def order(each):
        return [label for _, labels in each for label in torch.atleast_1d(torch.tensor(labels))]

    epochs = [list(DistributedSampler(range(7), 1, 0)) for _ in range(3)]
    for epoch in range(3):
        reference = DistributedSampler(range(7), 1, 0)
        reference.set_epoch(epoch)
        epochs[epoch] = list(reference)
    assert order(loader) == epochs[0]
    twin = COPIES[copied](loader)
    assert [order(loader), order(loader)] == epochs[1:]
    assert [order(twin), order(twin)] == epochs[1:]
    twin.set_epoch(0)
    loader.set_epoch(2)
    assert (order(twin), order(loader)) == (epochs[0], epochs[2])


@pytest.mark.parametrize("look", LOOKS)
@pytest.mark.parametrize("shuffle", [False, True])
def test_a_group_that_comes_after_the_decision(group, look, shuffle):
    loader = FastLoader(Pictures(6), 2, shuffle=shuffle, distributed="auto")
    LOOKS[look](loader)
    assert type(loader.sampler) is (RandomSampler if shuffle else SequentialSampler)
    list(loader)
    copies = [copy.deepcopy(loader), pickle.loads(pickle.dumps(loader))]
    group()
    for each in (loader, *copies):
        for _ in range(2):
            with pytest.raises(Error, match="was decided before torch"):
                iter(each)


@pytest.mark.parametrize("replaces", ["sampler", "batch_sampler", "inner"])
def test_after_the_decision_a_frameworks_sampler_is_taken(group, replaces):
    loader = FastLoader(Pictures(6), 2, distributed="auto")
    len(loader)
    group()
    mine = DistributedSampler(range(6), 2, 1, shuffle=False)
    if replaces == "inner":
        loader.batch_sampler.sampler = mine
    else:
        batches = BatchSampler(mine, 2, False)
        object.__setattr__(loader, "sampler", mine)
        object.__setattr__(loader, "batch_sampler", batches)
    assert labels(loader) == [[1, 3], [5]]
    # Before it, too.
    loader = FastLoader(Pictures(6), 2, distributed="auto")
    object.__setattr__(loader, "batch_sampler", BatchSampler(mine, 3, False))
    assert labels(loader) == [[1, 3, 5]]


@pytest.mark.parametrize("world", ["1", "", "4", "four"])
def test_ranks_without_a_group_are_warned(monkeypatch, world):
    monkeypatch.setenv("WORLD_SIZE", world)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        loader = FastLoader(Pictures(4), 2, distributed="auto")
        assert not caught
        assert labels(loader) == [[0, 1], [2, 3]]
        list(loader)
        FastLoader(Pictures(4), 2, distributed="auto", sampler=[1]).sampler  # noqa: B018
        list(FastLoader(Pictures(4), 2))
    told = [each for each in caught if "WORLD_SIZE" in str(each.message)]
    assert len(told) == (world == "4")
    if told:
        assert told[0].category is RuntimeWarning
        assert "WORLD_SIZE is 4, but torch.distributed is not initialised" in str(told[0].message)


@pytest.mark.processes
def test_each_rank_has_its_share_of_a_loader_made_before_the_group(tmp_path):
    source = """
    loader = FastLoader(Pictures(9), 2, shuffle=True, distributed="auto", num_workers=RANK)
    dist.init_process_group("gloo")
    report([keys(loader), len(loader)])
    """
    ranks = torchrun(tmp_path, 2, source, group=False)
    assert {key for rank in ranks for batch in rank[0] for key in batch} == set(range(9))
    assert [rank[1] for rank in ranks] == [3, 3]
