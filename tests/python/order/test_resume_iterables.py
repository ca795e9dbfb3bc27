"""Iterable datasets with a state: what comes after each batch, each error and the end."""

import io
import itertools
import random

import pytest
import torch
from resuming import NORMALISED, check_resuming
from torch.utils.data import IterableDataset

from fastloader import Error, FastLoader
from support import Stream

pytestmark = pytest.mark.covering

COUNT = 5


class Again(IterableDataset):
    """Its own iterator, which begins anew when it has ended, and goes on behind what fails."""

    def __init__(self, bad=()):
        self.bad, self.at = bad, 0

    def __iter__(self):
        return self

    def __next__(self):
        if self.at == COUNT:
            self.at = 0
            raise StopIteration
        self.at += 1
        if self.at - 1 in self.bad:
            raise ValueError(f"sample {self.at - 1}")
        info = torch.utils.data.get_worker_info()
        return torch.tensor((self.at - 1) * 10 + (0 if info is None else info.id))

    def state_dict(self):
        return {"at": self.at}

    def load_state_dict(self, state):
        self.at = state["at"]


class OfTheDataset(Again):
    """The state is the dataset's, of an iterator without one."""

    def __iter__(self):
        return iter(lambda: next(self.given()), None)

    def given(self):
        return map(lambda _: Again.__next__(self), [0])


class OfTheIterator(IterableDataset):
    def __init__(self, bad=()):
        self.bad = bad
        self.last = Again(bad)  # one for life

    def __iter__(self):
        return self.last


def given(iterator, most=20):
    """Batches, and the kinds and messages of errors, to the end."""
    seen = []
    while len(seen) < most:
        try:
            seen.append(next(iterator).tolist())
        except StopIteration:
            return seen
        except ValueError as error:
            seen.append((type(error), str(error).splitlines()[-1]))
    raise AssertionError("it does not end")


@pytest.mark.exhaustive
@pytest.mark.parametrize("kind", [Again, OfTheDataset, OfTheIterator])
@pytest.mark.parametrize("bad", [(), (0, 3)])
@pytest.mark.parametrize("options", [{"batch_size": 2}, {"batch_size": None}, {"drop_last": True}])
@pytest.mark.parametrize("workers", [0, 2])
def test_each_place_of_an_epoch(kind, bad, options, workers):
    options = {"batch_size": 2, "num_workers": workers, **options}

    def make():
        return FastLoader(kind(bad), **options)

    loader = make()
    loader.state_dict()  # from now on workers send theirs
    iterator, states, straight = iter(loader), [loader.state_dict()], []
    while True:
        try:
            straight.append(next(iterator).tolist())
        except StopIteration:
            break
        except ValueError as error:
            straight.append((type(error), str(error).splitlines()[-1]))
        states.append(loader.state_dict())
    plain = torch.utils.data.DataLoader(kind(bad), **options)
    assert straight == given(iter(plain))
    for done, state in enumerate(states):
        fresh = make()
        fresh.load_state_dict(saved(state))
        assert given(iter(fresh)) == straight[done:], done
        if done % 4 == 3:
            assert given(iter(fresh)) == straight, done  # the next epoch


def saved(state):
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


def test_in_a_row():
    """A state from a run that went on from one, behind an error and behind the end of a worker."""
    straight, state = [], None
    for _ in range(20):
        loader = FastLoader(Again((3,)), 2, num_workers=2)
        loader.load_state_dict(state or {})
        loader.state_dict()
        iterator = iter(loader)
        try:
            straight.append(next(iterator).tolist())
        except StopIteration:
            break
        except ValueError:
            straight.append("error")
        state = loader.state_dict()
    assert straight == [[0, 10], [1, 11], "error", "error", [40], [41]]


# --- a state_dict() that fails --------------------------------------------------------------------


class Fails(Again):
    """Its state cannot be had at the place named, a number or the end."""

    def __init__(self, place, bad=()):
        super().__init__(bad)
        self.place = place

    def state_dict(self):
        if self.at == self.place:
            raise OSError("no more room")
        return super().state_dict()


@pytest.mark.parametrize("ring", [True, False])
@pytest.mark.parametrize("batch_size", [1, None])
def test_at_the_end_in_a_worker(way, ring, batch_size, monkeypatch):
    if not ring:
        monkeypatch.setenv("FASTLOADER_WORKER_RING", "0")
    options = {"batch_size": batch_size, "num_workers": 2, "persistent_workers": True}
    with FastLoader(Fails(0), **options, **way.options) as loader:
        loader._runtime.position.asked = True
        for _ in range(2):  # the worker lives on
            iterator, seen, errors = iter(loader), [], []
            while True:
                try:
                    seen.append(int(next(iterator)))
                except StopIteration:
                    break
                except Error as error:
                    errors.append((len(seen), str(error)))
            assert seen == [at * 10 + worker for at in range(COUNT) for worker in (0, 1)]
            assert [place for place, _ in errors] == [2 * COUNT, 2 * COUNT]  # in order
            for worker, (_, text) in enumerate(errors):
                assert (
                    f"state_dict() of the dataset's iterator in worker {worker} failed at the end of "
                    "its data: OSError: no more room" in text
                )


def test_behind_a_batch_and_behind_an_error():
    loader = FastLoader(Fails(2), 1, num_workers=1)
    loader._runtime.position.asked = True
    iterator = iter(loader)
    assert next(iterator).tolist() == [0]
    with pytest.raises(Error, match="iterator in worker 0 failed behind a batch: OSError"):
        next(iterator)
    assert [batch.tolist() for batch in iterator] == [[20], [30], [40]]
    # The dataset's own error is the one to tell.
    loader = FastLoader(Fails(2, bad=(1,)), 1, num_workers=1)
    loader._runtime.position.asked = True
    iterator = iter(loader)
    next(iterator)
    with pytest.raises(ValueError, match="sample 1"):
        next(iterator)
    assert len(list(itertools.islice(iterator, 9))) == 3


# --- whatever the number of workers -------------------------------------------------------------


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


@pytest.mark.exhaustive
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


@pytest.mark.processes
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


@pytest.mark.parametrize(("workers", "persistent"), [(0, False), (2, False), (2, True)])
@pytest.mark.parametrize("shuffled", [False, True])
def test_hugging_faces_begins_later_epochs_at_the_beginning(shuffled, workers, persistent):
    """Its iter() begins at the state that was loaded, each time. One with a shuffle buffer is read
    again: its state does not have what lies in there."""
    datasets = pytest.importorskip("datasets")

    def make():
        whole = datasets.Dataset.from_dict({"x": list(range(23))})
        data = whole.to_iterable_dataset(num_shards=4)
        data = data.shuffle(seed=3, buffer_size=5) if shuffled else data
        return FastLoader(data, 4, num_workers=workers, persistent_workers=persistent)

    def numbers(batches):
        return [batch["x"].tolist() for batch in batches]

    # None: behind the end of an epoch.
    for epochs, received in ((0, 2), (1, 3), (1, 0), (1, None)):
        loader = make()
        loader.state_dict()
        for _ in range(epochs):
            list(loader)
        iterator = iter(loader) if received is not None else iter(())
        for _ in range(received or 0):
            next(iterator)
        state = saved(loader.state_dict())
        wanted = [] if received is None else [numbers(iterator)]
        wanted += [numbers(loader) for _ in range(2)]
        assert sorted(itertools.chain(*wanted[-1])) == list(range(23))
        fresh = make()
        fresh.load_state_dict(state)
        assert [numbers(fresh) for _ in wanted] == wanted


# --- refusals -----------------------------------------------------------------------------------


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
