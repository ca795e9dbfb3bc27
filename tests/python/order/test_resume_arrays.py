"""state_dict() over the paths without worker processes: gathered arrays, and worker threads."""

import json

import pytest
import torch
from torch.utils.data import StackDataset, Subset, TensorDataset, WeightedRandomSampler

from fastloader import FastLoader
from support import Pictures, Stream, same

pytestmark = pytest.mark.covering

COUNT = 23
ROWS = torch.arange(COUNT * 4, dtype=torch.float32).reshape(COUNT, 4)


def generator(seed):
    return torch.Generator().manual_seed(seed)


DATASETS = {
    "tensors": lambda: TensorDataset(ROWS, torch.arange(COUNT)),
    "subset": lambda: Subset(TensorDataset(ROWS), list(range(20, 3, -1))),
    "stack": lambda: StackDataset(a=ROWS, b=torch.arange(COUNT)),
}
ORDERS = {
    "sequential": lambda: {},
    "shuffle": lambda: {"shuffle": True},
    "generator": lambda: {"shuffle": True, "generator": generator(3)},
    "weighted": lambda: {"sampler": WeightedRandomSampler([1.0] * 9, 17)},
    "drop_last": lambda: {"shuffle": True, "drop_last": True},
}


def loaders(dataset, order, **options):
    return lambda: FastLoader(DATASETS[dataset](), batch_size=3, **ORDERS[order](), **options)


def check(make, stops):
    """What follows a stop in the second epoch is what follows it in a run that never stopped, in that
    epoch and the next."""
    for stop in stops:
        torch.manual_seed(5)
        straight = make()
        list(straight)
        iterator = iter(straight)
        received = [next(iterator) for _ in range(stop)]
        state = json.loads(json.dumps(straight.state_dict()))
        generators = torch.get_rng_state()
        rest = list(iterator)
        next_epoch = list(straight)
        straight.close()

        torch.set_rng_state(generators)  # torch's own is the user's to save
        resumed = make()
        resumed.load_state_dict(state)
        same(list(resumed), rest)
        assert len(received) + len(rest) == len(straight)
        same(list(resumed), next_epoch)
        resumed.close()


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("dataset", DATASETS)
def test_arrays(dataset, order, workers):
    check(loaders(dataset, order, num_workers=workers), (0, 1, 4))


@pytest.mark.parametrize("order", ["shuffle", "generator"])
def test_arrays_with_persistent_workers(order):
    check(loaders("tensors", order, num_workers=2, persistent_workers=True), (0, 2))


@pytest.mark.parametrize("order", ["shuffle", "generator"])
def test_arrays_over_every_path(way, order):
    options = {"num_workers": 2, **way.options}
    check(loaders("tensors", order, **options), (0, 3))


@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("order", ORDERS)
def test_threads(order, persistent):
    def make():
        return FastLoader(
            Pictures(COUNT),
            batch_size=3,
            num_workers=2,
            worker_backend="thread",
            persistent_workers=persistent,
            **ORDERS[order](),
        )

    check(make, (0, 1, 4))


def test_threads_over_an_iterable_dataset():
    def make():
        return FastLoader(Stream(12), batch_size=2, num_workers=2, worker_backend="thread")

    straight = list(make())
    begun = make()
    iterator = iter(begun)
    for _ in range(3):
        next(iterator)
    resumed = make()
    resumed.load_state_dict(begun.state_dict())
    same(list(resumed), straight[3:])


class Counting(torch.utils.data.IterableDataset):
    def __init__(self):
        self.at = 0

    def __iter__(self):
        while self.at < 9:
            self.at += 1
            yield self.at

    def state_dict(self):
        return {"at": self.at}

    def load_state_dict(self, state):
        self.at = state["at"]


def test_threads_that_share_a_stateful_dataset():
    loader = FastLoader(Counting(), num_workers=2, worker_backend="thread")
    iterator = iter(loader)
    next(iterator)
    with pytest.raises(ValueError, match="ahead in a dataset that they share"):
        loader.state_dict()
    list(iterator)
    loader.state_dict()
