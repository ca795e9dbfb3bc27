"""What worker processes do about SIGTERM, and how they end with Python."""

from __future__ import annotations

import os
import signal
import weakref
from collections.abc import Callable
from typing import Any

from fastloader._core.machine import process
from fastloader._core.sources.python.processes import ending
from fastloader._core.sources.python.processes.shutdown import end_processes


class OutlivingWorker:
    """A worker_init_fn that makes the worker ignore SIGTERM, and then calls the user's. A cluster sends
    SIGTERM to every process of a job, and a training process that handles it still needs its batches:
    the worker ends with it, or when it says so."""

    def __init__(self, given: Callable[[int], None] | None) -> None:
        self._given = given

    def __call__(self, worker_id: int) -> None:
        # No SIG_IGN, which the programs that the dataset starts would inherit.
        signal.signal(signal.SIGTERM, _end_if_due)
        if self._given is not None:
            self._given(worker_id)


def _end_if_due(_number: int, _frame: Any) -> None:
    if ending.is_to_end():
        os._exit(0)


def is_handled() -> bool:
    """Whether SIGTERM does something else to this process than end it."""
    return signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL


def end_at_exit(iterator: Any) -> None:
    """multiprocessing ends daemons by SIGTERM, and waits for them, when Python ends."""
    _live.add(iterator)
    process.at_exit(_end_all)


_live: weakref.WeakSet[Any] = weakref.WeakSet()


def _end_all() -> None:
    for iterator in list(_live):
        if iterator._home.here and not iterator._shutdown:
            end_processes(iterator, 0.0)
