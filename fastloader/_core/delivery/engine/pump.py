"""The pump thread, which advances a source ahead of the loop, and the end of all of them at exit."""

from __future__ import annotations

import logging
import time
import weakref
from collections.abc import Iterator
from typing import Any

from fastloader._core.delivery.engine import engine as ring_engine
from fastloader._core.delivery.engine.epoch import RingEpoch
from fastloader._core.machine import extension
from fastloader._core.observation import trace

_log = logging.getLogger("fastloader")


def pump(epoch: RingEpoch, source: Iterator[Any]) -> None:
    """Advances the source until the source or the epoch ends."""
    while not epoch.over and _pump_one(epoch, source):
        pass


def _pump_one(epoch: RingEpoch, source: Iterator[Any]) -> bool:
    """Puts the source's next batch into the ring, and returns whether there may be another. An error
    takes its batch's place and, as with DataLoader, does not end the epoch."""
    # Each batch has a call of its own. The traceback of an error holds this frame, and a user who keeps
    # the error must not keep the slot of a later batch. And a batch's shared memory goes back before the
    # pump thread waits for the next batch.
    try:
        begun = time.perf_counter()
        batch = next(source)
        trace.add("receive", begun, time.perf_counter())
        return epoch.put_batch(batch)
    except StopIteration as stop:
        # A StopIteration with arguments comes from a dataset in a worker. As with DataLoader, more
        # batches may follow it.
        if stop.args and epoch.put_error(stop, True):
            return True
        epoch.put_end()
        return False
    except BaseException as error:
        return epoch.put_error(error, getattr(source, "_took", True))


def drain_log() -> None:
    messages, dropped = extension.native.drain_log()
    for message in messages:
        _log.warning("%s", message)
    if dropped:
        _log.warning("%d more native warnings were dropped", dropped)


# Epochs whose pump thread may still run.
live: weakref.WeakSet[RingEpoch] = weakref.WeakSet()


def end_all_at_exit() -> None:
    """Ends all pump threads at interpreter exit, which no thread of ours may outlive."""
    for epoch in list(live):
        if not epoch.stop_pump(patience=1):
            epoch.interrupt_pump()


def end_everything() -> None:
    end_all_at_exit()
    for engine in list(ring_engine.live):
        engine.close()
