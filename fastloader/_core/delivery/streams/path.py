"""Delivery to any accelerator torch knows, as a path."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from fastloader._core.batch.augmentation import EpochDraws
from fastloader._core.delivery.path import DeliveryPath
from fastloader._core.delivery.spec import DeliverySpec
from fastloader._core.delivery.streams.delivery import StreamDelivery
from fastloader._core.delivery.streams.iterator import StreamIterator
from fastloader._core.handoff import Plan
from fastloader._core.observation.statistics import LOOP, Figures, Stage
from fastloader._core.order.epoch_order import EpochOrder


class StreamPath(DeliveryPath):
    """Copies and normalises batches on a side stream of torch."""

    name = "streams"
    words = "delivered to {device} through torch's streams"
    reads_ahead = True
    copies = True
    _streams: StreamDelivery | None = None  # the one of the epoch begun last

    @classmethod
    def serves(cls, spec: DeliverySpec, device: torch.device | None) -> bool:
        return device is not None

    def begin(
        self, plan: Plan, order: EpochOrder | None, draws: EpochDraws | None
    ) -> Iterator[Any]:
        batches = plan.open(order, self._handoff(plan, draws, pin=True))
        normalization = self._normalization(plan)
        if self._streams is None or self._streams.normalization != normalization:
            assert self.spec.device is not None
            self._streams = StreamDelivery(self.spec.device, normalization, self.statistics)
        return StreamIterator(batches, self._streams, plan.ahead, plan.follow_loop, draws)

    def figures(self) -> Figures:
        seconds, count = self.statistics.total("copy")
        stage = Stage("copy", seconds, count, "batch", LOOP, bound="copy")
        return Figures((stage,) if count else ())
