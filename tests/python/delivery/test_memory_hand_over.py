"""Memory that was offered for a batch goes back to the stream it was made on, however the batch ends.

On the CPU there is one stream; what a GPU's streams would be told is recorded. tests/gpu shows the
consequence where there is one.
"""

import gc

import pytest
import torch

from fastloader import DevicePrefetcher, FastLoader
from fastloader._core.machine import devices
from support import MEAN, STD, Pictures, eventually, random_images

NORMALISED = {"mean": MEAN, "std": STD}


class Recording:
    """The prefetcher of an epoch, with what `cancel` was asked for."""

    def __init__(self, real):
        self._real = real
        self.cancelled = None

    def __getattr__(self, name):
        return getattr(self._real, name)

    def cancel(self, streams):
        self.cancelled = streams
        self._real.cancel([0])


def test_every_stream_with_memory_waits_for_what_is_cancelled(twin):
    loader = FastLoader(Pictures(40), 4, num_workers=1, device="cpu", depth=3, **NORMALISED)
    iterator = iter(loader)
    next(iterator)
    epoch = iterator._epoch
    assert len(epoch.credits) >= 2
    for stream, credit in enumerate(epoch.credits.values(), 5):
        credit.stream = stream
    streams = {credit.stream for credit in epoch.credits.values()}
    epoch.stream = 11
    recording = epoch.prefetcher = Recording(epoch.prefetcher)
    iterator.close()
    assert sorted(recording.cancelled) == sorted({11, *streams})


@pytest.fixture
def handed_over(enter_way, monkeypatch):
    """The streams that were made to wait, in order; `consumer` of the current batch is a number."""
    enter_way("streams")
    told, consumers = [], iter(range(100))
    monkeypatch.setattr(devices.StreamSide, "consumer", lambda side: next(consumers))
    monkeypatch.setattr(devices.StreamSide, "hand_over", lambda side, to: told.append(to))
    return told


def test_a_batch_in_flight_goes_back_where_its_memory_was_made(handed_over):
    batches = [random_images(i, 2, 3, 4, 5) for i in range(4)]
    options = {"num_workers": 1, "worker_backend": "thread"}
    loader = FastLoader(batches, None, device="cpu", **options, **NORMALISED)
    iterator = iter(loader)
    came = iterator._batches._data_queue  # and what is not there yet is not put in flight
    eventually(lambda: came.qsize() == 2, lambda: "both batches there")
    next(iterator)
    flown = iterator._flight[0].consumer
    handed_over.clear()
    del iterator
    gc.collect()
    assert handed_over == [flown]


class Unmovable:
    def to(self, *_args, **_kwargs):
        raise OSError("cannot be moved")


def test_a_batch_that_fails_on_its_way_goes_back_behind_its_work(handed_over):
    iterator = iter(DevicePrefetcher([[torch.ones(2), Unmovable()]], "cpu"))
    with pytest.raises(OSError, match="cannot be moved"):
        next(iterator)
    assert handed_over == [0]
