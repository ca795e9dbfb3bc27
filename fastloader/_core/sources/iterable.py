"""The batches of an iterable that is not ours."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from fastloader._core.batch.augmentation import EpochDraws
from fastloader._core.handoff import Handoff, SamplePart
from fastloader._core.order.epoch_order import EpochOrder
from fastloader._core.sources.python.lookahead import Lookahead, follow_loop
from fastloader.transforms._normalization import Normalization


class IterablePlan:
    """One pass over ``iterable``. Its batches may be taken ahead of the loop if it has
    ``num_workers > 0``, as a DataLoader may."""

    normalization: Normalization | None = None
    draws: EpochDraws | None = None
    normalizes = False
    fills_slots = False
    pins = False
    workers = ""  # the iterable warns of its own

    def __init__(self, iterable: Iterable[Any]) -> None:
        self._iterable = iterable
        workers = getattr(iterable, "num_workers", 0)
        self.ahead = isinstance(workers, int) and workers > 0
        # A loader with persistent workers has one iterator for life, which the pump thread of the last
        # pass must let go of first.
        self.exclusive = self.ahead and bool(getattr(iterable, "persistent_workers", False))

    def open(self, order: EpochOrder | None, handoff: Handoff) -> Iterator[Any]:
        return iter(self._iterable)

    def parts(self) -> list[SamplePart]:
        return []

    def follow_loop(self, batches: Iterator[Any]) -> Lookahead | None:
        return follow_loop(batches)
