"""Delivery through the native ring and prefetch thread, as a path."""

from __future__ import annotations

import threading
import warnings
import weakref
from collections.abc import Iterator
from typing import Any

import torch

from fastloader._core.batch.augmentation import EpochDraws
from fastloader._core.delivery.engine.engine import Engine
from fastloader._core.delivery.engine.epoch import RingEpoch
from fastloader._core.delivery.engine.iterator import EngineIterator
from fastloader._core.delivery.engine.pump import end_everything
from fastloader._core.delivery.path import DeliveryPath
from fastloader._core.delivery.spec import DeliverySpec
from fastloader._core.handoff import DEFAULT_DEPTH, LentMemory, Plan
from fastloader._core.machine import devices, extension, process
from fastloader._core.machine.process import HomeProcess
from fastloader._core.observation.statistics import LOOP, Figures, Stage, Statistics
from fastloader._core.order.epoch_order import EpochOrder


class EnginePath(DeliveryPath):
    """Delivers to CUDA, or to the host twin in tests. The last epoch's engine serves the next epoch."""

    name = "engine"
    words = "delivered to {device} by the native prefetch thread"
    reads_ahead = True
    copies = True

    @classmethod
    def serves(cls, spec: DeliverySpec, device: torch.device | None) -> bool:
        """CUDA, and with FASTLOADER_BACKEND=host the CPU.

        Raises:
            ValueError: if FASTLOADER_BACKEND asks for the native module, which is not in use.
        """
        forced = devices.forced_backend()
        if device is None or forced == "torch":
            return False
        if device.type == "cpu" and forced == "host":
            if extension.load() is None:
                raise ValueError(
                    "FASTLOADER_BACKEND=host needs the native module, which is not in use: "
                    + (extension.problem() or "it is switched off or was left out on purpose")
                )
            return True
        if device.type != "cuda":
            return False
        problem = devices.native_cuda_problem()
        if problem and extension.load() is not None:
            _warn_once(f"{device} is served by torch's own streams, which is slower: {problem}")
        return not problem

    def __init__(self, spec: DeliverySpec, statistics: Statistics) -> None:
        super().__init__(spec, statistics)
        self._home = HomeProcess()
        self._idle: list[Engine] = []
        # Guards _idle. Reentrant, because a finalizer may run on any thread and in the middle of any
        # allocation, also on the thread that holds the lock.
        self._lock = threading.RLock()
        # Kept here because an epoch outlives its iterator while its pump is in the source's next().
        self._epochs: weakref.WeakSet[RingEpoch] = weakref.WeakSet()
        self._last_stats: dict[str, Any] = {}
        self._packer = LOOP  # the thread that packed the last epoch

    def begin(
        self, plan: Plan, order: EpochOrder | None, draws: EpochDraws | None
    ) -> Iterator[Any]:
        self._packer = "the pump" if plan.ahead else LOOP
        if plan.fills_slots:  # the ring first, because the source makes batches inside it
            epoch = self._begin_epoch(plan, draws)
            try:
                batches = plan.open(
                    order, self._handoff(plan, draws, pumped=plan.ahead, slots=epoch)
                )
            except BaseException:
                epoch.end()
                self._give_back(epoch.engine)
                raise
        else:
            # The source first: if it cannot begin, there is no epoch to end. In a process's first epoch
            # its workers are also forked before there are native threads, but later ones are not: the
            # last engine is kept. So nothing may depend on that.
            memory = LentMemory()
            batches = plan.open(order, self._handoff(plan, draws, pumped=plan.ahead, memory=memory))
            epoch = self._begin_epoch(plan, draws)
            memory.lend(epoch.engine.memory)
        return EngineIterator(
            epoch, batches, self.statistics, plan.ahead, plan.follow_loop, self._give_back
        )

    def _begin_epoch(self, plan: Plan, draws: EpochDraws | None) -> RingEpoch:
        process.at_exit(end_everything)
        if self.spec.depth_rule is not None:
            self.spec.depth_rule.begin()
        epoch = RingEpoch(self._take_engine(plan), draws)
        self._epochs.add(epoch)
        return epoch

    def _take_engine(self, plan: Plan) -> Engine:
        normalization = self._normalization(plan)
        rule = self.spec.depth_rule if plan.ahead else None
        self.watches_depth = rule is not None
        with self._lock:
            idle = self._idle.pop() if self._idle else None
        if idle is not None:
            prefetcher = idle.prefetcher
            # The exit hook closes an engine, and the device may fail behind the last epoch's end.
            unfit = prefetcher is None or prefetcher.failed()
            if not unfit and idle.normalization == normalization and idle.rule is rule:
                return idle
            idle.close()
        device = self.spec.device
        assert device is not None
        if rule is not None:
            return Engine(device, normalization, rule.depth, rule)
        # Two slots without look-ahead, so that the next batch can be packed while the last is copied.
        return Engine(
            device, normalization, self.spec.depth or (DEFAULT_DEPTH if plan.ahead else 2)
        )

    def _give_back(self, engine: Engine) -> None:
        prefetcher = engine.prefetcher
        if prefetcher is None:  # closed by the exit hook
            return
        self._last_stats = prefetcher.stats()
        with self._lock:
            # Only one engine is kept, which is what the next epoch needs. More than one at a time comes
            # from zip(loader, loader).
            if not self._idle and not prefetcher.failed():
                self._idle.append(engine)
                return
        engine.close()

    def end_epochs(self) -> None:
        for epoch in list(self._epochs):
            epoch.end()

    def wait_for_sources(self, patience: float) -> bool:
        return all([epoch.stop_pump(patience) for epoch in list(self._epochs)])

    def close(self) -> None:
        for epoch in list(self._epochs):
            if not epoch.stop_pump(patience=5):
                epoch.interrupt_pump()
        with self._lock:
            engines, self._idle = self._idle, []
        for engine in engines:
            prefetcher = engine.prefetcher
            engine.close()
            if prefetcher is not None:  # now that its threads have counted their last
                self._last_stats = prefetcher.stats()

    def figures(self) -> Figures:
        ring = self._ring_stats()
        if not ring:
            return Figures()
        count = int(ring["filled"])
        stages = []
        if ring["copied_bytes"]:
            stages.append(Stage("pack", ring["pack_s"], count, "batch", self._packer, bound="copy"))
        who = "the device, normalising too"
        stages.append(Stage("copy", ring["device_s"], count, "batch", who, 0, bound="copy"))
        return Figures(stages=tuple(stages), ring=ring)

    def stats(self) -> dict[str, Any]:
        ring = self._ring_stats()
        return {"ring": ring} if ring else {}

    def _ring_stats(self) -> dict[str, Any]:
        """The ring's statistics from the engine used last; empty without an engine."""
        if not self._home.here:  # a thread of the parent process may have held the lock
            return self._last_stats
        # Read first, because a prefetcher goes as soon as its epoch is over, perhaps on another thread.
        with self._lock:
            prefetchers = [epoch.prefetcher for epoch in list(self._epochs)]
            prefetchers += [engine.prefetcher for engine in self._idle]
        running = [prefetcher for prefetcher in prefetchers if prefetcher is not None]
        return running[0].stats() if running else self._last_stats


_warned: set[str] = set()


def _warn_once(text: str) -> None:
    if text not in _warned:
        _warned.add(text)
        warnings.warn(text, RuntimeWarning, stacklevel=4)
