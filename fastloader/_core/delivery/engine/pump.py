"""The pump: the thread that advances a source ahead of the loop, and the end of all of them at exit."""

from __future__ import annotations

import logging
import time
import weakref
from collections.abc import Iterator
from typing import Any

from fastloader._core.delivery.engine import engine as ring_engine
from fastloader._core.delivery.engine.epoch import RingEpoch
from fastloader._core.observation import trace

_log = logging.getLogger("fastloader")


def pump(epoch: RingEpoch, source: Iterator[Any]) -> None:
    """Advances the source until it ends or the epoch does. An error takes its batch's place and, as
    with DataLoader, does not end the epoch."""
    while not epoch.over:
        try:
            begun = time.perf_counter()
            batch = next(source)
            trace.add("receive", begun, time.perf_counter())
            if not epoch.put_batch(batch):
                return
        except StopIteration as stop:
            # From a data set in a worker it says where, and with DataLoader more may follow.
            if not stop.args or not epoch.put_error(stop, True):
                epoch.put_end()
                return
        except BaseException as error:
            if not epoch.put_error(error, getattr(source, "_took", True)):
                return
        # Nothing of a batch is kept while waiting for the next: its shared memory goes back now.
        batch = None


def drain_log(native: Any) -> None:
    messages, dropped = native.drain_log()
    for message in messages:
        _log.warning("%s", message)
    if dropped:
        _log.warning("%d more native warnings were dropped", dropped)


# Epochs whose pump may still be running.
live: weakref.WeakSet[RingEpoch] = weakref.WeakSet()


def end_all_at_exit() -> None:
    """Interpreter exit: no thread of ours may outlive it."""
    for epoch in list(live):
        if not epoch.stop_pump(patience=1):
            epoch.interrupt_pump()


def end_everything() -> None:
    end_all_at_exit()
    for engine in list(ring_engine.live):
        engine.close()
