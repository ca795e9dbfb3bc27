"""Beginning epochs and saving states where it is easy to get wrong: two threads at once, epochs
without a batch, copies of a loader."""

import copy
import io
import json
import pickle
import threading
import zlib

import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils.data import DataLoader, RandomSampler, Sampler, TensorDataset

from fastloader import Error, FastLoader
from fastloader._core.order.generators import decoded
from support import MEAN, STD, Pictures, labels

pytestmark = pytest.mark.covering

COUNT = 11


def generator(seed):
    return torch.Generator().manual_seed(seed)


# --- two threads ----------------------------------------------------------------------------------


class Gate(Sampler):
    """Batches whose first ``__iter__`` waits until it is let through."""

    batches = ([0, 1, 2], [3, 4], [5, 6, 7], [8, 9, 10])

    def __init__(self):
        self.entered, self.open = threading.Event(), threading.Event()

    def __iter__(self):
        if not self.entered.is_set():
            self.entered.set()
            assert self.open.wait(30)
        return iter(self.batches)

    def __len__(self):
        return len(self.batches)


@pytest.mark.exhaustive
@pytest.mark.parametrize("workers", [0, 2])
def test_two_threads_that_call_iter_at_once(way, workers):
    gate = Gate()
    loader = FastLoader(Pictures(COUNT), batch_sampler=gate, num_workers=workers, **way.options)
    got = {}

    def run(name):
        try:
            got[name] = labels(loader)
        except Exception as error:
            got[name] = error

    threads = [threading.Thread(target=run, args=[name]) for name in ("first", "second")]
    threads[0].start()
    assert gate.entered.wait(30)
    threads[1].start()
    threads[1].join(0.3)  # it fails here, or waits for the first
    gate.open.set()
    for thread in threads:
        thread.join(30)
    assert got == {"first": list(gate.batches), "second": list(gate.batches)}
    loader.close()


# --- epochs without a batch -----------------------------------------------------------------------


@pytest.mark.parametrize("rows", [0, 2])
def test_arrays_without_a_batch_draw_as_torch_does(rows):
    """One seed for the life of persistent workers, in epochs without a batch, too."""

    def after(kind):
        own = generator(7)
        dataset = TensorDataset(torch.arange(rows))
        loader = kind(
            dataset, 3, sampler=range(rows), drop_last=True, num_workers=1,
            persistent_workers=True, generator=own,
        )  # fmt: skip
        states = []
        for _ in range(3):
            assert list(loader) == []
            states.append(own.get_state().tolist())
        return states

    assert after(FastLoader) == after(DataLoader)


# --- copies, and two iterators --------------------------------------------------------------------


class Epochs(Pictures):
    epoch = None

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __getitem__(self, index):
        return self.epoch, index


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda each: pickle.loads(pickle.dumps(each))])
def test_copies_go_on_from_the_state_that_was_loaded(copied):
    def make():
        return FastLoader(Pictures(COUNT), 2, shuffle=True, generator=generator(3))

    loader = make()
    iterator = iter(loader)
    next(iterator), next(iterator)
    state = loader.state_dict()
    wanted = labels(iterator), labels(loader)
    fresh = make()
    fresh.load_state_dict(state)
    twin = copied(fresh)
    assert twin.state_dict() == state
    assert (labels(twin), labels(twin)) == wanted
    assert (labels(fresh), labels(fresh)) == wanted  # and is none the worse for it


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda each: pickle.loads(pickle.dumps(each))])
def test_copies_count_the_epochs_on(copied):
    loader = FastLoader(Epochs(4), None)
    loader.set_epoch(5)
    list(loader)
    twin = copied(loader)
    assert {epoch for epoch, _ in twin} == {6} == {epoch for epoch, _ in loader}


def test_two_iterators_of_persistent_workers(way):
    """DataLoader has one iterator for both. Here the first one says what became of it."""
    options = {**way.options, "mean": MEAN, "std": STD}
    with FastLoader(
        Pictures(COUNT), 2, num_workers=1, persistent_workers=True, **options
    ) as loader:
        first = iter(loader)
        next(first)
        second = iter(loader)
        with pytest.raises(Error, match="persistent_workers=False for two iterators"):
            next(first)
        assert len(list(second)) == 6
        with pytest.raises(Error, match="persistent_workers=True"):
            list(zip(loader, loader))
        # One that has run into its end is at its end.
        ended = iter(loader)
        list(ended)
        iter(loader)
        assert list(ended) == []


# --- a state at every batch -----------------------------------------------------------------------


@pytest.mark.parametrize("workers", [0, 2])
def test_a_generators_state_is_encoded_once_an_epoch(workers, monkeypatch):
    """A framework that saves at every batch pays for what has changed since the batch before."""
    compressed = []
    compress = zlib.compress
    monkeypatch.setattr(
        zlib, "compress", lambda *given: compressed.append(given) or compress(*given)
    )
    own = generator(3)
    dataset = Pictures(60)
    loader = FastLoader(
        dataset, 1, sampler=RandomSampler(dataset, generator=own), num_workers=workers
    )
    for _ in range(2):
        compressed.clear()
        states = [loader.state_dict() for _ in loader]
        assert len(states) == 60 and len(compressed) <= 3
        assert len({state["generators"][0] for state in states}) <= 2
    fresh = FastLoader(dataset, 1, sampler=RandomSampler(dataset, generator=generator(0)))
    fresh.load_state_dict(states[20])
    loader.load_state_dict(states[20])
    assert labels(fresh) == labels(loader)
    assert len(labels(fresh)) == 60


class TensorsAsked(TorchFunctionMode):
    """Of which tensors something is asked inside."""

    def __init__(self):
        super().__init__()
        self.found = []

    def __torch_function__(self, function, _types, arguments=(), options=None):
        self.found += [each for each in arguments if isinstance(each, torch.Tensor)]
        return function(*arguments, **(options or {}))


def test_a_state_reads_no_more_than_the_generator_as_it_is():
    """What the order came from does not change; the generator is the user's, and may."""
    own = generator(3)
    dataset = range(60)
    loader = FastLoader(dataset, 1, sampler=RandomSampler(dataset, generator=own))
    iterator = iter(loader)
    next(iterator)
    first = loader.state_dict()
    wanted = json.dumps(first["randomness"])
    first["randomness"]["at_next"].clear()  # it is the caller's
    first["randomness"]["at_iter"].clear()
    for _ in range(3):
        next(iterator)
        with TensorsAsked() as asked:
            state = loader.state_dict()
        assert len({id(each) for each in asked.found}) == 1
        assert json.dumps(state["randomness"]) == wanted
        torch.randperm(4, generator=own)  # at any time
        assert not torch.equal(decoded(state["generators"])[0], own.get_state())
        assert torch.equal(decoded(loader.state_dict()["generators"])[0], own.get_state())


# --- how large ------------------------------------------------------------------------------------


@pytest.mark.parametrize("received", [None, 0, 3])
def test_the_size_of_a_state(received):
    """As docs/resume.md has it."""

    def size(**options):
        loader = FastLoader(range(1_281_167), 256, shuffle=True, **options)
        iterator = None if received is None else iter(loader)
        for _ in range(received or 0):
            next(iterator)
        file = io.BytesIO()
        torch.save(loader.state_dict(), file)
        file.seek(0)
        assert torch.load(file, weights_only=True) == loader.state_dict()
        return len(json.dumps(loader.state_dict()))

    assert size() < 1000
    states = 2 if received else 1
    assert 4000 * states < size(generator=generator(3)) < 1000 + 5000 * states
