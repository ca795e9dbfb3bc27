"""Counters behind ``loader.stats()`` and ``loader.report()``."""

from __future__ import annotations

import dataclasses
import logging
import os
import threading
import time
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol

from fastloader._core.machine import devices
from fastloader._core.observation import trace
from fastloader._core.observation.closing import closed_meanwhile, is_closed_meanwhile
from fastloader._core.observation.recent_steps import RecentSteps

if TYPE_CHECKING:
    from fastloader._core.order.progress import Progress

_log = logging.getLogger("fastloader")

# Off only to measure the cost of it, in benchmarks/observation.py. The native module reads it, too.
TIMED = os.environ.get("FASTLOADER_STAGE_TIMES") != "0"


class LeftOut(Exception):
    """Raised in the place of a batch of which every sample was skipped. The iterator that the loop holds
    counts it and goes on with the next batch."""


@dataclasses.dataclass
class Statistics:
    """The counters of one loader. Plain numbers are enough, because only the training loop's thread
    writes them. ``spent`` has an entry for each thread that adds to it."""

    batches: int = 0
    errors: int = 0
    wait_s: float = 0.0
    edge_wait_s: float = 0.0  # the part of wait_s for each epoch's first batch and its end
    between: int = 0  # how many waits were neither of these two
    step_s: float = 0.0  # the seconds between a batch and the call for the next one
    steps: int = 0  # how many steps those were
    asked: int = 0  # how often the loop asked for a batch
    found: int = 0  # how many batches were ready then, in all
    spent: dict[tuple[str, int], tuple[float, int]] = dataclasses.field(default_factory=dict)
    recent: RecentSteps = dataclasses.field(default_factory=RecentSteps)
    _step: float = 0.0  # the seconds of the step that ended last
    _left: float = 0.0  # when the loop got its last batch; 0 outside of an epoch
    _of: object = None  # that epoch's object; held so that no other object gets its address

    def waiting(self, iterator: Waiter) -> Waiting:
        return Waiting(self, iterator)

    def copied(self) -> Statistics:
        """The counters as they are now. The record of recent steps is shared, and goes on."""
        return dataclasses.replace(self, spent=dict(self.spent), _of=None)

    def add_time(self, stage: str, seconds: float) -> None:
        """Notes that ``stage`` took the calling thread so many ``seconds`` for one batch."""
        key = stage, threading.get_ident()
        before, count = self.spent.get(key, (0.0, 0))
        self.spent[key] = before + seconds, count + 1

    def total(self, stage: str) -> tuple[float, int]:
        """Returns (seconds, batches) of a stage over all threads."""
        each = [spent for (name, _), spent in list(self.spent.items()) if name == stage]
        return sum(seconds for seconds, _ in each), sum(count for _, count in each)

    def note_ready(self, ready: int) -> None:
        """Notes that the loop asks for a batch, and that ``ready`` batches are ready."""
        self.asked += 1
        self.found += ready

    def begin_wait(self, now: float, epoch: object) -> bool:
        """Begins to count a wait, and returns whether it is the first call of its epoch."""
        first = not self._left or self._of is not epoch
        if not first:
            self._step = now - self._left
            self.step_s += self._step
            self.steps += 1
        return first

    def end_wait(self, now: float, epoch: object, waited: float, first: bool, ended: bool) -> None:
        self.wait_s += waited
        if first or ended:
            self.edge_wait_s += waited
        else:
            self.between += 1
        self.recent.waits.append((self._step, waited, first, ended))
        self._left = 0.0 if ended else now
        self._of = epoch


class Waiter(Protocol):
    """An iterator as `Waiting` sees it."""

    progress: Progress | None  # None unless the loop holds this iterator
    _closed: bool  # set by close(), on any thread
    _took: bool  # whether what next() raised last took a batch's place


class Waiting:
    """Goes around what an iterator does in ``next()``: ``with statistics.waiting(iterator):``. It counts
    the seconds inside as time that the training loop waited, and an exception other than the end of the
    epoch as an error. It tells the iterator's progress what became of the batch.

    It also makes `close` mean the same for every iterator that a loop holds: a later ``next()`` raises
    StopIteration, and one that is under way raises one Error, whatever it ran into.

    This is a class, because contextlib's generator would turn a StopIteration into a RuntimeError."""

    def __init__(self, statistics: Statistics, iterator: Waiter) -> None:
        self._statistics = statistics
        self._iterator = iterator
        self._progress = iterator.progress
        self._start = 0.0
        self._first = False
        self._range: Any = None

    def __enter__(self) -> None:
        if self._progress is not None:
            self._progress.check()  # raises if another epoch has ended this one
        if self._iterator._closed:
            raise StopIteration
        # By the name that tools search a profile for: that of torch's own wait.
        name = f"enumerate(DataLoader)#{type(self._iterator).__name__}.__next__"
        self._range = devices.open_range(name)
        self._start = time.perf_counter()
        self._first = self._statistics.begin_wait(self._start, self._progress)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        now = time.perf_counter()
        ended = kind is not None and issubclass(kind, StopIteration)
        # Ctrl-C and its like keep their place: only an Exception gives way to the error of `close`.
        closed = self._iterator._closed and (kind is None or issubclass(kind, Exception))
        self._statistics.end_wait(now, self._progress, now - self._start, self._first, ended)
        if trace.active is not None:
            trace.add("wait", self._start, now)
        if self._range is not None:
            self._range.__exit__(None, None, None)
        if closed or (kind is not None and not ended and kind is not LeftOut):
            self._statistics.errors += 1
        if closed and not is_closed_meanwhile(error):
            # A StopIteration is no cause to show: it is how the thread that waited was woken.
            raise closed_meanwhile() from None if ended else error
        if self._progress is not None:
            if kind is None or (issubclass(kind, Exception) and not ended):
                if kind is None or self._iterator._took:
                    self._progress.delivered()
            elif kind is StopIteration:
                self._progress.end()
                counted = self._statistics
                text = (
                    "fastloader: an epoch has ended: %d batches, %.2f s of waiting, in all so far"
                )
                _log.debug(text, counted.batches, counted.wait_s)
