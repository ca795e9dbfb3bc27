"""When a state is taken: before the first epoch, behind a break, behind close(), behind an error, in an
epoch that was itself resumed; and what set_epoch() says comes back with it."""

import itertools
import json

import pytest
import torch
from resuming import COUNT, NORMALISED, through_json
from torch.utils.data import Dataset, DistributedSampler, IterableDataset

from fastloader import Error, FastLoader
from support import Pictures, generator, labels

pytestmark = pytest.mark.covering


def test_a_state_is_small():
    loader = FastLoader(Pictures(COUNT), 3, shuffle=True)
    next(iter(loader))
    assert len(json.dumps(loader.state_dict())) < 1000
    loader = FastLoader(Pictures(COUNT), 3, shuffle=True, generator=generator(1))
    next(iter(loader))
    assert len(json.dumps(loader.state_dict())) < 12000


def test_before_the_first_epoch_and_of_a_loader_that_was_just_loaded():
    def make():
        return FastLoader(Pictures(COUNT), 3, shuffle=True, generator=generator(2))

    loader = make()
    state = through_json(loader.state_dict())
    assert (state["epoch"], state["begun"]) == (0, False)
    fresh = FastLoader(Pictures(COUNT), 3, shuffle=True, generator=generator(77))
    fresh.load_state_dict(state)
    assert labels(fresh) == labels(loader)


def test_after_an_early_break():
    torch.manual_seed(6)
    loader = FastLoader(Pictures(COUNT), 3, shuffle=True)
    for _ in loader:
        break
    state, users = loader.state_dict(), torch.get_rng_state()
    # The order it would have gone on in, from the state as of torch's DataLoader.
    torch.manual_seed(6)
    (_, *wanted) = labels(torch.utils.data.DataLoader(Pictures(COUNT), 3, shuffle=True))
    assert torch.equal(users, torch.get_rng_state())
    loader.load_state_dict(state)
    assert labels(loader) == wanted
    # The same loader, next epoch.
    assert loader.state_dict()["epoch"] == 1 and not loader.state_dict()["begun"]


@pytest.mark.exhaustive
@pytest.mark.parametrize("workers", [0, 2])
def test_after_close_in_the_middle(way, workers):
    torch.manual_seed(10)
    options = {"shuffle": True, "num_workers": workers, **way.options, **NORMALISED}
    loader = FastLoader(Pictures(COUNT), 2, **options)
    iterator, other = iter(loader), iter(loader)  # the state is that of the one begun last
    next(iterator), next(other), next(other)
    wanted = loader.state_dict()
    loader.close()
    list(iterator), list(other)  # over, or, where torch's workers went with it, still at it
    del iterator, other
    if way.path == "engine":
        assert loader.state_dict() == wanted
    loader.load_state_dict(wanted)
    assert len(labels(loader)) == 4


def test_states_of_resumed_epochs():
    torch.manual_seed(7)
    loader = FastLoader(Pictures(30), 2, shuffle=True)
    iterator = iter(loader)
    wanted = []
    state = None
    for _ in range(15):
        fresh = loader if state is None else FastLoader(Pictures(30), 2, shuffle=True)
        if state is not None:
            fresh.load_state_dict(state)
            iterator = iter(fresh)
        wanted.append(next(iterator)[1].tolist())
        state = through_json(fresh.state_dict())
    assert sorted(itertools.chain.from_iterable(wanted)) == list(range(30))
    assert state["batches"] == 15
    fresh = FastLoader(Pictures(30), 2, shuffle=True)
    fresh.load_state_dict(state)
    assert labels(fresh) == []  # all were received; the epoch's end was not
    assert len(labels(fresh)) == 15


def test_the_users_generator_is_left_alone(way):
    loader = FastLoader(Pictures(COUNT), 3, shuffle=True, **way.options, **NORMALISED)
    next(iter(loader))
    state = loader.state_dict()
    for workers in (0, 2):
        fresh = FastLoader(
            Pictures(COUNT), 3, shuffle=True, num_workers=workers, **way.options, **NORMALISED
        )
        fresh.load_state_dict(state)
        torch.manual_seed(8)
        list(fresh)
        assert torch.equal(torch.get_rng_state(), torch.manual_seed(8).get_state())


class Failing(Pictures):
    def __getitem__(self, index):
        if index == 4:
            raise KeyError("sample 4")
        return super().__getitem__(index)


@pytest.mark.exhaustive
@pytest.mark.parametrize("workers", [0, 2])
def test_an_error_takes_a_batchs_place(way, workers):
    options = {"batch_size": 2, "num_workers": workers, **way.options, **NORMALISED}
    loader = FastLoader(Failing(12), **options)
    iterator = iter(loader)
    next(iterator), next(iterator)
    with pytest.raises(KeyError):
        next(iterator)
    state = loader.state_dict()
    assert state["samples"] == 6
    del iterator
    fresh = FastLoader(Failing(12), **options)
    fresh.load_state_dict(state)
    assert labels(fresh) == [[6, 7], [8, 9], [10, 11]]


# --- set_epoch() --------------------------------------------------------------------------------


class Epochs(Dataset):
    """Says which epoch it is in."""

    epoch = -1

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __len__(self):
        return 4

    def __getitem__(self, index):
        return self.epoch


class EpochStream(Epochs, IterableDataset):
    def __iter__(self):
        yield self.epoch


@pytest.mark.parametrize("kind", [Epochs, EpochStream])
@pytest.mark.parametrize("persistent", [False, True])
def test_set_epoch_reaches_every_worker(kind, persistent):
    loader = FastLoader(kind(), None, num_workers=2, persistent_workers=persistent)
    assert set(loader) == {-1}
    seen = []
    for epoch in (5, None, 9):
        if epoch is not None:
            loader.set_epoch(epoch)
        seen.append(set(loader))
    assert seen == [{5}, {6}, {9}]


def test_set_epoch_reaches_the_sampler_and_comes_back():
    def make():
        return FastLoader(range(COUNT), 2, sampler=DistributedSampler(range(COUNT), 2, 0))

    loader = make()
    loader.set_epoch(3)
    iterator = iter(loader)
    next(iterator)
    state = loader.state_dict()
    wanted = [batch.tolist() for batch in iterator]
    fresh = make()
    fresh.load_state_dict(state)
    assert fresh.sampler.epoch == 3
    assert [batch.tolist() for batch in fresh] == wanted
    # A script that counts from 0 again.
    fresh.load_state_dict(state)
    fresh.set_epoch(0)
    with pytest.raises(ValueError, match=r"middle of epoch 3.*set_epoch\(0\)"):
        iter(fresh)
    fresh.load_state_dict(state)
    fresh.sampler.set_epoch(0)
    with pytest.raises(Error, match=r"calls 3.*set_epoch\(0\)"):
        list(fresh)


def test_torchs_distributed_sampler_with_another_world_size():
    def make(world, rank):
        sampler = DistributedSampler(range(29), world, rank, seed=3)
        return FastLoader(Pictures(29), 2, sampler=sampler)

    received, state = [], None
    for rank in range(4):
        loader = make(4, rank)
        received += [index for _, batch in itertools.islice(loader, 2) for index in batch.tolist()]
        iterator = iter(loader)
        next(iterator), next(iterator)
        state = loader.state_dict()
        assert state["samples"] == 16
    rest = []
    for rank in range(2):
        loader = make(2, rank)
        loader.load_state_dict(state)
        rest += itertools.chain.from_iterable(labels(loader))
    assert len(rest) == 14  # 13, and one to make it even
    assert sorted({*received, *rest}) == list(range(29))
