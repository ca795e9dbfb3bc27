"""Counters behind ``loader.stats()``."""

from __future__ import annotations

import dataclasses
import time
from types import TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fastloader._position import Progress


@dataclasses.dataclass
class Statistics:
    """Written by the consumer's thread only, so that plain ints do."""

    batches: int = 0
    errors: int = 0
    wait_s: float = 0.0

    def waiting(self, progress: Progress | None) -> Waiting:
        return Waiting(self, progress)


class Waiting:
    """``with statistics.waiting():`` counts the seconds inside as time the training loop waited, and
    an exception other than the end of the epoch as an error, and tells ``progress``, of the iterator
    that the user has, what became of the batch. A class, because contextlib's generator would turn a
    StopIteration into a RuntimeError."""

    def __init__(self, statistics: Statistics, progress: Progress | None) -> None:
        self._statistics = statistics
        self._progress = progress
        self._start = 0.0

    def __enter__(self) -> None:
        if self._progress is not None:
            self._progress.check()
        self._start = time.perf_counter()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        self._statistics.wait_s += time.perf_counter() - self._start
        if kind is not None and not issubclass(kind, StopIteration):
            self._statistics.errors += 1
        if self._progress is not None:
            if kind is None or (
                issubclass(kind, Exception) and not issubclass(kind, StopIteration)
            ):
                self._progress.handed()
            elif kind is StopIteration:
                self._progress.end()
