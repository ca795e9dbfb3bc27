"""A device that fails, or is slow in odd places, imitated by the host twin."""

import multiprocessing
import time

import pytest
import torch

from exact import normalised, same_bits
from fastloader import BackendError, FastLoader
from fastloader._core.delivery import engine as ring_engine
from support import MEAN, STD, Pictures, Stream, require_hooks, ring_threads, running

WORKERS = pytest.mark.parametrize("workers", [0, 1])


@pytest.fixture
def data():
    return Pictures(10)


@pytest.fixture(autouse=True)
def _faults():
    require_hooks()


def make(data, workers, **options):
    return FastLoader(
        data, batch_size=2, num_workers=workers, device="cpu", mean=MEAN, std=STD, **options
    )


def check(data, batches):
    for image, label in batches:
        same_bits(image, normalised(data.images[label], MEAN, STD, torch.float32))


@WORKERS
def test_every_call_may_fail(twin, monkeypatch, data, workers):
    # One batch is three calls: the copy of the slot, the normalise, the copy of the label.
    for number in [*range(1, 16 if workers == 0 else 8)]:
        before = running()
        monkeypatch.setattr(ring_engine, "_twin_options", {"twin_fail_on_call": number})
        loader = make(data, workers)
        iterator = iter(loader)
        seen = []
        with pytest.raises(BackendError, match=f"injected failure of call {number}") as caught:
            for batch in iterator:
                seen.append(batch)
        assert "host device 0" in str(caught.value)
        assert len(seen) <= (number - 1) // 3
        check(data, seen)
        # The failure is sticky: nothing that may be wrong is delivered after it.
        with pytest.raises((BackendError, StopIteration)):
            next(iterator)
        assert loader.stats()["errors"] >= 1
        del iterator
        monkeypatch.setattr(ring_engine, "_twin_options", {})
        again = list(loader)  # a fresh engine
        assert [label.tolist() for _, label in again] == [[2 * i, 2 * i + 1] for i in range(5)]
        check(data, again)
        check(data, seen)
        loader.close()
        assert ring_threads() <= before


@WORKERS
def test_an_engine_that_failed_serves_no_other_epoch(twin, monkeypatch, data, workers):
    made = []
    make_engine = ring_engine.Engine.__init__

    def note(engine, *args):
        made.append(1)
        make_engine(engine, *args)

    monkeypatch.setattr(ring_engine.Engine, "__init__", note)
    monkeypatch.setattr(ring_engine, "_twin_options", {"twin_fail_on_call": 4})
    loader = make(data, workers)
    with pytest.raises(BackendError):
        list(loader)
    assert len(made) == 1
    monkeypatch.setattr(ring_engine, "_twin_options", {})
    for _ in range(3):
        check(data, list(loader))
    assert len(made) == 2  # which is healthy, and serves the later ones
    loader.close()


class FirstTwo(Pictures):
    """Gives no more than two pictures before ``more`` is set."""

    def __init__(self, count):
        super().__init__(count)
        self.more = multiprocessing.Event()

    def __getitem__(self, index):
        if index >= 2:
            self.more.wait()
        return super().__getitem__(index)


def test_a_failure_that_no_batch_was_asked_behind(twin, monkeypatch):
    """The device fails while the loop does not look, and the loop ends the epoch."""
    monkeypatch.setattr(ring_engine, "_twin_options", {"twin_fail_on_call": 4})
    data = FirstTwo(10)
    loader = make(data, 1)
    iterator = iter(loader)
    next(iterator)  # of a device that has not failed yet
    data.more.set()
    prefetcher = iterator._epoch.engine.prefetcher
    while not prefetcher.failed():
        time.sleep(0.001)
    del iterator
    monkeypatch.setattr(ring_engine, "_twin_options", {})
    check(data, list(loader))
    loader.close()


@WORKERS
def test_a_failed_loader_can_be_closed(twin, monkeypatch, data, workers):
    monkeypatch.setattr(ring_engine, "_twin_options", {"twin_fail_on_call": 4})
    before = running()
    loader = make(data, workers)
    iterator = iter(loader)
    with pytest.raises(BackendError):
        list(iterator)
    loader.close()
    loader.close()
    assert ring_threads() <= before
    with pytest.raises(StopIteration):
        next(iterator)


@WORKERS
def test_random_delays_change_nothing(twin, monkeypatch, data, workers):
    for seed in range(1, 13 if workers == 0 else 6):
        monkeypatch.setattr(ring_engine, "_twin_options", {"twin_delay_seed": seed})
        loader = make(data, workers, depth=1 + seed % 4)
        for _ in range(2):
            batches = list(loader)
            assert [label.tolist() for _, label in batches] == [
                [2 * i, 2 * i + 1] for i in range(5)
            ]
            check(data, batches)
        next(iter(loader))
        check(data, list(loader))


def test_memory_that_cannot_be_pinned(twin, monkeypatch, data):
    monkeypatch.setattr(ring_engine, "_twin_options", {"twin_unpinned": True})
    loader = make(data, 0)
    check(data, list(loader))
    ring = loader.stats()["ring"]
    assert ring["pinned"] is False and "injected failure of pinning" in ring["why_not_pinned"]
    monkeypatch.setattr(ring_engine, "_twin_options", {})
    loader = make(data, 0)
    list(loader)
    assert loader.stats()["ring"]["pinned"] is True
    assert loader.stats()["ring"]["why_not_pinned"] == ""


def test_counters_of_the_ring(twin, data):
    loader = make(data, 0)
    list(loader)
    ring = loader.stats()["ring"]
    assert ring["filled"] == ring["delivered"] == 5
    assert ring["bytes"] >= 10 * (3 * 5 * 7 + 8) and ring["ring_bytes"] > 0


def test_memory_is_offered_while_the_end_comes(twin, monkeypatch, data):
    """The pump may put an error or the end where memory for one more batch was just offered. The worker
    is asked for the end at the beginning, or the pump would wait for batches to be taken."""
    iterators = []
    make_credit = ring_engine.Engine.make_credit

    def make_credit_late(engine, layout):
        for each in iterators:
            offered = engine.prefetcher.uncredited(True)
            each._epoch.pump.join()
            # The prefetch thread takes the end off the ring in its own time.
            for _ in range(2000):
                if engine.prefetcher.uncredited(True) != offered:
                    break
        return make_credit(engine, layout)

    monkeypatch.setattr(ring_engine.Engine, "make_credit", make_credit_late)
    loader = make(Stream(10), 1, depth=8, prefetch_factor=8)
    for _ in range(5):
        iterators.clear()
        iterator = iter(loader)
        iterators.append(iterator)
        batches = list(iterator)
        check(data, batches)
        assert len(batches) == 5
    iterators.clear()
