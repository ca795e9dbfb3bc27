"""Says what a delivery is: its checked arguments, the ways in which batches reach the training loop,
and the iterator that stands in for torch's."""

from __future__ import annotations

import abc
import warnings
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import torch
from torch.utils.data.dataloader import _DatasetKind

from fastloader._core.batch.augmentation import EpochDraws
from fastloader._core.batch.image_leaves import LeafCheck
from fastloader._core.batch.layout import opened
from fastloader._core.handoff import DEFAULT_DEPTH, Handoff, LentMemory, LoopFollower, Plan, Slots
from fastloader._core.machine import devices, extension
from fastloader._core.observation.statistics import Figures, LoopIterator, Statistics
from fastloader._core.observation.tuning import DepthRule
from fastloader._core.order.epoch_order import EpochOrder
from fastloader.transforms._normalization import Normalization, make_normalization

# ---- The checked arguments of a delivery: the device, the normalisation, the depth of a ring.


_MAX_DEPTH = 64


class DeliverySpec:
    """The checked arguments of a delivery. ``given`` is the device as it was given.

    Raises:
        TypeError, ValueError: for arguments that cannot work.
    """

    def __init__(
        self,
        device: str | int | torch.device | None,
        mean: Sequence[float] | None,
        std: Sequence[float] | None,
        dtype: torch.dtype | None,
        channels_last: bool,
        image_key: int | str | Sequence[int | str] | None,
        depth: int | str | None,
    ) -> None:
        self.given = device
        named = devices.check_device(device)
        self.normalization = make_normalization(mean, std, dtype, channels_last, image_key)
        self.depth = _checked_depth(depth)
        self.depth_rule = DepthRule(DEFAULT_DEPTH) if depth == "auto" else None
        if extension.load() is not None and self.normalization is not None:
            # Reports a wrong FASTLOADER_FORCE_ISA now, not at the first batch.
            extension.native.active_isa()
        devices.forced_backend()  # reports a wrong FASTLOADER_BACKEND now
        self.settled = False
        self._device: torch.device | None = None
        if device is None or (named is not None and named.type == "cpu"):
            self.settle()

    def settle(self) -> None:
        """Settles the device for good, at the first ``iter()``.

        It cannot be settled earlier. A device without a number is the current one, and scripts set it
        after they have made their loaders. CUDA that was started here would be of no use in a process
        that is forked later.
        """
        if not self.settled:
            self._device = devices.resolve_device(self.given)
            self.settled = True

    @property
    def device(self) -> torch.device | None:
        """The device that batches go to. It may lack its number before the first ``iter()``."""
        if self.settled:
            return self._device
        named = devices.check_device(self.given)
        return torch.device(devices.accelerator_type() or "cpu") if named is None else named


def _checked_depth(depth: int | str | None) -> int | None:
    if depth is None or depth == "auto":
        return None
    if isinstance(depth, bool) or not isinstance(depth, int):
        raise TypeError(f"depth must be a whole number of batches, 'auto' or None, got {depth!r}")
    if not 1 <= depth <= _MAX_DEPTH:
        raise ValueError(f"depth={depth}: the ring holds 1 to {_MAX_DEPTH} batches")
    return depth


# ---- One of the ways in which batches reach the training loop.


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
        self.leaf_check = LeafCheck()

    @classmethod
    @abc.abstractmethod
    def serves(cls, spec: DeliverySpec, device: torch.device | None) -> bool:
        """Returns whether this path delivers to ``device`` what ``spec`` asks for. The paths are asked
        in the order of `delivery.PATHS`, and the first that serves is taken. ``device``: None if batches
        stay as their source made them. Starts nothing."""

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
        """Returns the figures of this path since the loader was made."""
        return Figures()

    def stats(self) -> dict[str, Any]:
        """Returns the part of ``stats()`` that this path knows."""
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
        """Returns how images are normalised: as the dataset's own transform asks, else as the loader was
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
        """Makes a handoff for batches that this path normalises and takes further."""
        self.leaf_check.made_under = plan.made_under
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
    """Returns whether batches stay on the CPU, where FASTLOADER_BACKEND sends them through no other
    path."""
    return device is None or (device.type == "cpu" and not devices.forced_backend())


# ---- An iterator over delivered batches, which stands in for torch's iterator.


class DeliveryIterator(LoopIterator):
    """Takes batches from the source's iterator ``_batches``, which is None once this one is closed.
    Frameworks look at attributes of torch's iterator, such as ``_workers``: these are the source's."""

    _follower: LoopFollower | None = (
        None  # in the place of ``_batches``, of which batches are taken
    )

    def __init__(
        self,
        batches: Iterator[Any],
        statistics: Statistics,
        leaf_check: LeafCheck | None = None,
    ) -> None:
        super().__init__(statistics)
        self._batches: Iterator[Any] | None = batches
        self._num_yielded = 0
        self._opens = getattr(batches, "_lays_out", False) is True
        self._leaf_check = leaf_check or LeafCheck()  # whose warning it says
        self._leaf_check.lays_out = self._opens
        self._unopened: list[Any] = []  # a batch that is not opened yet: Ctrl-C may come in between
        # The source would warn of a wrong length too early, because it is ahead, and on a thread of
        # ours. This iterator warns in its place.
        self._promised: int | None = None
        if getattr(batches, "_dataset_kind", None) == _DatasetKind.Iterable:
            self._promised = batches._IterableDataset_len_called  # type: ignore[attr-defined]
            batches._IterableDataset_len_called = None  # type: ignore[attr-defined]

    def __next__(self) -> Any:
        batch = super().__next__()
        self._num_yielded += 1
        if self._promised is not None and self._num_yielded > self._promised:
            self._warn_of_length()
        if self._leaf_check.warning:
            self._leaf_check.say()
        return batch

    def _next_opened(self) -> Any:
        if not self._unopened:
            self._unopened.append(self._next())
        try:
            batch = opened(self._unopened[0])
        except Exception:
            self._unopened.clear()
            self._filled_place = True  # the error takes the batch's place
            raise
        self._unopened.clear()
        return batch

    def _warn_of_length(self) -> None:
        batches: Any = self._batches
        if batches is None:
            return
        # torch's words.
        text = (
            f"Length of IterableDataset {batches._dataset} was reported to be {self._promised}"
            f"(when accessing len(dataloader)), but {self._num_yielded} samples have been fetched. "
        )
        if batches._num_workers > 0:
            text += (
                "For multiprocessing data-loading, this could be caused by not properly configuring "
                "the IterableDataset replica at each worker. Please see "
                "https://pytorch.org/docs/stable/data.html#torch.utils.data.IterableDataset for "
                "examples."
            )
        warnings.warn(text, stacklevel=3)

    def close(self) -> None:
        """Ends the epoch early, from any thread. Further calls of ``next()`` raise StopIteration, and a
        call that is under way raises Error."""
        self._closed = True
        batches, self._batches = self._batches, None
        # Wakes what is still in the source: another thread may wait for a worker in the source's next(),
        # and decode threads may be at its pictures.
        waiting: Any = batches if self._follower is None else self._follower
        leave = getattr(type(waiting), "leave", None)
        if leave is not None:
            leave(waiting)

    def _shutdown_workers(self) -> None:
        """Ends the epoch and its workers; torch's worker iterator has a method of this name."""
        batches: Any = self._batches
        self.close()
        if batches is not None:
            batches._shutdown_workers()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or "_batches" not in self.__dict__:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        if self._batches is None:
            raise AttributeError(f"{name}: this iterator was closed and has no source any more")
        return getattr(self._batches, name)

    def __len__(self) -> int:
        if self._batches is None:
            raise TypeError("this iterator was closed and knows no length any more")
        return len(self._batches)  # type: ignore[arg-type]
