"""States while an epoch begins: on another thread, in what iter() calls, in a forked child; and when
iter() fails."""

import itertools
import os
import signal
import threading

import pytest
import torch
from torch.utils.data import BatchSampler, Dataset, Sampler, TensorDataset

from fastloader import Error, FastLoader
from support import labels

pytestmark = pytest.mark.covering

COUNT = 12


class Rows(Dataset):
    def __len__(self):
        return COUNT

    def __getitem__(self, index):
        return 0, index


class Asking(Sampler):
    """Batches whose ``__iter__`` does what a test wants first."""

    def __init__(self):
        self.ask = lambda: None
        self.epochs = []

    def __iter__(self):
        self.ask()
        return iter([[0, 1], [2, 3], [4, 5], [6, 7]])

    def __len__(self):
        return 4

    def set_epoch(self, epoch):
        self.epochs.append(epoch)


def in_thread(run):
    got = []
    thread = threading.Thread(target=lambda: got.append(outcome(run)), daemon=True)
    thread.start()
    return thread, got


def outcome(run):
    try:
        return run()
    except Exception as error:
        return error


@pytest.mark.exhaustive
@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("what", ["load", "save", "set_epoch"])
def test_while_an_epoch_begins_on_another_thread(what, workers):
    sampler = Asking()
    loader = FastLoader(Rows(), batch_sampler=sampler, num_workers=workers)
    iterator = iter(loader)
    next(iterator), next(iterator)
    state = loader.state_dict()
    entered, gate = threading.Event(), threading.Event()

    def wait():
        sampler.ask = lambda: None
        entered.set()
        assert gate.wait(30)

    sampler.ask = wait
    calls = {
        "load": lambda: loader.load_state_dict(state),
        "save": loader.state_dict,
        "set_epoch": lambda: loader.set_epoch(7),
    }
    beginning, begun = in_thread(lambda: iter(loader))
    assert entered.wait(30)
    calling, called = in_thread(calls[what])
    calling.join(0.3)  # it fails here, or waits
    gate.set()
    for thread in (beginning, calling):
        thread.join(30)
        assert not thread.is_alive()
    if what == "load":
        assert called == [None]
        with pytest.raises(RuntimeError, match="call iter"):
            next(begun[0])
        assert labels(loader) == [[4, 5], [6, 7]]
        assert labels(loader) == [[0, 1], [2, 3], [4, 5], [6, 7]]
    if what == "save":
        assert called[0]["epoch"] == 1 and called[0]["batches"] == 0
        assert labels(begun[0]) == [[0, 1], [2, 3], [4, 5], [6, 7]]
    if what == "set_epoch":
        assert called == [None] and sampler.epochs == [7]
        assert labels(begun[0]) == [[0, 1], [2, 3], [4, 5], [6, 7]]
        assert loader.state_dict()["epoch"] == 7


@pytest.mark.parametrize("workers", [0, 1])
def test_in_the_samplers_iter(workers):
    sampler = Asking()
    loader = FastLoader(Rows(), batch_sampler=sampler, num_workers=workers)
    iterator = iter(loader)
    next(iterator)
    state = loader.state_dict()
    for forbidden in (lambda: loader.load_state_dict(state), lambda: iter(loader)):
        sampler.ask = forbidden
        with pytest.raises(Error, match="by its own sampler or dataset, while its iter"):
            iter(loader)
    # None of this is in the way of what goes on, and {} is no state.
    assert loader.state_dict() == state
    assert labels(iterator) == [[2, 3], [4, 5], [6, 7]]
    seen = []
    sampler.ask = lambda: seen.append(loader.load_state_dict({}) or loader.state_dict()["epoch"])
    assert len(labels(loader)) == 4 and set(seen) == {1}
    # The epoch that is set is the next one.
    sampler.ask = lambda: loader.set_epoch(5)
    assert len(labels(loader)) == 4
    assert loader.state_dict()["epoch"] == 5 and sampler.epochs == [5]


class Looking(FastLoader):
    """Asks for its state when somebody looks at its sampler."""

    ask = staticmethod(lambda self: None)

    @property
    def batch_sampler(self):
        type(self).ask(self)
        return self.__dict__["batch_sampler"]

    @batch_sampler.setter
    def batch_sampler(self, value):
        self.__dict__["batch_sampler"] = value


def test_the_position_is_made_while_it_is_made(monkeypatch):
    """As by a signal handler that saves."""
    loader, seen = Looking(Rows(), 2), []

    def once(self):
        monkeypatch.setattr(Looking, "ask", staticmethod(lambda self: None))
        seen.append(self.state_dict()["epoch"])
        self.set_epoch(3)

    monkeypatch.setattr(Looking, "ask", staticmethod(once))
    thread, got = in_thread(lambda: loader.state_dict()["epoch"])
    thread.join(20)
    assert (got, seen) == ([3], [0])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("held", ["making", "beginning"])
def test_a_child_forked_meanwhile(held, monkeypatch):
    """What a thread of the parent's holds is not held in the child, where that thread is not."""
    entered, gate = threading.Event(), threading.Event()

    def wait(*_):
        entered.set()
        assert gate.wait(60)

    sampler = Asking()
    loader = Looking(Rows(), batch_sampler=sampler)
    if held == "beginning":
        loader.state_dict()
        sampler.ask = wait
    else:
        monkeypatch.setattr(Looking, "ask", staticmethod(wait))
    thread, got = in_thread(lambda: iter(loader))
    assert entered.wait(30)
    child = os.fork()
    if child == 0:
        signal.alarm(20)  # ends it
        gate.set()
        os._exit(loader.state_dict()["epoch"])
    gate.set()
    thread.join(30)
    assert os.waitpid(child, 0)[1] == 0
    assert labels(got[0]) == [[0, 1], [2, 3], [4, 5], [6, 7]]


# --- iter() that fails ----------------------------------------------------------------------------


class Refusing(Sampler):
    """Draws as torch's RandomSampler, unless it raises first."""

    raises = False

    def __iter__(self):
        if self.raises:
            raise OSError("no more room")
        return iter(torch.randperm(COUNT).tolist())

    def __len__(self):
        return COUNT


def test_what_a_failed_iter_leaves_behind():
    """Nothing of the state that it was to begin with comes into an epoch of another state."""

    def make(sampler):
        return FastLoader(Rows(), 4, sampler=sampler, num_workers=1, persistent_workers=True)

    with make(Refusing()) as one:
        list(one)
        later = one.state_dict()
    sampler = Refusing()
    with make(sampler) as loader:
        fresh = loader.state_dict()
        loader.load_state_dict(later)
        sampler.raises = True
        torch.manual_seed(1)
        with pytest.raises(OSError, match="no more room"):
            iter(loader)
        sampler.raises = False
        loader.load_state_dict(fresh)
        torch.manual_seed(2)
        got = labels(loader)
    torch.manual_seed(2)
    with make(Refusing()) as plain:
        assert got == labels(plain)


def test_a_state_after_a_failed_iter_is_of_the_epoch_before():
    sampler = Refusing()
    loader = FastLoader(Rows(), 4, sampler=sampler, num_workers=1)
    iterator = iter(loader)
    received = labels([next(iterator)])
    state = loader.state_dict()
    sampler.raises = True
    with pytest.raises(OSError):
        iter(loader)
    sampler.raises = False
    assert loader.state_dict() == state
    rest = labels(iterator)
    fresh = FastLoader(Rows(), 4, sampler=Refusing())
    fresh.load_state_dict(state)
    assert labels(fresh) == rest and sorted(itertools.chain(*received, *rest)) == list(range(COUNT))


# --- a sampler of batches in the sampler's place --------------------------------------------------


@pytest.mark.parametrize("received", [1, 2, 3])
@pytest.mark.parametrize("rows", [True, False])
def test_batches_from_the_sampler(received, rows):
    """With batch_size=None, a BatchSampler's lists are what the dataset is asked for."""

    class Several(Rows):
        def __getitem__(self, indices):
            return 0, torch.tensor(indices)

    def make():
        sampler = BatchSampler(range(COUNT - 1), 4, False)
        dataset = TensorDataset(torch.arange(COUNT), torch.arange(COUNT)) if rows else Several()
        return FastLoader(dataset, None, sampler=sampler)

    loader = make()
    iterator = iter(loader)
    for _ in range(received):
        next(iterator)
    state = loader.state_dict()
    assert (state["batches"], state["samples"]) == (received, min(4 * received, COUNT - 1))
    assert (state["first"], state["last"]) == (0, min(4 * received, COUNT - 1) - 1)
    fresh = make()
    fresh.load_state_dict(state)
    assert labels(fresh) == labels(iterator) == [[4, 5, 6, 7], [8, 9, 10]][received - 1 :]
