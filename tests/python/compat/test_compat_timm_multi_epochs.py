"""MultiEpochsDataLoader goes on from a state: with the rest of that epoch, and then with whole ones."""

import json

import pytest
import torch
from torch.utils.data import DistributedSampler, TensorDataset

from fastloader._core.batch.augmentation import RandomErasing
from fastloader.compat.timm import MultiEpochsDataLoader
from fastloader.compat.timm.loader import ErasingMultiEpochsLoader
from support import MEAN, STD, Pictures, random_images, same

pytestmark = pytest.mark.covering

COUNT = 23
BATCH = 4
DATA = {"arrays": TensorDataset(torch.arange(COUNT)), "python": Pictures(COUNT)}
ORDERS = {
    "shuffle": lambda data: {"shuffle": True},
    "generator": lambda data: {"shuffle": True, "generator": torch.Generator().manual_seed(2)},
    "shares": lambda data: {"sampler": DistributedSampler(data, 2, 1)},
}


def check(make, epochs, received):
    torch.manual_seed(1)
    loader = make()
    for _ in range(epochs):
        list(loader)
    iterator = iter(loader)
    for _ in range(received):
        next(iterator)
    state, users = json.loads(json.dumps(loader.state_dict())), torch.get_rng_state()
    wanted = [list(iterator) if received else list(loader), list(loader), list(loader)]
    loader.close()
    for iterated in (False, True):
        torch.manual_seed(77)
        fresh = make()
        if iterated:
            next(iter(fresh))
        fresh.load_state_dict(state)
        assert fresh.state_dict() == state
        torch.set_rng_state(users)
        same([list(fresh) for _ in range(3)], wanted)
        fresh.close()


@pytest.mark.exhaustive
@pytest.mark.parametrize(("workers", "persistent"), [(0, False), (2, False), (2, True)])
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("kind", DATA)
def test_each_epoch_after_a_state(kind, order, workers, persistent):
    data = DATA[kind]

    def make():
        options = {"num_workers": workers, "persistent_workers": persistent}
        return MultiEpochsDataLoader(data, BATCH, **options, **ORDERS[order](data))

    length = len(make())
    for epochs, received in ((0, 0), (0, 2), (1, 0), (1, length), (2, length - 1)):
        check(make, epochs, received)


def test_a_break_and_then_a_state():
    """timm's goes on where the loop was left, for an epoch's length."""

    def make():
        return MultiEpochsDataLoader(DATA["arrays"], BATCH, shuffle=True)

    torch.manual_seed(3)
    loader = make()
    for _ in zip(range(2), loader):
        pass
    iterator = iter(loader)
    next(iterator)
    state, users = loader.state_dict(), torch.get_rng_state()
    wanted = [list(iterator), list(loader)]
    fresh = make()
    fresh.load_state_dict(state)
    torch.set_rng_state(users)
    same([list(fresh), list(fresh)], wanted)


def test_what_is_erased(way):
    data = TensorDataset(random_images(5, COUNT, 3, 9, 9), torch.arange(COUNT))

    def make():
        erasing = {"random_erasing": RandomErasing(0.9, mode="pixel"), "mean": MEAN, "std": STD}
        # Of its own, because a thread that reads ahead draws the next order at any time.
        order = ORDERS["generator"](data)
        return ErasingMultiEpochsLoader(data, BATCH, **order, **erasing, **way.options)

    for received in (2, 6):
        check(make, 1, received)


def test_how_the_order_was_drawn_is_forgotten_behind_the_loop():
    loader = MultiEpochsDataLoader(DATA["arrays"], BATCH, shuffle=True)
    for _ in range(20):
        list(loader)
    assert len(loader.state_dict()["sampler_state"]["begun"]) <= 2
    assert len(loader.batch_sampler._begun) <= 2


def test_a_state_of_an_older_version_is_refused():
    loader = MultiEpochsDataLoader(DATA["arrays"], BATCH, shuffle=True)
    next(iter(loader))
    state = loader.state_dict() | {"sampler_state": None}
    with pytest.raises(ValueError, match="a version of fastloader whose MultiEpochsDataLoader"):
        loader.load_state_dict(state)
