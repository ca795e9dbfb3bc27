"""Batches gathered from arrays."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from fastloader._core.batch.augmentation import EpochDraws
from fastloader._core.handoff import Handoff
from fastloader._core.machine import devices, extension
from fastloader._core.machine.limits import GATHER_THREADS, counted
from fastloader._core.observation.statistics import (
    PER_PROCESSOR,
    AutoChoice,
    Figures,
    Stage,
    Statistics,
)
from fastloader._core.order.epoch_order import EpochOrder
from fastloader._core.order.loader import Loader
from fastloader._core.sources.arguments import check_native, check_no_image_options
from fastloader._core.sources.arrays.iterator import ArrayIterator, array_threads
from fastloader._core.sources.arrays.memory import ArrayMemory, warn_unpinned
from fastloader._core.sources.arrays.recognize import NativeArrays, holds_arrays, recognize_arrays
from fastloader.errors import NotNative
from fastloader.transforms._normalization import Normalization


class ArraySource:
    """Makes batches of a dataset whose rows lie in tensors or numpy arrays."""

    def __init__(self, statistics: Statistics) -> None:
        self.memory = ArrayMemory()
        self.last: Begun | None = None  # of the epoch begun last

    def plan(self, loader: Loader, wanted: Normalization | None) -> ArrayPlan | None:
        if not holds_arrays(loader.dataset):
            return None
        check_native(loader)
        if loader.worker_backend == "ray":
            raise NotNative(
                "arrays are gathered here, and worker_backend='ray' makes batches elsewhere"
            )
        check_no_image_options(loader, "the dataset is of arrays")
        return ArrayPlan(self, recognize_arrays(loader), loader)

    def forget_seed(self) -> None:
        """Draws a new base seed in the next epoch, as torch does if its persistent workers have
        ended."""
        self.last = None

    def figures(self, loader: Loader) -> Figures:
        memory = self.memory
        threads = None if self.last is None else self.last.threads
        stages: tuple[Stage, ...] = ()
        if memory.gathered:
            seconds, count, who = memory.gather_s, memory.gathered, GATHER_THREADS
            made = Stage("collate", seconds, count, "batch", who, threads or 1, bound="gather")
            stages = (made,)
        choice = None
        if threads is not None:
            choice = AutoChoice(threads, f"{PER_PROCESSOR}; threads that gather are not watched")
        return Figures(stages=stages, threads=threads, workers=choice)

    def stats(self, loader: Loader) -> dict[str, Any]:
        if self.last is None:
            return {}
        return {"arrays": {"threads": self.last.threads, **self.memory.stats()}}


class Begun(NamedTuple):
    """What is known of an epoch without its iterator, which ends when the loop drops it."""

    threads: int
    base_seed: int


class ArrayPlan:
    """One epoch of an `ArraySource`."""

    normalization: Normalization | None = None
    draws: EpochDraws | None = None
    normalizes = False
    fills_slots = False
    exclusive = False
    workers = GATHER_THREADS

    def __init__(self, source: ArraySource, arrays: NativeArrays, loader: Loader) -> None:
        self._source = source
        self._arrays = arrays
        self._loader = loader
        self.ahead = loader.num_workers > 0
        # Memory is pinned only for an accelerator, as in torch.
        self.pins = loader.pin_memory and devices.can_pin()

    def __str__(self) -> str:
        when = "ahead" if self.ahead else "when asked for"
        how = "by torch"
        if extension.load() is not None:
            how = f"by {counted(array_threads(self._loader.num_workers), 'thread')}"
        return f"arrays: {self._arrays.name}, gathered {when} {how}"

    def open(self, order: EpochOrder | None, handoff: Handoff) -> Iterator[Any]:
        assert order is not None
        source, loader = self._source, self._loader
        if source.last is None or not loader.persistent_workers:
            loader.check_worker_number_rationality()
        if loader.pin_memory and not self.pins:
            warn_unpinned()
        last = source.last
        iterator = ArrayIterator(
            self._arrays,
            loader,
            order,
            source.memory,
            handoff.statistics if handoff.held_by_loop else None,
            pin=self.pins and handoff.pin,
            # torch's persistent iterator draws its base seed once.
            base_seed=last.base_seed if loader.persistent_workers and last is not None else None,
        )
        source.last = Begun(iterator.threads, iterator.base_seed)
        return iterator

    def follow_loop(self, batches: Iterator[Any]) -> None:
        return None
