"""The order of samples is torch's, draw for draw, and so is what iterating does to the user's RNG."""

import random

import pytest
import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

from fastloader import FastLoader
from support import MEAN, STD, Pictures, Stream, labels

pytestmark = pytest.mark.covering

NORMALISED = {"mean": MEAN, "std": STD}


def generator(seed):
    return torch.Generator().manual_seed(seed)


# Each makes fresh (dataset, arguments): samplers and generators have state.
CASES = {
    "sequential": lambda: (Pictures(11), {"batch_size": 3}),
    "drop_last": lambda: (Pictures(11), {"batch_size": 3, "drop_last": True}),
    "shuffle": lambda: (Pictures(11), {"batch_size": 3, "shuffle": True}),
    "generator": lambda: (
        Pictures(11),
        {"batch_size": 3, "shuffle": True, "generator": generator(5)},
    ),
    "sampler": lambda: (
        Pictures(11),
        {"batch_size": 2, "sampler": SubsetRandomSampler([1, 3, 5, 7, 9], generator(6))},
    ),
    "weighted": lambda: (
        Pictures(11),
        {"batch_size": 4, "sampler": WeightedRandomSampler([1.0] * 11, 13, generator=generator(7))},
    ),
    "batch_sampler": lambda: (
        Pictures(11),
        {"batch_sampler": BatchSampler(RandomSampler(range(11)), 4, False)},
    ),
    "batch_sampler list": lambda: (Pictures(11), {"batch_sampler": [[1, 2], [5], [0, 3, 4]]}),
    "iterable": lambda: (Stream(11), {"batch_size": 3}),
    "iterable drop_last": lambda: (Stream(11), {"batch_size": 2, "drop_last": True}),
}


def observe(loader, epochs=2):
    """What the user can see: labels, and the states of all generators after each epoch."""
    seen = []
    for _ in range(epochs):
        seen.append(labels(loader))
        seen.append(torch.get_rng_state().tolist())
        seen.append(random.getstate())
    return seen


@pytest.mark.exhaustive
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("workers", [0, 2])
def test_same_order_and_same_draws(way, case, workers):
    seen = []
    for kind, extra in ((DataLoader, {}), (FastLoader, {**way.options, **NORMALISED})):
        dataset, arguments = CASES[case]()
        torch.manual_seed(1)
        random.seed(1)
        loader = kind(dataset, num_workers=workers, **arguments, **extra)
        assert torch.equal(torch.get_rng_state(), torch.manual_seed(1).get_state())
        seen.append(observe(loader))
    assert seen[0] == seen[1]


def test_persistent_workers_keep_the_order(way):
    seen = []
    for kind, extra in ((DataLoader, {}), (FastLoader, {**way.options, **NORMALISED})):
        torch.manual_seed(2)
        options = {"batch_size": 3, "shuffle": True, "num_workers": 2, "persistent_workers": True}
        loader = kind(Pictures(11), **options, **extra)
        seen.append(observe(loader, epochs=3))
        del loader
    assert seen[0] == seen[1]


class Augmented(Pictures):
    """Draws from the global generator for every sample, as random augmentation does."""

    def __getitem__(self, index):
        return self.images[index], torch.randint(1000, ()) + 0 * index


@pytest.mark.parametrize("workers", [0, 2])
def test_draws_of_the_dataset(way, workers):
    seen = []
    for kind, extra in ((DataLoader, {}), (FastLoader, {**way.options, **NORMALISED})):
        torch.manual_seed(3)
        loader = kind(Augmented(9), batch_size=2, shuffle=True, num_workers=workers, **extra)
        drawn = []
        for batch in loader:
            # The training loop draws as well: look-ahead on this thread would show.
            drawn.append((batch[1].tolist(), torch.rand(()).item()))
        seen.append(drawn)
    assert seen[0] == seen[1]


@pytest.mark.parametrize("workers", [0, 2])
def test_nothing_is_drawn_before_iter(way, workers):
    torch.manual_seed(4)
    before = torch.get_rng_state()
    loader = FastLoader(Pictures(), shuffle=True, num_workers=workers, **way.options, **NORMALISED)
    assert torch.equal(torch.get_rng_state(), before)
    len(loader), repr(loader), loader.stats()
    assert torch.equal(torch.get_rng_state(), before)


def test_without_workers_the_dataset_runs_on_the_callers_thread_batch_by_batch(way):
    import threading

    ran = []

    class Watched(Pictures):
        def __getitem__(self, index):
            ran.append((index, threading.get_ident()))
            return super().__getitem__(index)

    loader = FastLoader(Watched(6), batch_size=2, **way.options, **NORMALISED)
    for number, _ in enumerate(loader, 1):
        assert ran == [(index, threading.get_ident()) for index in range(2 * number)]


@pytest.mark.parametrize("case", [name for name in CASES if "iterable" not in name])
def test_len(way, case):
    dataset, arguments = CASES[case]()
    loader = FastLoader(dataset, **arguments, **way.options, **NORMALISED)
    assert len(loader) == len(DataLoader(dataset, **arguments))
    assert len(iter(loader)) == len(loader)
    assert len(list(loader)) == len(loader)


def test_len_of_an_iterable_dataset_without_one(way):
    loader = FastLoader(Stream(), **way.options, **NORMALISED)
    with pytest.raises(TypeError):
        len(loader)
    assert len(list(loader)) == 12


def test_batch_size_none(way):
    """No collation: the samples themselves, here without normalising."""
    loader = FastLoader(
        Pictures(4), batch_size=None, sampler=SequentialSampler(range(4)), **way.options
    )
    plain = DataLoader(Pictures(4), batch_size=None)
    for (image, label), (wanted, wanted_label) in zip(loader, plain, strict=True):
        assert torch.equal(image, wanted) and label == wanted_label


def test_workers_see_the_same_worker_info(way):
    def who(_batch):
        info = torch.utils.data.get_worker_info()
        return torch.tensor([info.id, info.num_workers, info.seed % (1 << 62)])

    seen = []
    for kind, extra in ((DataLoader, {}), (FastLoader, way.options)):
        torch.manual_seed(5)
        loader = kind(Pictures(8), batch_size=2, num_workers=2, collate_fn=who, **extra)
        seen.append([each.tolist() for each in loader])
    assert seen[0] == seen[1]
