"""state_dict() and load_state_dict(): the batches that would have followed, to the bit, wherever the
loop stopped, and nothing of the dataset touched for what it had received."""

import itertools
import json
import pickle
import random

import pytest
import torch
from pictures import plain_folder
from side_by_side import since_2_6
from torch.utils.data import (
    BatchSampler,
    Dataset,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    Sampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

from fastloader import Error, FastLoader
from fastloader import transforms as T
from fastloader.datasets import ImageFolder
from support import MEAN, STD, Pictures, Stream, labels, same

NORMALISED = {"mean": MEAN, "std": STD}
COUNT = 11


def generator(seed):
    return torch.Generator().manual_seed(seed)


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


def through_json(state):
    assert pickle.loads(pickle.dumps(state)) == state
    return json.loads(json.dumps(state))


def check_resuming(make, received, make_other=None, epochs_before=1, state_of_user=True):
    """Runs a loader for ``epochs_before`` epochs and ``received`` batches, None for up to the end, and
    compares what then follows, over two epochs, with what a fresh one gives from the state."""
    loader = make()
    for _ in range(epochs_before):
        list(loader)
    if received is None:
        list(loader)
        iterator = iter(())
    else:
        iterator = iter(loader)
        list(itertools.islice(iterator, received))
    state, users = through_json(loader.state_dict()), torch.get_rng_state()
    wanted = [list(iterator), torch.get_rng_state(), list(loader), torch.get_rng_state()]
    # The fresh process has drawn other numbers by then, and set the user's generator back.
    torch.manual_seed(random.randrange(1 << 30))
    fresh = (make_other or make)()
    fresh.load_state_dict(state)
    if state_of_user:
        torch.set_rng_state(users)
    again = fresh.state_dict()
    assert again == state
    got = [[] if received is None else list(fresh), torch.get_rng_state()]
    got += [list(fresh), torch.get_rng_state()]
    same(got, wanted)
    if loader.generator is not None:
        assert torch.equal(fresh.generator.get_state(), loader.generator.get_state())
    return state


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("received", [0, 1, 2, "all", None])
def test_every_sampler_everywhere(case, received):
    def make():
        return FastLoader(Pictures(COUNT), **CASES[case]())

    if received == "all":
        received = len(make())
    torch.manual_seed(1)
    check_resuming(make, received)


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
        loader._runtime.position.current.handed()
    state = loader.state_dict()
    assert (state["batches"], state["samples"], state["last"]) == (2, 6, int(last[-1]))
    fresh = FastLoader(Pictures(COUNT), 3, shuffle=True)
    fresh.load_state_dict(through_json(state))
    assert labels(fresh) == [batch.tolist() for batch in indices]


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


# --- pictures -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def crops(tmp_path_factory):
    root = plain_folder(tmp_path_factory.mktemp("resume"), COUNT, classes=COUNT)
    return ImageFolder(str(root), T.Compose([T.RandomResizedCrop(12), T.RandomHorizontalFlip()]))


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


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("received", [0, 1, 2, None])
def test_torchdatas_distributed_sampler(workers, received):
    check_resuming(
        lambda: FastLoader(
            Pictures(COUNT), 2, sampler=AsTorchdata(range(COUNT), 2, 0), num_workers=workers
        ),
        received,
    )


class Counter(IterableDataset):
    """Numbers, split over workers; counts how many it made."""

    def __init__(self, count=20):
        self.count, self.next = count, 0

    def keys(self):
        info = torch.utils.data.get_worker_info()
        step, first = (1, 0) if info is None else (info.num_workers, info.id)
        return range(first, self.count, step)

    def __iter__(self):
        keys = self.keys()
        while self.next < len(keys):
            self.next += 1
            yield keys[self.next - 1]
        self.next = 0


class StatefulCounter(Counter):
    def state_dict(self):
        return {"next": self.next}

    def load_state_dict(self, state):
        self.next = state["next"]


class OwnIterator(StatefulCounter):
    """Is its own iterator; ``iter`` begins anew, and only then a state can be loaded."""

    def __iter__(self):
        self.next = 0
        return self

    def __next__(self):
        keys = self.keys()
        if self.next == len(keys):
            raise StopIteration
        self.next += 1
        return keys[self.next - 1]


class IteratorState(Counter):
    """Only the iterator has a state."""

    def __iter__(self):
        made = OwnIterator(self.count)
        return iter(made)


DATASETS = [Counter, StatefulCounter, OwnIterator, IteratorState]


@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("kind", DATASETS)
@pytest.mark.parametrize("workers", [0, 3])
def test_iterable_datasets(kind, workers, persistent):
    if persistent and not workers:
        return

    def make():
        return FastLoader(kind(), 3, num_workers=workers, persistent_workers=persistent)

    for received in (1, 4, None):
        check_resuming(make, received, epochs_before=0)


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_workers_that_are_not_forked(method):
    def make():
        return FastLoader(StatefulCounter(), 3, num_workers=2, multiprocessing_context=method)

    check_resuming(make, 3, epochs_before=0)


class Seeded(IterableDataset):
    """An order of its own in every worker, from the seed that torch gives it."""

    def __iter__(self):
        info = torch.utils.data.get_worker_info()
        yield from random.Random(info.seed).sample(range(info.id, 20, info.num_workers), 10)


def test_worker_seeds_are_those_of_the_epoch():
    check_resuming(lambda: FastLoader(Seeded(), 2, num_workers=2), 3)


def test_a_dataset_with_a_state_is_not_read_again():
    made = []

    class Watched(StatefulCounter):
        def __iter__(self):
            for number in super().__iter__():
                made.append(number)
                yield number

    loader = FastLoader(Watched(), 4)
    iterator = iter(loader)
    next(iterator), next(iterator)
    state = loader.state_dict()
    made.clear()
    fresh = FastLoader(Watched(), 4)
    fresh.load_state_dict(state)
    assert [batch.tolist() for batch in fresh] == [
        [8, 9, 10, 11],
        [12, 13, 14, 15],
        [16, 17, 18, 19],
    ]
    assert made == list(range(8, 20))


@pytest.mark.parametrize("workers", [0, 2])
def test_iterable_datasets_on_every_path(way, workers):
    check_resuming(
        lambda: FastLoader(Stream(13), 3, num_workers=workers, **way.options, **NORMALISED), 2
    )


class StatefulMap(Pictures):
    """A map dataset with a state: how often it was read."""

    reads = 0

    def __getitem__(self, index):
        self.reads += 1
        return self.images[index], self.reads

    def state_dict(self):
        return {"reads": self.reads}

    def load_state_dict(self, state):
        self.reads = state["reads"]


@pytest.mark.parametrize("workers", [0, 2])
def test_map_datasets_with_a_state(workers):
    check_resuming(lambda: FastLoader(StatefulMap(12), 2, num_workers=workers), 3, epochs_before=0)


# --- refusals -----------------------------------------------------------------------------------


def mid_epoch(**options):
    loader = FastLoader(Pictures(COUNT), **{"batch_size": 2, "shuffle": True, **options})
    next(iter(loader))
    return loader.state_dict()


@pytest.mark.parametrize(
    "change, message",
    [
        ({"fastloader": 99}, "version 99, this fastloader reads 1"),
        ({"dataset_length": 12}, "dataset_length is 12, this loader's is 11"),
        (
            {"sampler": "BatchSampler of Mine"},
            "BatchSampler of Mine.*BatchSampler of RandomSampler",
        ),
        ({"sampler_length": 7}, "sampler_length is 7"),
        ({"generators": ["x"]}, "1 generators"),
        ({"dataset_state": {}}, "dataset has no load_state_dict"),
    ],
)
def test_states_that_do_not_fit(change, message):
    state = {**mid_epoch(), **change}
    with pytest.raises(ValueError, match=message):
        FastLoader(Pictures(COUNT), 2, shuffle=True).load_state_dict(state)


def test_what_is_no_state():
    loader = FastLoader(Pictures(COUNT), 2)
    with pytest.raises(ValueError, match=r"not a state of FastLoader.*_num_yielded"):
        loader.load_state_dict({"_num_yielded": 3})
    with pytest.raises(TypeError, match="got list"):
        loader.load_state_dict([])
    loader.load_state_dict({})
    assert len(labels(loader)) == 6


def test_another_sampler_or_dataset():
    with pytest.raises(ValueError, match=r"RandomSampler.*SequentialSampler"):
        FastLoader(Pictures(COUNT), 2).load_state_dict(mid_epoch())
    with pytest.raises(ValueError, match="dataset_length is 11, this loader's is 12"):
        FastLoader(Pictures(12), 2, shuffle=True).load_state_dict(mid_epoch())


@pytest.mark.parametrize("workers", [0, 2])
def test_an_iterator_begun_before_the_state_was_loaded(way, workers):
    state = mid_epoch()
    loader = FastLoader(
        Pictures(COUNT), 2, shuffle=True, num_workers=workers, **way.options, **NORMALISED
    )
    iterator = iter(loader)
    loader.load_state_dict(state)
    with pytest.raises(RuntimeError, match="call iter"):
        next(iterator)
    assert len(list(loader)) == 5


class Unseeded(Sampler):
    def __iter__(self):
        return iter(random.sample(range(COUNT), COUNT))

    def __len__(self):
        return COUNT


@pytest.mark.parametrize("workers", [0, 2])
def test_a_sampler_whose_order_cannot_be_drawn_again(way, workers):
    def make():
        return FastLoader(
            Pictures(COUNT), 2, sampler=Unseeded(), num_workers=workers, **way.options, **NORMALISED
        )

    random.seed(1)
    loader = make()
    iterator = iter(loader)
    next(iterator), next(iterator)
    state = loader.state_dict()
    fresh = make()
    fresh.load_state_dict(state)
    random.seed(2)
    with pytest.raises(Error, match="does not give the order"):
        list(fresh)
    # Seeded by the user as it was then, it is the same order.
    fresh.load_state_dict(state)
    random.seed(1)
    assert labels(fresh) == labels(iterator)


@pytest.mark.skipif(not since_2_6, reason="torch has no in_order")
def test_in_order_false():
    loader = FastLoader(Pictures(COUNT), 2, num_workers=2, in_order=False)
    assert not loader.state_dict()["begun"]
    iterator = iter(loader)
    next(iterator)
    assert loader.state_dict()["begun"]
    list(iterator)
    assert not loader.state_dict()["begun"]


def test_iterable_datasets_need_the_same_workers():
    loader = FastLoader(Counter(), 2, num_workers=2)
    next(iter(loader))
    state = loader.state_dict()
    with pytest.raises(ValueError, match="num_workers=2, this loader has 0"):
        FastLoader(Counter(), 2).load_state_dict(state)


def test_an_iterable_dataset_that_became_shorter():
    loader = FastLoader(Counter(20), 2)
    list(itertools.islice(iter(loader), 7))
    fresh = FastLoader(Counter(6), 2)
    fresh.load_state_dict(loader.state_dict())
    with pytest.raises(Error, match="ended after 3 batches, the state was saved after 7"):
        iter(fresh)


# --- epochs -------------------------------------------------------------------------------------


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
