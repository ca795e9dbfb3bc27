"""An iterator over batches that a training loop may hold."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fastloader._core.machine.eager import eager
from fastloader._core.machine.process import HomeProcess, ProcessLock
from fastloader._core.observation.statistics import LeftOut, Statistics
from fastloader._core.order.progress import Progress


class LoopIterator(Iterator[Any]):
    """The base of our iterators, of which each makes a batch in its `_next`. This class does what is the
    same for all: the process to which an iterator belongs, the loop's clock, what `close` means, and the
    progress that `state_dict` reads.

    A subclass that waits in ``next()`` may also have a method ``leave()``. The delivery calls it on any
    thread when it takes no more batches: a ``next()`` that waits then soon raises StopIteration. In a
    forked child ``next()`` raises before `_next` is called, unless `_check` is overridden by a subclass
    that has nothing ahead.

    ``statistics`` is None if another iterator takes the batches further and counts them."""

    progress: Progress | None = None  # set by the loader on the iterator that it hands out
    _closed = False  # set by close(), on any thread
    _took = True  # whether what next() raised last took a batch's place

    def __init__(self, statistics: Statistics | None) -> None:
        self._home = HomeProcess()
        self._statistics = statistics
        # Guards a batch on its way out of `_next`: of several threads that call next(), each gets other
        # batches. close() does not take it, and wakes the thread that holds it.
        self._calls = ProcessLock()

    @eager
    def __next__(self) -> Any:
        self._check()
        statistics = self._statistics
        if statistics is None:
            if self._closed:
                raise StopIteration
            return self._next()
        with self._calls.lock:
            while True:
                try:
                    with statistics.waiting(self):
                        batch = self._next()
                except LeftOut:
                    continue
                statistics.batches += 1
                return batch

    def _check(self) -> None:
        """Raises what refuses ``next()``, before anything is counted or lost."""
        self._home.check()

    def _next(self) -> Any:
        """Makes the next batch. What it raises takes the batch's place, unless `_took` says otherwise.

        Ctrl-C may come in every line, and the next call then gives the same batch: an index batch, and
        what was made of it, must be kept until the last line before the return.

        Raises:
            StopIteration: at the end of the epoch.
            LeftOut: in the place of a batch of which every sample was skipped.
        """
        raise NotImplementedError

    def close(self) -> None:
        """Ends the epoch early, from any thread. Further calls of ``next()`` raise StopIteration, and a
        call that is under way raises Error."""
        self._closed = True

    def __reduce__(self) -> Any:
        raise NotImplementedError(f"{type(self).__name__} cannot be pickled")
