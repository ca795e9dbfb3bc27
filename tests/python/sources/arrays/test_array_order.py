"""Datasets of arrays are gathered in DataLoader's order, with its draws and its errors."""

import random

import numpy as np
import pytest
import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    RandomSampler,
    Sampler,
    Subset,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
)

from fastloader import FastLoader

pytestmark = pytest.mark.covering

WORKERS = pytest.mark.parametrize("workers", [0, 2])


class Doubled(Sampler):
    """Draws when iter() is called, not when the first index is asked for."""

    def __iter__(self):
        return iter(torch.randperm(23).tolist() * 2)

    def __len__(self):
        return 46


class Batches(Sampler):
    """Yields batches of one kind or the other."""

    def __init__(self, make):
        self.make = make

    def __iter__(self):
        for begin in range(0, 20, 5):
            yield self.make([begin, begin + 1, -begin - 1, begin + 2])

    def __len__(self):
        return 4


DATA = range(23)

# Each makes fresh arguments from the user's generator: samplers and generators have state.
ORDERS = {
    "sequential": lambda g: {"batch_size": 4},
    "shuffled": lambda g: {"batch_size": 4, "shuffle": True},
    "shuffled with a generator": lambda g: {"batch_size": 4, "shuffle": True, "generator": g},
    "drop_last": lambda g: {"batch_size": 4, "shuffle": True, "drop_last": True},
    "drop_last, nothing left": lambda g: {"batch_size": 30, "shuffle": True, "drop_last": True},
    "larger than the data": lambda g: {"batch_size": 30, "shuffle": True},
    "of one": lambda g: {"shuffle": True, "generator": g},
    "random": lambda g: {"batch_size": 5, "sampler": RandomSampler(DATA, generator=g)},
    "random, some": lambda g: {"sampler": RandomSampler(DATA, num_samples=9, generator=g)},
    "random, more": lambda g: {
        "batch_size": 7,
        "sampler": RandomSampler(DATA, num_samples=60, generator=g),
    },
    "random, twice": lambda g: {"batch_size": 23, "sampler": RandomSampler(DATA, False, 46, g)},
    "replacement": lambda g: {"batch_size": 6, "sampler": RandomSampler(DATA, True, 100, g)},
    "replacement, 32": lambda g: {"batch_size": 16, "sampler": RandomSampler(DATA, True, 64, g)},
    "batch sampler": lambda g: {
        "batch_sampler": BatchSampler(RandomSampler(DATA, generator=g), 6, True),
        "generator": g,
    },
    "of a list": lambda g: {"batch_sampler": BatchSampler([3, 1, -2, 22, 0], 2, False)},
    "subset": lambda g: {"batch_size": 2, "sampler": SubsetRandomSampler([1, 3, 5, 7, 9], g)},
    "weighted": lambda g: {
        "batch_size": 4,
        "sampler": WeightedRandomSampler([1.0] * 23, 31, generator=g),
    },
    "eager": lambda g: {"batch_size": 4, "sampler": Doubled()},
    "lists": lambda g: {"batch_sampler": Batches(list)},
    "tuples": lambda g: {"batch_sampler": Batches(tuple)},
    "tensors": lambda g: {"batch_sampler": Batches(torch.tensor)},
    "int32 tensors": lambda g: {"batch_sampler": Batches(lambda b: torch.tensor(b).int())},
    "numpy": lambda g: {"batch_sampler": Batches(np.array)},
    "numpy numbers": lambda g: {"batch_sampler": Batches(lambda b: [np.int64(i) for i in b])},
    "tensors of one": lambda g: {"batch_sampler": Batches(lambda b: list(torch.tensor(b)))},
    "iterators": lambda g: {"batch_sampler": Batches(iter)},
}


def observed(kind, workers, order, persistent=False):
    """Batches, and every generator's state whenever the training loop has one, which draws as well."""
    torch.manual_seed(1)
    own = torch.Generator().manual_seed(2)
    dataset = TensorDataset(torch.arange(23), torch.randn(23, 5))
    extra = {"persistent_workers": True} if persistent else {}
    loader = kind(dataset, num_workers=workers, **ORDERS[order](own), **extra)
    seen = [own.get_state().tolist()]
    for _ in range(3):
        seen.append(len(loader))
        for batch in loader:
            drawn = torch.rand(()).item(), torch.rand((), generator=own).item()
            seen.append((*(each.tolist() for each in batch), drawn, own.get_state().tolist()))
        seen += [torch.get_rng_state().tolist(), own.get_state().tolist()]
    return seen


@pytest.mark.exhaustive
@pytest.mark.parametrize("order", ORDERS)
@WORKERS
def test_orders_and_draws(enter_way, order, workers):
    wanted = observed(DataLoader, workers, order)
    for name in ("cpu", "pure"):
        enter_way(name)
        assert observed(FastLoader, workers, order) == wanted


@pytest.mark.parametrize("order", ["shuffled", "shuffled with a generator", "eager"])
def test_persistent_workers_draw_their_seed_once(order):
    wanted = observed(DataLoader, 2, order, persistent=True)
    assert observed(FastLoader, 2, order, persistent=True) == wanted


@pytest.mark.parametrize(
    "indices",
    [[0, 23], [0, -24], [1.0], ["a"], [None], [], [2**70], [True, False], [torch.tensor(True)]],
)
@WORKERS
def test_errors_are_torchs(enter_way, indices, workers):
    """In their batch's place, and the epoch goes on."""
    enter_way("cpu" if workers else random.choice(["cpu", "pure"]))
    subset = Subset(torch.arange(40.0), list(range(23)))
    for dataset in (TensorDataset(torch.arange(23.0)), subset, torch.arange(23)):
        outcomes = []
        for kind, number in ((DataLoader, 0), (FastLoader, workers)):
            sampler = [[1, 2], indices, [3]]
            iterator = iter(kind(dataset, batch_sampler=sampler, num_workers=number))
            outcomes.append([])
            while len(outcomes[-1]) < 4:
                try:
                    outcomes[-1].append(str(next(iterator)))
                except (Exception, StopIteration) as error:
                    outcomes[-1].append((type(error), str(error)))
        assert outcomes[0] == outcomes[1]


class Failing(Sampler):
    def __iter__(self):
        yield [0, 1]
        yield [2, 3]
        raise KeyError("mine")

    def __len__(self):
        return 3


@WORKERS
def test_an_error_of_the_sampler_takes_its_batchs_place(workers):
    iterator = iter(FastLoader(torch.arange(9), batch_sampler=Failing(), num_workers=workers))
    assert next(iterator).tolist() == [0, 1] and next(iterator).tolist() == [2, 3]
    with pytest.raises(KeyError, match="mine"):
        next(iterator)
    for _ in range(2):
        with pytest.raises(StopIteration):
            next(iterator)
