"""state_dict() and load_state_dict(): the batches that would have followed, to the bit, whatever the
order comes from, and nothing of the dataset touched for what the loop had received."""

import itertools
import random

import pytest
import torch
from pictures import plain_folder
from resuming import COUNT, NORMALISED, check_resuming, through_json
from torch.utils.data import (
    BatchSampler,
    Dataset,
    DistributedSampler,
    RandomSampler,
    Sampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

from fastloader import FastLoader
from fastloader import transforms as T
from fastloader.datasets import ImageFolder
from support import Pictures, generator, labels

pytestmark = pytest.mark.covering


class Shuffled(Sampler):
    """Draws in ``__iter__`` itself, from torch's global generator."""

    def __iter__(self):
        return iter(torch.randperm(COUNT).tolist())

    def __len__(self):
        return COUNT


class Batches(Sampler):
    """Batches of different sizes, from a generator of its own."""

    def __init__(self, seed):
        self.generator = generator(seed)

    def __iter__(self):
        keys = torch.randperm(COUNT, generator=self.generator).tolist()
        return iter([keys[:3], keys[3:4], keys[4:9], keys[9:]])

    def __len__(self):
        return 4


# Each makes fresh arguments: samplers and generators have state.
CASES = {
    "sequential": lambda: {"batch_size": 3},
    "one": lambda: {},
    "drop_last": lambda: {"batch_size": 3, "drop_last": True, "shuffle": True},
    "shuffle": lambda: {"batch_size": 3, "shuffle": True},
    "generator": lambda: {"batch_size": 3, "shuffle": True, "generator": generator(5)},
    "sequential, generator": lambda: {"batch_size": 3, "generator": generator(5)},
    "subset": lambda: {"batch_size": 2, "sampler": SubsetRandomSampler([1, 3, 5, 7, 9])},
    "two generators": lambda: {
        "batch_size": 2,
        "sampler": SubsetRandomSampler([1, 3, 5, 7, 9], generator(6)),
        "generator": generator(7),
    },
    "weighted": lambda: {"batch_size": 4, "sampler": WeightedRandomSampler([1.0] * COUNT, 13)},
    "replacement": lambda: {
        "batch_size": 30,
        "sampler": RandomSampler(range(COUNT), True, 100, generator(8)),
    },
    "replacement, global": lambda: {
        "batch_size": 30,
        "sampler": RandomSampler(range(COUNT), True, 100),
    },
    "draws in iter": lambda: {"batch_size": 3, "sampler": Shuffled()},
    "no batches": lambda: {"batch_size": None, "shuffle": True},
    "no batches, draws in iter": lambda: {"batch_size": None, "sampler": Shuffled()},
    "batch_sampler": lambda: {"batch_sampler": BatchSampler(RandomSampler(range(COUNT)), 4, False)},
    "own batch_sampler": lambda: {"batch_sampler": Batches(9)},
    "list of batches": lambda: {"batch_sampler": [[1, 2], [5], [0, 3, 4], [3]]},
    "distributed": lambda: {
        "batch_size": 2,
        "sampler": DistributedSampler(range(COUNT), num_replicas=2, rank=1),
    },
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("received", [0, 1, 2, "all", None])
def test_every_sampler_everywhere(case, received):
    def make():
        return FastLoader(Pictures(COUNT), **CASES[case]())

    if received == "all":
        received = len(make())
    torch.manual_seed(1)
    check_resuming(make, received)


@pytest.mark.exhaustive
@pytest.mark.parametrize("case", ["shuffle", "generator", "draws in iter", "own batch_sampler"])
def test_with_workers_on_every_path(way, case):
    torch.manual_seed(2)
    check_resuming(
        lambda: FastLoader(
            Pictures(COUNT), num_workers=2, **CASES[case](), **way.options, **NORMALISED
        ),
        2,
    )


@pytest.mark.parametrize("received", [1, 4])
def test_on_every_path(way, received):
    torch.manual_seed(3)
    check_resuming(
        lambda: FastLoader(Pictures(COUNT), 3, shuffle=True, **way.options, **NORMALISED), received
    )


@pytest.mark.parametrize("received", [0, 2])
@pytest.mark.parametrize("before, after", [(0, 2), (2, 0), (1, 3)])
def test_the_number_of_workers_may_change(before, after, received):
    """Before the first batch, too, when only workers have been given their indices."""

    def make(workers):
        return lambda: FastLoader(Pictures(COUNT), 2, shuffle=True, num_workers=workers)

    torch.manual_seed(4)
    check_resuming(make(before), received, make(after))


def test_persistent_workers():
    def make():
        return FastLoader(
            Pictures(COUNT), 3, shuffle=True, generator=generator(3), num_workers=2,
            persistent_workers=True,
        )  # fmt: skip

    state = check_resuming(make, 2)
    # Also into a loader whose workers live already.
    loader, fresh = make(), make()
    loader.load_state_dict(state)
    wanted = labels(loader)
    next(iter(fresh))
    fresh.load_state_dict(state)
    assert labels(fresh) == wanted and len(wanted) == 2


@pytest.mark.parametrize("workers", [0, 2])
def test_counts_what_was_received_not_what_was_prefetched(way, workers):
    loader = FastLoader(Pictures(40), 2, num_workers=workers, **way.options, **NORMALISED)
    iterator = iter(loader)
    for received in range(4):
        state = loader.state_dict()
        assert (state["batches"], state["samples"]) == (received, 2 * received)
        next(iterator)


class Guarded(Dataset):
    """Refuses what it has given before."""

    def __init__(self, given=()):
        self.given = set(given)

    def __len__(self):
        return COUNT

    def __getitem__(self, index):
        assert index not in self.given, f"sample {index} was read again"
        return index


@pytest.mark.parametrize("workers", [0, 2])
def test_the_dataset_is_not_touched_for_what_was_received(workers):
    loader = FastLoader(Guarded(), 2, shuffle=True)
    iterator = iter(loader)
    given = [int(index) for _ in range(3) for index in next(iterator)]
    fresh = FastLoader(Guarded(given), 2, shuffle=True, num_workers=workers)
    fresh.load_state_dict(loader.state_dict())
    rest = [int(index) for batch in fresh for index in batch]
    assert sorted(given + rest) == list(range(COUNT))


def test_another_batch_size_goes_on_at_the_same_sample():
    torch.manual_seed(5)
    loader = FastLoader(Pictures(COUNT), 3, shuffle=True)
    iterator = iter(loader)
    next(iterator)
    state = loader.state_dict()
    rest = [index for _, batch in iterator for index in batch.tolist()]
    fresh = FastLoader(Pictures(COUNT), 2, shuffle=True)
    fresh.load_state_dict(state)
    assert labels(fresh) == [rest[i : i + 2] for i in range(0, len(rest), 2)]


def test_paths_that_draw_in_their_own_way():
    """As tensors, for instance: what is counted, saved and drawn again is the same."""

    def as_tensors(sampler):
        return map(torch.tensor, sampler)

    def make(draw):
        loader = FastLoader(Pictures(COUNT), 3, shuffle=True)
        with loader._runtime.position.begin(loader):
            return loader, loader._index_sampler.iterate(draw)

    torch.manual_seed(12)
    loader, indices = make(as_tensors)
    for _ in range(2):
        last = next(indices)
        loader._runtime.position.current.delivered()
    state = loader.state_dict()
    assert (state["batches"], state["samples"], state["last"]) == (2, 6, int(last[-1]))
    fresh = FastLoader(Pictures(COUNT), 3, shuffle=True)
    fresh.load_state_dict(through_json(state))
    assert labels(fresh) == [batch.tolist() for batch in indices]


# --- pictures -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def crops(tmp_path_factory):
    root = plain_folder(tmp_path_factory.mktemp("resume"), COUNT, classes=COUNT)
    return ImageFolder(str(root), T.Compose([T.RandomResizedCrop(12), T.RandomHorizontalFlip()]))


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ["cpu", "twin", "streams"])
@pytest.mark.parametrize("case", ["shuffle", "generator", "weighted", "own batch_sampler"])
def test_pictures_to_the_bit_with_any_number_of_threads(crops, enter_way, name, case):
    way = enter_way(name)

    def make(threads):
        return lambda: FastLoader(
            crops, num_workers=threads, **CASES[case](), **way.options, **NORMALISED
        )

    torch.manual_seed(9)
    assert "native images" in make(1)().plan()
    for received in (0, 1, 2, None):
        check_resuming(make(1), received, make(3))


def test_pictures_with_persistent_workers(crops):
    """As many seeds are drawn as with torch's persistent workers: one."""

    def make():
        options = {"persistent_workers": True, "generator": generator(4), "shuffle": True}
        return FastLoader(crops, 3, num_workers=2, **options, **NORMALISED)

    torch.manual_seed(11)
    for received in (0, 2, None):
        check_resuming(make, received, epochs_before=2)


# --- what has a state of its own ----------------------------------------------------------------


class OwnState(Sampler):
    """Draws from Python's generator, which only its own state can bring back."""

    def __init__(self):
        self.keys, self.next = [], 0

    def __iter__(self):
        if self.next in (0, len(self.keys)):
            self.keys, self.next = random.sample(range(COUNT), COUNT), 0
        while self.next < len(self.keys):
            self.next += 1
            yield self.keys[self.next - 1]

    def __len__(self):
        return COUNT

    def state_dict(self):
        return {"keys": list(self.keys), "next": self.next}

    def load_state_dict(self, state):
        self.keys, self.next = list(state["keys"]), state["next"]


class OwnBatches(OwnState):
    def __iter__(self):
        keys = super().__iter__()
        while batch := list(itertools.islice(keys, 3)):
            yield batch

    def __len__(self):
        return 4


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("kind", ["sampler", "batch_sampler"])
def test_samplers_with_a_state(workers, kind):
    def make():
        options = {"sampler": OwnState(), "batch_size": 3}
        if kind == "batch_sampler":
            options = {"batch_sampler": OwnBatches()}
        return FastLoader(Pictures(COUNT), num_workers=workers, **options)

    for received in (1, 3):
        loader = make()
        iterator = iter(loader)
        list(itertools.islice(iterator, received))
        state = through_json(loader.state_dict())
        wanted = labels(iterator)
        fresh = make()
        fresh.load_state_dict(state)
        assert labels(fresh) == wanted and sum(map(len, wanted)) == COUNT - 3 * received


class AsTorchdata(DistributedSampler):
    """torchdata's StatefulDistributedSampler: its state at the end of an epoch skips all of the next."""

    yielded, skip = 0, None

    def __iter__(self):
        self.yielded, self.skip = self.skip or 0, None
        for key in itertools.islice(super().__iter__(), self.yielded, None):
            self.yielded += 1
            yield key

    def state_dict(self):
        return {"yielded": self.yielded, "epoch": self.epoch}

    def load_state_dict(self, state):
        self.skip = state["yielded"]
        self.set_epoch(state["epoch"])


@pytest.mark.exhaustive
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("received", [0, 1, 2, None])
def test_torchdatas_distributed_sampler(workers, received):
    check_resuming(
        lambda: FastLoader(
            Pictures(COUNT), 2, sampler=AsTorchdata(range(COUNT), 2, 0), num_workers=workers
        ),
        received,
    )
