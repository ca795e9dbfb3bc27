"""Counters behind ``loader.stats()``."""

from __future__ import annotations

import dataclasses
import time
from types import TracebackType


@dataclasses.dataclass
class Statistics:
    """Written by the consumer's thread only, so that plain ints do."""

    batches: int = 0
    errors: int = 0
    wait_s: float = 0.0

    def waiting(self) -> Waiting:
        return Waiting(self)


class Waiting:
    """``with statistics.waiting():`` counts the seconds inside as time the training loop waited, and
    an exception other than the end of the epoch as an error. A class, because contextlib's generator
    would turn a StopIteration into a RuntimeError."""

    def __init__(self, statistics: Statistics) -> None:
        self._statistics = statistics
        self._start = 0.0

    def __enter__(self) -> None:
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
