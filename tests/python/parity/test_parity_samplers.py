"""Samplers: the same indices, asked for at the same moments, on the same thread as with DataLoader."""

import random
import threading

import pytest
import torch
from side_by_side import Numbers, batches, generators, image, same_for_both
from torch.utils.data import (
    BatchSampler,
    DistributedSampler,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

pytestmark = pytest.mark.covering

WORKERS = pytest.mark.parametrize("workers", [0, 1])


def seed(number):
    return torch.Generator().manual_seed(number)


class Batched(Numbers):
    """Samples that are batches already, for loaders that do not collate."""

    def __getitem__(self, index):
        indices = index if isinstance(index, list) else [index]
        return torch.stack([image(each) for each in indices]), torch.tensor(indices)


# Each makes the arguments afresh: samplers and generators have state.
ARGUMENTS = {
    "sequential": lambda: {"batch_size": 3, "sampler": SequentialSampler(range(10))},
    "random": lambda: {"batch_size": 3, "sampler": RandomSampler(range(10))},
    "replacement": lambda: {
        "batch_size": 3,
        "sampler": RandomSampler(range(10), replacement=True, num_samples=40),
    },
    "more than the dataset": lambda: {"sampler": RandomSampler(range(10), num_samples=25)},
    "subset": lambda: {"batch_size": 2, "sampler": SubsetRandomSampler([9, 1, 7])},
    "weighted": lambda: {"sampler": WeightedRandomSampler([1, 2, 3], 8, generator=seed(3))},
    "distributed": lambda: {
        "batch_size": 2,
        "sampler": DistributedSampler(range(10), num_replicas=3, rank=1, seed=5),
    },
    "distributed drop_last": lambda: {
        "sampler": DistributedSampler(range(10), num_replicas=3, rank=2, drop_last=True)
    },
    "list": lambda: {"batch_size": 2, "sampler": [4, 4, 0]},
    "range": lambda: {"batch_size": 2, "sampler": range(8, 0, -3)},
    "tensor": lambda: {"batch_size": 2, "sampler": torch.tensor([3, 1, 2])},
    "generator": lambda: {"batch_size": 2, "sampler": (i * i for i in range(3))},
    "empty": lambda: {"sampler": []},
    "batches": lambda: {"batch_sampler": BatchSampler(RandomSampler(range(10)), 4, True)},
    "batches of lists": lambda: {"batch_sampler": [[1, 2], [], [5], [0, 3, 4]]},
    "batches of tuples": lambda: {"batch_sampler": [(1, 2), (5,)]},
    "batches of a generator": lambda: {"batch_sampler": ([i, i + 1] for i in range(4))},
    "batches of an iterator": lambda: {"batch_sampler": iter([[0], [2, 1]])},
    "shuffle": lambda: {"batch_size": 4, "shuffle": True, "generator": seed(6)},
    "shuffle drop_last": lambda: {"batch_size": 4, "shuffle": True, "drop_last": True},
    "larger than the dataset": lambda: {"batch_size": 64},
}


@pytest.mark.exhaustive
@WORKERS
@pytest.mark.parametrize("case", ARGUMENTS)
def test_samplers(fast, case, workers):
    def scenario(make):
        loader = make(Numbers(), num_workers=workers, **ARGUMENTS[case]())
        seen = []
        for _ in range(2):
            # A generator is used up by the first epoch: the second must end the same way.
            seen += [batches(loader), generators()]
        return seen

    same_for_both(fast, scenario)


NOT_COLLATED = {
    "plain": lambda: {},
    "shuffle": lambda: {"shuffle": True},
    "batch sampler as sampler": lambda: {
        "sampler": BatchSampler(RandomSampler(range(10)), 3, False)
    },
    "collate_fn": lambda: {"collate_fn": lambda sample: {"images": sample[0], "n": [sample[1]]}},
}


@WORKERS
@pytest.mark.parametrize("case", NOT_COLLATED)
def test_batch_size_none(fast, case, workers):
    def scenario(make):
        arguments = NOT_COLLATED[case]()
        return batches(make(Batched(), batch_size=None, num_workers=workers, **arguments))

    assert len(same_for_both(fast, scenario)) in (4, 10)


class Lazy:
    """Draws every index from the global generators when asked for it, and tells who asks and how
    often."""

    def __init__(self, count=16):
        self.count = count
        self.asked = 0
        self.threads = set()

    def __iter__(self):
        for _ in range(self.count):
            self.asked += 1
            self.threads.add(threading.get_ident())
            yield (int(torch.randint(10, ())) + random.randrange(10)) % 10

    def __len__(self):
        return self.count


@WORKERS
@pytest.mark.parametrize("factor", [1, 2, 5])
def test_a_sampler_that_draws_as_it_goes(fast, workers, factor):
    """The training loop draws from the same generators: who is asked when decides what it gets."""

    def scenario(make):
        sampler = Lazy()
        more = {"prefetch_factor": factor} if workers else {}
        loader = make(Numbers(), batch_size=2, sampler=sampler, num_workers=workers, **more)
        seen = []
        for _ in range(2):
            for batch in loader:
                seen.append((sampler.asked, batch[1].tolist(), random.random(), torch.rand(())))
            seen.append((sampler.asked, generators()))
        assert sampler.threads == {threading.get_ident()}
        return seen

    same_for_both(fast, scenario)


@WORKERS
def test_an_early_break_leaves_the_generators_alike(fast, workers):
    def scenario(make):
        loader = make(Numbers(), sampler=Lazy(), num_workers=workers)
        for number, _ in enumerate(loader):
            if number == 3:
                break
        return generators()

    same_for_both(fast, scenario)


@WORKERS
def test_a_sampler_that_learns_from_the_training_loop(fast, workers):
    class Adaptive:
        """Gives what the loop has told it last."""

        def __init__(self):
            self.next = 0

        def __iter__(self):
            for _ in range(9):
                yield self.next

    def scenario(make):
        sampler = Adaptive()
        seen = []
        for number, (_, index) in enumerate(make(Numbers(), sampler=sampler, num_workers=workers)):
            seen.append(index.item())
            sampler.next = number + 1
        return seen

    same_for_both(fast, scenario)


@WORKERS
def test_an_endless_sampler(fast, workers):
    def endless():
        while True:
            yield from range(3)

    def scenario(make):
        iterator = iter(make(Numbers(), sampler=endless(), num_workers=workers))
        return [next(iterator)[1].item() for _ in range(12)]

    assert same_for_both(fast, scenario) == [0, 1, 2] * 4


@WORKERS
@pytest.mark.parametrize("at", [0, 1, 5, 9])
def test_sampler_errors(fast, workers, at):
    """From the sampler's __next__, once and for ever; with workers it is asked ahead."""

    class Asked:
        """An iterator that can go on after its error, as a generator cannot."""

        def __init__(self, once):
            self.once = once
            self.given = -1

        def __iter__(self):
            return self

        def __next__(self):
            self.given += 1
            if self.given == at or (self.given > at and not self.once):
                raise LookupError(f"sampler lost its way at {self.given}")
            if self.given >= 10:
                raise StopIteration
            return [self.given]

    class Broken:
        def __init__(self, once):
            self.once = once

        def __iter__(self):
            return Asked(self.once)

    def scenario(make):
        seen = []
        for once in (True, False):
            loader = make(Numbers(), batch_sampler=Broken(once), num_workers=workers)
            seen += batches(loader, limit=14)
        return seen

    assert any("LookupError" in str(each) for each in same_for_both(fast, scenario))


@WORKERS
def test_errors_in_iter_and_len_of_the_sampler(fast, workers):
    class Broken:
        def __init__(self, where):
            self.where = where

        def __iter__(self):
            if self.where == "iter":
                raise KeyError("iter")
            return iter(range(3))

        def __len__(self):
            if self.where == "len":
                raise AttributeError("len")
            return 3

    def scenario(make):
        seen = []
        for where in ("iter", "len"):
            loader = make(Numbers(), sampler=Broken(where), num_workers=workers)
            try:
                seen.append(len(loader))
            except AttributeError as error:
                seen.append(str(error))
            seen += batches(loader)
        return seen

    same_for_both(fast, scenario)


def test_distributed_epochs(fast):
    def scenario(make):
        sampler = DistributedSampler(range(10), num_replicas=2, rank=0, shuffle=True, seed=4)
        loader = make(Numbers(), batch_size=2, sampler=sampler)
        seen = []
        for epoch in range(3):
            loader.sampler.set_epoch(epoch)
            seen += batches(loader)
        return seen

    same_for_both(fast, scenario)
