"""The delivery of one loader: `FastLoader` and `DevicePrefetcher` each own one."""

from __future__ import annotations

import logging
import weakref
from collections.abc import Iterator
from typing import Any

import torch

from fastloader._core.batch.augmentation import Augmentation
from fastloader._core.delivery.cpu import CpuPath, PlainPath
from fastloader._core.delivery.engine_path import EnginePath
from fastloader._core.delivery.path import DeliveryPath, DeliverySpec
from fastloader._core.delivery.streams import StreamPath
from fastloader._core.handoff import Plan
from fastloader._core.machine.process import HomeProcess
from fastloader._core.observation.statistics import Figures, LoopIterator, Statistics
from fastloader._core.order.epoch_order import EpochOrder
from fastloader.errors import Error
from fastloader.transforms._normalization import Normalization

_log = logging.getLogger("fastloader")

# Seconds that a pump thread may take to leave its source. torch's iterators take a tenth of a second.
_PATIENCE = 60.0

# Asked in this order, and the first that serves the device is taken. `StreamPath` serves every device.
PATHS: tuple[type[DeliveryPath], ...] = (PlainPath, CpuPath, EnginePath, StreamPath)


class Delivery:
    """Brings the batches of one loader to the training loop, and changes them on the way. Every iterator
    that a training loop can hold passes through `begin`."""

    def __init__(self, spec: DeliverySpec) -> None:
        self.spec = spec
        self.statistics = Statistics()
        self.augmentation: Augmentation | None = None
        self._chosen: type[DeliveryPath] | None = None
        self._path: DeliveryPath | None = None  # made when the first epoch begins
        self._live: weakref.WeakSet[Any] = weakref.WeakSet()
        self._home = HomeProcess()
        if spec.settled:
            self.settle()

    def settle(self) -> None:
        """Chooses device and path for good, at the first ``iter()``."""
        self.spec.settle()
        if self._chosen is None:
            self._chosen = self._choose()

    def _choose(self) -> type[DeliveryPath]:
        device = self.device
        for kind in PATHS:
            if kind.serves(self.spec, device):
                return kind
        raise Error(f"no delivery brings batches to device {device}")

    @property
    def device(self) -> torch.device | None:
        """The device that batches go to. It may lack its number before the first ``iter()``."""
        return self.spec.device

    @property
    def path(self) -> str:
        """The name of the path. Before the first ``iter()``, the name that it would have now."""
        return self._kind.name

    @property
    def _kind(self) -> type[DeliveryPath]:
        return self._choose() if self._chosen is None else self._chosen

    @property
    def is_plain(self) -> bool:
        """Whether the loop gets the batches as their source made them."""
        return self._kind is PlainPath

    def __str__(self) -> str:
        """Says what becomes of the batches: the second half of ``loader.plan()``."""
        return self._kind.words.format(device=self.device)

    @property
    def normalization(self) -> Normalization | None:
        return self.spec.normalization

    @property
    def watches_depth(self) -> bool:
        """Whether depth="auto" follows what the path saw of the last epoch."""
        return self._path is not None and self._path.watches_depth

    def augment(self, augmentation: Augmentation | None) -> None:
        """Sets what is erased and mixed from the next ``iter()`` on; None for nothing.

        Raises:
            ValueError: if this delivery does not normalise images.
        """
        if augmentation is not None and self.normalization is None:
            raise ValueError(
                "erasing and mixing are done while images are normalised: give mean and std, or dtype"
            )
        self.augmentation = augmentation

    def begin(self, plan: Plan, order: EpochOrder | None = None) -> Iterator[Any]:
        """Begins one epoch and returns its iterator. ``order`` is None if no batches are counted."""
        path = self._path_here()
        _log.info("fastloader: an epoch begins: %s; batches are %s", plan, self)
        if plan.exclusive and not isinstance(path, PlainPath):
            if order is not None:
                order.supersede()
            self.end_iterators()
        # Drawn before the source begins. The source may draw from the same generator, sooner on one
        # path and later on another.
        normalizes = plan.normalization is not None or self.normalization is not None
        draws = plan.draws if normalizes else None
        if self.augmentation is not None:
            if plan.normalization is not None and plan.draws is not None:
                raise ValueError(
                    "the dataset's transform or collate_fn erases or mixes normalised images, and so "
                    "does this loader: leave one of the two out"
                )
            begin = Augmentation.begin if order is None else order.begin_draws
            draws = begin(self.augmentation)
        iterator = path.begin(plan, order, draws)
        # Only our own iterators are ended by `close`, and not one that a plain path passes on from an
        # iterable of the user's.
        if isinstance(iterator, LoopIterator) and not (order is None and self.is_plain):
            self._live.add(iterator)
        return iterator

    def _path_here(self) -> DeliveryPath:
        self.settle()
        if not self._home.here:
            # This is a forked child, which does not have the parent's threads. It leaves alone what
            # those threads own.
            self._home = HomeProcess()
            self._live = weakref.WeakSet()
            self._path = None
        if self._path is None:
            self._path = self._kind(self.spec, self.statistics)
        return self._path

    def end_iterators(self) -> None:
        """Ends every live iterator and waits until no pump thread is in the source any more. The source
        may then be iterated anew.

        Raises:
            Error: if a pump thread does not come back from the source.
        """
        if self._path is None or not self._home.here:
            return
        self._end_live(self._path)
        if not self._path.wait_for_sources(_PATIENCE):
            raise Error(
                f"the source is still at a batch of the epoch before, {_PATIENCE:g} s after that was "
                "ended, so that no new one can begin: it waits for something in its own next()"
            )

    def _end_live(self, path: DeliveryPath) -> None:
        iterators = list(self._live)
        # Marked before anything is ended, so that a next() that is under way knows why it ended.
        for iterator in iterators:
            iterator._closed = True
        path.end_epochs()
        for iterator in iterators:
            iterator.close()

    def close(self) -> None:
        """Ends every live iterator, then the threads, then frees the pinned memory. Idempotent."""
        if self._path is not None and self._home.here:
            self._end_live(self._path)
            self._path.close()

    def figures(self) -> Figures:
        """Returns the figures of this delivery since the loader was made."""
        return Figures() if self._path is None else self._path.figures()

    def stats(self) -> dict[str, Any]:
        """Returns the part of ``stats()`` that the delivery knows."""
        statistics = self.statistics
        return {
            "path": self.path,
            "device": None if self.device is None else str(self.device),
            "batches": statistics.batches,
            "errors": statistics.errors,
            "wait_s": statistics.wait_s,
            "edge_wait_s": statistics.edge_wait_s,
            "step_s": statistics.step_s,
            **({} if self._path is None else self._path.stats()),
        }
