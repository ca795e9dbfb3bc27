"""One of the ways in which batches reach the training loop."""

from __future__ import annotations

import abc
from collections.abc import Iterator
from typing import Any, ClassVar

import torch

from fastloader._core.batch.augmentation import EpochDraws
from fastloader._core.delivery.spec import DeliverySpec
from fastloader._core.handoff import Handoff, LentMemory, Plan, Slots
from fastloader._core.machine import devices
from fastloader._core.observation.statistics import Figures, Statistics
from fastloader._core.observation.tuning import DepthRule
from fastloader._core.order.epoch_order import EpochOrder
from fastloader.transforms._normalization import Normalization


class DeliveryPath(abc.ABC):
    """One way of bringing batches to the training loop, chosen by a `Delivery`. A path belongs to the
    process that made it. It owns what must outlive an epoch: threads, pinned memory, side streams."""

    name: ClassVar[str]  # stats()["path"]
    words: ClassVar[str]  # the second half of plan()
    reads_ahead: ClassVar[bool] = False  # whether it takes batches before the loop wants them
    copies: ClassVar[bool] = False  # whether it copies every tensor of a batch

    def __init__(self, spec: DeliverySpec, statistics: Statistics) -> None:
        self.spec = spec
        self.statistics = statistics
        # Whether depth="auto" follows what this path sees of the last epoch.
        self.watches_depth = False

    @classmethod
    @abc.abstractmethod
    def serves(cls, spec: DeliverySpec, device: torch.device | None) -> bool:
        """Whether this path delivers to ``device`` what ``spec`` asks for. The paths are asked in the
        order of `delivery.PATHS`, and the first that serves is taken. ``device``: None if batches stay
        as their source made them. Starts nothing."""

    @abc.abstractmethod
    def begin(
        self, plan: Plan, order: EpochOrder | None, draws: EpochDraws | None
    ) -> Iterator[Any]:
        """Begins one epoch and returns an iterator over its delivered batches.

        Args:
            plan: opens the epoch of the source.
            order: the order of the epoch; None if no batches are counted.
            draws: what is erased and mixed in the epoch.
        """

    def figures(self) -> Figures:
        """The figures of this path since the loader was made."""
        return Figures()

    def stats(self) -> dict[str, Any]:
        """The part of ``stats()`` that this path knows."""
        return {}

    def end_epochs(self) -> None:  # noqa: B027
        """Ends what still runs for epochs that are not over."""

    def wait_for_sources(self, patience: float) -> bool:
        """Waits until no pump thread is in a source's ``next()`` any more, and returns whether that came
        true within ``patience`` seconds. To be called after `end_epochs`."""
        return True

    def close(self) -> None:  # noqa: B027
        """Ends the threads and frees the memory. Idempotent. To be called after `end_epochs`."""

    def _normalization(self, plan: Plan) -> Normalization | None:
        """How images are normalised: as the dataset's own transform asks, else as the loader was
        told."""
        return plan.normalization or self.spec.normalization

    def _handoff(
        self,
        plan: Plan,
        draws: EpochDraws | None,
        *,
        pin: bool = False,
        pumped: bool = False,
        slots: Slots | None = None,
        memory: LentMemory | None = None,
    ) -> Handoff:
        """A handoff for batches that this path normalises and takes further."""
        return Handoff(
            self.statistics,
            held_by_loop=False,
            draws=draws,
            channels_last=self._normalization(plan) is not None,
            pin=pin,
            reads_ahead=plan.ahead and self.reads_ahead,
            pumped=pumped,
            slots=slots,
            memory=memory,
            depth=self._depth(),
            copied=self.copies,
        )

    def _depth(self) -> int | DepthRule | None:
        return self.spec.depth_rule or self.spec.depth


def stays_on_cpu(device: torch.device | None) -> bool:
    """Whether batches stay on the CPU, where FASTLOADER_BACKEND sends them through no other path."""
    return device is None or (device.type == "cpu" and not devices.forced_backend())
