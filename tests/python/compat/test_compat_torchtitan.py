"""TitanLoader: epochs without end, each with its own order, and a state for any number of ranks."""

import dataclasses
import itertools

import pytest
import torch
from torch.utils.data import DistributedSampler

import fastloader
from fastloader import Error, FastLoader
from support import Pictures, labels

COUNT, RANKS = 12, 2


@pytest.fixture(scope="module")
def titan():
    pytest.importorskip("torchtitan.components.dataloader")
    from fastloader.compat import torchtitan

    return torchtitan


def share(rank, ranks=RANKS, seed=3):
    sampler = DistributedSampler(range(COUNT), ranks, rank, seed=seed)
    return FastLoader(Pictures(COUNT), 2, sampler=sampler)


def steps(loader, count):
    return [batch[1].tolist() for batch in itertools.islice(loader, count)]


def epoch(number, rank, ranks=RANKS):
    loader = share(rank, ranks)
    loader.sampler.set_epoch(number)
    return labels(loader)


def test_epochs_follow_one_another(titan):
    loader = titan.TitanLoader(share(1))
    assert steps(loader, 9) == epoch(0, 1) + epoch(1, 1) + epoch(2, 1)
    assert epoch(0, 1) != epoch(1, 1)
    once = titan.TitanLoader(share(1), endless=False)
    assert steps(once, 9) == epoch(0, 1) and steps(once, 9) == epoch(1, 1)


@pytest.mark.parametrize("stop", range(1, 7))
def test_a_state_goes_on(titan, stop):
    loader = titan.TitanLoader(share(0))
    assert steps(loader, stop) == (epoch(0, 0) + epoch(1, 0))[:stop]
    state = loader.state_dict()
    assert list(state) == ["every rank"]
    again = titan.TitanLoader(share(0))
    again.load_state_dict({})
    again.load_state_dict(state)
    assert steps(again, 9 - stop) == (epoch(0, 0) + epoch(1, 0) + epoch(2, 0))[stop:]


def test_another_number_of_ranks(titan):
    got = []
    for rank in range(2):
        loader = titan.TitanLoader(share(rank))
        got += steps(loader, 1)
        state = loader.state_dict()
    for rank in range(4):
        loader = titan.TitanLoader(share(rank, 4))
        loader.load_state_dict(state)
        batches = iter(loader)
        got += [next(batches)[1].tolist()]
        assert steps(batches, 2) == epoch(1, rank, 4)
    assert sorted(itertools.chain(*got)) == list(range(COUNT))


def test_no_batch_at_all_is_an_error(titan):
    empty = FastLoader(Pictures(1), 2, drop_last=True)
    with pytest.raises(Error, match="gave no batch in a whole epoch"):
        next(iter(titan.TitanLoader(empty)))


def test_torchtitan_builds_it_from_a_config(titan):
    from torchtitan.components.dataloader import BaseDataLoader

    class Mine(titan.TitanLoader):
        @dataclasses.dataclass(kw_only=True, slots=True)
        class Config(BaseDataLoader.Config):
            seed: int = 3

        def __init__(self, config, *, dp_world_size, dp_rank, **_):
            super().__init__(share(dp_rank, dp_world_size, config.seed))

    made = Mine.Config().build(dp_world_size=2, dp_rank=1, tokenizer=None, local_batch_size=2)
    assert isinstance(made, BaseDataLoader) and steps(made, 3) == epoch(0, 1)
    assert fastloader.check(made).loaders == [made.loader]
    with pytest.raises(TypeError, match="takes a FastLoader"):
        titan.TitanLoader(torch.utils.data.DataLoader(Pictures(2)))
