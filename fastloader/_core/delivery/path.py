"""One of the ways in which batches reach the training loop."""

from __future__ import annotations

import abc
from collections.abc import Iterator
from typing import Any, ClassVar

from fastloader._core.batch.augmentation.augmentation import EpochDraws
from fastloader._core.delivery.spec import DeliverySpec
from fastloader._core.handoff import Handoff, Plan, Slots
from fastloader._core.observation.figures import Figures
from fastloader._core.observation.statistics import Statistics
from fastloader._core.observation.tuning.depth import DepthRule
from fastloader._core.order.epoch_order import EpochOrder
from fastloader.transforms._normalization import Normalization


class DeliveryPath(abc.ABC):
    """What a `Delivery` has chosen for its batches. It belongs to the process that made it, and what
    must outlive an epoch (threads, pinned memory, a side stream) belongs to it."""

    name: ClassVar[str]  # stats()["path"]
    words: ClassVar[str]  # the second half of plan()

    def __init__(self, spec: DeliverySpec, statistics: Statistics) -> None:
        self.spec = spec
        self.statistics = statistics
        # Whether depth="auto" follows what this path sees of the last epoch.
        self.watches_depth = False

    @abc.abstractmethod
    def begin(
        self, plan: Plan, order: EpochOrder | None, draws: EpochDraws | None
    ) -> Iterator[Any]:
        """One epoch: an iterator over delivered batches. ``draws``: what is erased and mixed in it."""

    def figures(self) -> Figures:
        """What it has to show since the loader was made."""
        return Figures()

    def stats(self) -> dict[str, Any]:
        """Its part of ``stats()``."""
        return {}

    def end_epochs(self) -> None:  # noqa: B027
        """Ends what runs for epochs that are not over."""

    def wait_for_sources(self, patience: float) -> bool:
        """Whether nobody is in a source's ``next()`` any more, ``patience`` seconds at most after
        `end_epochs`."""
        return True

    def close(self) -> None:  # noqa: B027
        """After `end_epochs`: ends the threads and frees the memory. Idempotent."""

    def _normalization(self, plan: Plan) -> Normalization | None:
        """What becomes of images: what their own transform asks for, else what the loader was given."""
        return plan.normalization or self.spec.normalization

    def _handoff(
        self,
        plan: Plan,
        *,
        pin: bool = False,
        pumped: bool = False,
        slots: Slots | None = None,
    ) -> Handoff:
        """For batches that are taken further from here, and normalised here."""
        return Handoff(
            self.statistics,
            counts=False,
            channels_last=self._normalization(plan) is not None,
            pin=pin,
            reads_ahead=plan.ahead and self.reads_ahead,
            pumped=pumped,
            slots=slots,
            depth=self._depth(),
        )

    reads_ahead: ClassVar[bool] = False  # takes batches before the loop wants them

    def _depth(self) -> int | DepthRule | None:
        return self.spec.depth_rule or self.spec.depth
