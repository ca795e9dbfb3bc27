"""What the runtime asks of its sources: the methods of `Source` and `Fallback`, and nothing else."""

import pytest
from thread_toy import ThreadToys
from torch.utils.data import default_collate
from toy import ToyPlan, ToySource, some_toys

from fastloader import FastLoader
from fastloader._core import runtime
from fastloader._core.handoff import Fallback, StandIn
from fastloader._core.sources.table import make_sources
from fastloader.errors import NotNative


class Recorded:
    """Keeps a list of the names of its methods that were called."""

    def __init__(self):
        self.calls = []

    def begin_epoch(self, refused):
        self.calls.append(("begin_epoch", refused))

    def forget(self):
        self.calls.append("forget")

    def close(self):
        self.calls.append("close")


class RecordedToys(Recorded, ToySource):
    """A row in the place of all of the table."""

    def replay(self, index):
        return {"toy": index} if self.opened else None


class PlainPlan(ToyPlan):
    name = "plain"

    def open(self, order, handoff):
        index_batches = order.index_batches()
        order.epoch_seed()
        return (default_collate([self._dataset[i] for i in batch]) for batch in index_batches)


class RecordedFallback(Recorded, Fallback):
    """Makes batches without torch's iterators, and keeps what it was asked for."""

    makes_encoded = False

    def plan(self, loader, wanted, reason="", stand_in=None, normalized=None, obstacles=None):
        self.reason = reason
        return PlainPlan(self, loader.dataset)

    def replay(self, index):
        return None

    def iterator(self, loader):
        raise AssertionError("no plan of this fallback asks torch for an iterator")

    def drop_ended(self, loader):
        return False

    def end_iterators(self):
        self.calls.append("end_iterators")


@pytest.fixture
def rows(monkeypatch):
    """The only sources of the loaders that a test makes."""
    toys, fallback = RecordedToys(), RecordedFallback()
    monkeypatch.setattr(runtime, "make_sources", lambda statistics, policy: ((toys,), fallback))
    return toys, fallback


def test_a_source_is_one_row_of_the_table(rows):
    toys, fallback = rows
    loader = FastLoader(some_toys(6), 2)
    assert loader.plan().startswith("toys") and not toys.calls
    with pytest.raises(ValueError, match="no epoch was begun"):
        loader.replay(3)
    assert [numbers.tolist() for _, numbers in loader] == [[0, 1], [2, 3], [4, 5]]
    assert toys.calls == fallback.calls == [("begin_epoch", "")]
    assert loader.replay(3) == {"toy": 3}
    assert loader.stats()["toys"] == 1 and "play" in loader.stats()["stages"]
    loader.load_state_dict(loader.state_dict())
    assert toys.calls[1:] == fallback.calls[1:] == ["forget"]
    loader.close()
    assert toys.calls[2:] == ["close"] and fallback.calls[2:] == ["end_iterators", "close"]


def test_what_no_row_serves_is_the_fallbacks(rows):
    toys, fallback = rows
    loader = FastLoader(ThreadToys(some_toys(4).pictures), 2)
    assert [numbers.tolist() for _, numbers in loader] == [[0, 1], [2, 3]]
    assert "ThreadToys" in fallback.reason and loader.plan().startswith("plain")
    assert not toys.opened and toys.calls == [("begin_epoch", "")]


def test_a_close_ends_workers_before_they_are_forgotten_and_memory_is_freed(rows):
    toys, fallback = rows
    loader = FastLoader(some_toys(4), 2, num_workers=1, persistent_workers=True)
    loader.close()
    assert toys.calls == ["forget", "close"]
    assert fallback.calls == ["end_iterators", "forget", "close"]


class Tens(ThreadToys):
    """Stands in the place of `ThreadToys`."""

    collate = None
    native = False

    def __getitem__(self, index):
        return self.pictures[index], 10 * index


class StandingIn(ToySource):
    serves = ThreadToys

    def plan(self, loader, wanted):
        raise NotNative("toys of a thread")

    def stand_in(self, loader, wanted, reason):
        return StandIn(Tens(loader.dataset.pictures), f"tens ({reason})")


def test_the_first_that_stands_in_makes_the_samples(monkeypatch):
    def with_stand_in(statistics, policy):
        sources, fallback = make_sources(statistics, policy)
        return (ToySource(), StandingIn(), *sources), fallback

    monkeypatch.setattr(runtime, "make_sources", with_stand_in)
    loader = FastLoader(ThreadToys(some_toys(4).pictures), 2)
    assert loader.plan().startswith("Python path: tens (toys of a thread")
    assert [numbers.tolist() for _, numbers in loader] == [[0, 10], [20, 30]]
