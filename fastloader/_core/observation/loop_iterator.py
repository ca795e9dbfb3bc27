"""An iterator over batches that a training loop may hold."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fastloader._core.machine.process import HomeProcess
from fastloader._core.observation.statistics import LeftOut, Statistics
from fastloader._core.order.progress import Progress


class LoopIterator(Iterator[Any]):
    """Its class makes a batch in `_next`. What is the same for all of them stands here: the process that
    it belongs to, the loop's clock, what `close` means, and the progress that `state_dict` reads.

    ``statistics`` None: another iterator takes the batches further, and counts."""

    progress: Progress | None = None  # set by the loader on the iterator that it hands out
    _closed = False  # by close(), on any thread
    _took = True  # whether what next() raised last has taken a batch's place

    def __init__(self, statistics: Statistics | None) -> None:
        self._home = HomeProcess()
        self._statistics = statistics

    def __next__(self) -> Any:
        self._check()
        statistics = self._statistics
        if statistics is None:
            if self._closed:
                raise StopIteration
            return self._next()
        while True:
            try:
                with statistics.waiting(self):
                    batch = self._next()
            except LeftOut:
                continue
            statistics.batches += 1
            return batch

    def _check(self) -> None:
        """What `next` is refused for without anything being counted, or lost."""
        self._home.check()

    def _next(self) -> Any:
        """The next batch. Raises LeftOut in the place of one of which every sample was skipped."""
        raise NotImplementedError

    def close(self) -> None:
        """Ends the epoch early, from any thread; further calls of next() raise StopIteration, and one
        that is under way raises Error."""
        self._closed = True

    def __reduce__(self) -> Any:
        raise NotImplementedError(f"{type(self).__name__} cannot be pickled")
