"""Delivery of batches as they are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fastloader._core.batch.augmentation.augmentation import EpochDraws
from fastloader._core.delivery.path import DeliveryPath
from fastloader._core.handoff import Handoff, Plan
from fastloader._core.order.epoch_order import EpochOrder


class PlainPath(DeliveryPath):
    """Delivers batches as the source made them: the loop holds the source's own iterator."""

    # Users read the name in stats()["path"]. It has nothing to do with FASTLOADER_BACKEND=torch.
    name = "torch"
    words = "delivered as they are"

    def begin(
        self, plan: Plan, order: EpochOrder | None, draws: EpochDraws | None
    ) -> Iterator[Any]:
        handoff = Handoff(
            self.statistics,
            held_by_loop=True,
            normalization=plan.normalization,
            pin=True,
            depth=self._depth(),
        )
        return plan.open(order, handoff)
