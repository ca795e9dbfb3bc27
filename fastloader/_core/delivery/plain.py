"""Delivery of batches as they are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from fastloader._core.batch.augmentation import EpochDraws
from fastloader._core.delivery.path import DeliveryPath, stays_on_cpu
from fastloader._core.delivery.spec import DeliverySpec
from fastloader._core.handoff import Handoff, Plan
from fastloader._core.order.epoch_order import EpochOrder


class PlainPath(DeliveryPath):
    """Delivers batches as the source made them: the loop holds the source's own iterator."""

    # Users read the name in stats()["path"]. It has nothing to do with FASTLOADER_BACKEND=torch.
    name = "torch"
    words = "delivered as they are"

    @classmethod
    def serves(cls, spec: DeliverySpec, device: torch.device | None) -> bool:
        return spec.normalization is None and stays_on_cpu(device)

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
