"""States of datasets: asked for once somebody wants them, taken at once, put back where they stay."""

import itertools
import json

import pytest
import torch
from resuming import check_resuming
from torch.utils.data import Dataset, IterableDataset

from fastloader import FastLoader
from fastloader._core.sources.python.loader_iterator import LoaderIterator
from support import Pictures, same

COUNT = 36


def rest_of(loader, received):
    iterator = iter(loader)
    list(itertools.islice(iterator, received))
    return iterator


# --- who has a state ------------------------------------------------------------------------------


class Weights(torch.nn.Module, Dataset):
    """A map dataset that happens to be a module."""

    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(()))
        self.asked = 0

    def __len__(self):
        return COUNT

    def __getitem__(self, index):
        return index, self.asked

    def state_dict(self, *args, **named):
        self.asked += 1
        return super().state_dict(*args, **named)


class OtherArguments(Dataset):
    """Methods of these names, that are something else."""

    def __len__(self):
        return COUNT

    def __getitem__(self, index):
        return index, 0

    def state_dict(self, path):
        raise AssertionError("not this state")

    def load_state_dict(self):
        raise AssertionError("not this state")


class OtherStream(OtherArguments, IterableDataset):
    def __iter__(self):
        return iter([(index, 0) for index in range(COUNT)])


class Streaming(OtherStream):
    """As MosaicML's StreamingDataset, whose own loader calls these."""

    def state_dict(self, num_samples, from_beginning):
        raise AssertionError("not this state")

    def load_state_dict(self, obj):
        raise AssertionError("not this state")


@pytest.mark.parametrize("kind", [Weights, OtherArguments, OtherStream, Streaming])
@pytest.mark.parametrize("workers", [0, 1])
def test_a_dataset_with_methods_of_these_names(kind, workers):
    loader = FastLoader(kind(), 4, num_workers=workers)
    given = [(keys.tolist(), set(asked.tolist())) for keys, asked in loader]
    assert given == [(list(range(i, i + 4)), {0}) for i in range(0, COUNT, 4)]
    # Nor is it in the way of a state, nor of going on.
    rest = rest_of(loader, 2)
    state = loader.state_dict()
    wanted = [keys.tolist() for keys, _ in rest]
    fresh = FastLoader(kind(), 4, num_workers=workers)
    fresh.load_state_dict(state)
    assert [keys.tolist() for keys, _ in fresh] == wanted and len(wanted) == 7


class Counter(Dataset):
    """A state that matters: how often it was read, and how often it was asked."""

    reads = asked = 0

    def __len__(self):
        return COUNT

    def __getitem__(self, index):
        self.reads += 1
        return index, self.reads, self.asked

    def state_dict(self):
        self.asked += 1
        return {"reads": self.reads}

    def load_state_dict(self, state):
        self.reads = state["reads"]


def numbers(batches):
    return [(keys.tolist(), reads.tolist()) for keys, reads, _ in batches]


@pytest.mark.exhaustive
@pytest.mark.parametrize("way_to_shuffle", ["default", "generator"])
@pytest.mark.parametrize("asked_before", [False, True])
def test_the_first_state_that_is_asked_for(asked_before, way_to_shuffle):
    """In the middle of an epoch whose workers were not asked, it is as good as any other."""

    def make():
        own = torch.Generator().manual_seed(3) if way_to_shuffle == "generator" else None
        return FastLoader(Counter(), 2, shuffle=True, num_workers=2, generator=own)

    torch.manual_seed(1)
    loader = make()
    if asked_before:
        loader.state_dict()
    rest = rest_of(loader, 5)
    first = json.loads(json.dumps(loader.state_dict()))
    assert bool(first["workers"]) is asked_before
    between = list(itertools.islice(rest, 7))
    second = json.loads(json.dumps(loader.state_dict()))
    assert second["workers"]  # from then on they send theirs
    wanted = list(rest)
    for state, batches in ((first, between + wanted), (second, wanted)):
        fresh = make()
        fresh.load_state_dict(state)
        got = list(fresh)
        assert numbers(got) == numbers(batches)
    # And one from a pass that has read again, from which states go on in turn.
    fresh = make()
    fresh.load_state_dict(first)
    rest = rest_of(fresh, 2)
    state = fresh.state_dict()
    assert state["batches"] == 7 and state["workers"]
    once_more = make()
    once_more.load_state_dict(state)
    assert numbers(once_more) == numbers(rest)


def test_nothing_is_read_again_that_was_asked_before(monkeypatch):
    """Persistent workers begin with the dataset as it was made, too."""
    again = []
    monkeypatch.setattr(LoaderIterator, "_fast_forward", again.append)
    options = {"num_workers": 2, "persistent_workers": True}
    loader = FastLoader(Counter(), 6, **options)
    loader.state_dict()
    for _ in range(2):
        iterator = iter(loader)
        states = [
            loader.state_dict(),
            *(loader.state_dict() for _ in iterator),
            loader.state_dict(),
        ]
        for state, left in zip(states, [6, 5, 4, 3, 2, 1, 0, 6], strict=True):
            with FastLoader(Counter(), 6, **options) as fresh:
                fresh.load_state_dict(state)
                assert len(list(fresh)) == left
    assert again == []
    loader.close()


def test_workers_that_lived_through_epochs_unasked():
    loader = FastLoader(Counter(), 2, num_workers=1, persistent_workers=True)
    list(loader)
    rest = rest_of(loader, 2)
    with pytest.warns(UserWarning, match="call state_dict\\(\\) before the first epoch"):
        state = loader.state_dict()
    wanted = [keys.tolist() for keys, *_ in rest]
    with FastLoader(Counter(), 2, num_workers=1, persistent_workers=True) as fresh:
        fresh.load_state_dict(state)
        assert [keys.tolist() for keys, *_ in fresh] == wanted
    loader.close()


# --- when it is taken -----------------------------------------------------------------------------


class Live(Counter):
    """Gives what it goes on to change, and only then lets the batch go."""

    def __init__(self):
        self.seen = []
        self.sum = torch.zeros(1 << 16, dtype=torch.int64)

    def __getitem__(self, index):
        self.seen.append(index)
        self.sum += 1
        return index, int(self.sum[-1]), 0

    def state_dict(self):
        return {"seen": self.seen, "sum": self.sum}

    def load_state_dict(self, state):
        self.seen, self.sum = state["seen"], state["sum"]


@pytest.mark.parametrize("ring", ["0", "1"])
@pytest.mark.parametrize("workers", [0, 1])
def test_a_state_is_of_its_batch_whatever_the_dataset_does_next(workers, ring, monkeypatch):
    monkeypatch.setenv("FASTLOADER_WORKER_RING", ring)
    loader = FastLoader(Live(), 2, num_workers=workers, prefetch_factor=8 if workers else None)
    loader.state_dict()
    iterator = iter(loader)
    states = []
    for _ in range(10):
        next(iterator)
        states.append(loader.state_dict())
    list(iterator)
    for number, state in enumerate(states, 1):
        own = state["workers"]["0"]["dataset"] if workers else state["dataset_state"]
        assert own["seen"] == list(range(2 * number))
        assert own["sum"].unique().tolist() == [2 * number]


class Unpicklable(Counter):
    def state_dict(self):
        return {"reads": lambda: 0}


def test_a_state_that_cannot_be_sent():
    loader = FastLoader(Unpicklable(), 2, num_workers=1)
    loader.load_state_dict({})
    assert len(list(loader)) == 18
    loader = FastLoader(Unpicklable(), 2, num_workers=1)
    loader.state_dict()
    with pytest.raises(RuntimeError, match="dataset in worker 0 cannot be pickled"):
        list(loader)


# --- before the first batch -----------------------------------------------------------------------


class MadeInIter(IterableDataset):
    def __iter__(self):
        info = torch.utils.data.get_worker_info()
        self.next = getattr(self, "begin", 0)
        step, first = (1, 0) if info is None else (info.num_workers, info.id)
        while self.next * step + first < COUNT:
            self.next += 1
            yield (self.next - 1) * step + first

    def state_dict(self):
        return {"next": self.next}

    def load_state_dict(self, state):
        self.begin = state["next"]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("received", [None, 0, 1, 3])
def test_fields_that_are_made_by_iter(workers, received):
    loader = FastLoader(MadeInIter(), 2, num_workers=workers)
    if received is None:
        state = loader.state_dict()
        wanted = list(loader)
    else:
        rest = rest_of(loader, received)
        state = loader.state_dict()
        wanted = list(rest)
    fresh = FastLoader(MadeInIter(), 2, num_workers=workers)
    fresh.load_state_dict(json.loads(json.dumps(state)))
    same(list(fresh), wanted)
    assert sum(map(len, wanted)) == COUNT - 2 * (received or 0)
    if workers:
        # The dataset of this process was never read, whatever its workers did.
        assert not loader.state_dict()["begun"]


class Broken(MadeInIter):
    def state_dict(self):
        return {"next": self.nxet}


def test_a_state_dict_that_is_broken_says_so():
    loader = FastLoader(Broken(), 2)
    next(iter(loader))
    with pytest.raises(AttributeError, match="nxet"):
        loader.state_dict()


class Reader:
    position = 0


class Around(Dataset):
    """A dataset around others: its state is theirs."""

    def __init__(self, inner):
        self.inner, self.reader = inner, Reader()

    def __len__(self):
        return COUNT

    def __getitem__(self, index):
        return index

    def load_state_dict(self, state):
        self.inner.load_state_dict(state)


class AroundOne(Around):
    def state_dict(self):
        return self.inner.state_dict()


class AroundAReader(Around):
    def state_dict(self):
        return {"at": self.reader.positoin}


class AroundNothing(Around):
    def state_dict(self):
        return {"at": None.position}


class Explicit(Around):
    def state_dict(self):
        raise AttributeError("this dataset has no state today")


@pytest.mark.parametrize(
    ("kind", "words"),
    [(AroundAReader, "positoin"), (AroundNothing, "NoneType"), (Explicit, "no state today")],
)
@pytest.mark.parametrize("begun", [False, True])
def test_a_state_dict_that_fails_is_not_one_that_has_not_begun(kind, words, begun):
    loader = FastLoader(kind(None), 2)
    iterator = iter(loader) if begun else None
    with pytest.raises(AttributeError, match=words):
        loader.state_dict()
    del iterator


def test_the_fields_of_what_a_dataset_consists_of():
    loader = FastLoader(AroundOne(MadeInIter()), 2)
    assert loader.state_dict()["dataset_state"] is None


def test_worker_threads_read_the_dataset_here():
    """Behind their epoch a state that cannot be had is no beginning."""
    loader = FastLoader(AroundOne(MadeInIter()), 2, num_workers=1, worker_backend="thread")
    assert loader.state_dict()["dataset_state"] is None
    list(loader)
    with pytest.raises(AttributeError, match="next"):
        loader.state_dict()


# --- what is restored stays -----------------------------------------------------------------------


class Noisy(IterableDataset):
    """Draws from torch's generator, and keeps that in its state: its iterator's, or its own."""

    own = False

    def __iter__(self):
        return Noise(self)


class Noise:
    def __init__(self, dataset):
        self.at = 0
        restored = getattr(dataset, "restored", None)
        if restored is not None:
            self.load_state_dict(restored)

    def __iter__(self):
        return self

    def __next__(self):
        if self.at == 8:
            raise StopIteration
        self.at += 1
        return torch.rand(())

    def state_dict(self):
        return {"at": self.at, "generator": torch.get_rng_state()}

    def load_state_dict(self, state):
        self.at = state["at"]
        torch.set_rng_state(state["generator"])


class NoisyItself(Noisy):
    """Puts it back in ``iter()``, as torchdata's datasets do."""

    def __iter__(self):
        self.noise = Noise(self)
        self.restored = None
        return iter(self.noise.__next__, None)

    def state_dict(self):
        return self.noise.state_dict()

    def load_state_dict(self, state):
        self.restored = state


@pytest.mark.parametrize("kind", [Noisy, NoisyItself])
def test_a_generator_that_the_dataset_restores_stays(kind):
    torch.manual_seed(4)
    loader = FastLoader(kind(), 2)
    rest = rest_of(loader, 1)
    state = loader.state_dict()
    wanted = list(rest)
    torch.manual_seed(5)
    fresh = FastLoader(kind(), 2)
    fresh.load_state_dict(state)
    iterator = iter(fresh)
    assert torch.equal(torch.get_rng_state(), state_of(state))
    same(list(iterator), wanted)


def state_of(state):
    return (state["iterator_state"] or state["dataset_state"])["generator"]


def test_the_users_generator_is_left_alone_by_any_other():
    class Plain(Noisy):
        def __iter__(self):
            return iter([torch.zeros(())] * 8)

    loader = FastLoader(Plain(), 2)
    next(iter(loader))
    state = loader.state_dict()
    fresh = FastLoader(Plain(), 2)
    fresh.load_state_dict(state)
    before = torch.get_rng_state()
    assert len(list(fresh)) == 3
    assert torch.equal(torch.get_rng_state(), before)


# --- goes on, with any workers ------------------------------------------------------------------


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
