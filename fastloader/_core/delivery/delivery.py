"""Which way batches take: checked arguments in, iterators out. Shared by FastLoader and
DevicePrefetcher."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from fastloader._core.batch.augmentation.augmentation import Augmentation, BeginDraws, EpochDraws
from fastloader._core.delivery.cpu import CpuDelivery
from fastloader._core.delivery.engine.engine import Engine
from fastloader._core.delivery.engine.epoch import Epoch
from fastloader._core.delivery.engine.iterator import EngineIterator
from fastloader._core.delivery.engine.pump import end_everything
from fastloader._core.delivery.spec import check_environment, checked_depth, choose_path
from fastloader._core.delivery.streams.delivery import StreamDelivery
from fastloader._core.delivery.streams.iterator import StreamIterator
from fastloader._core.handoff import AHEAD
from fastloader._core.machine import devices, process
from fastloader._core.observation.statistics import Statistics
from fastloader._core.tuning.depth import DepthRule
from fastloader.errors import Error
from fastloader.transforms._normalization import Normalization, make_normalization

# Seconds: how long a pump may take to leave its source. torch's iterators take a tenth of one.
_PATIENCE = 60.0


class Delivery:
    """Where batches go and what becomes of them on the way.

    ``path`` is one of ``"torch"`` (nothing to do: torch's own iterator), ``"cpu"`` (normalised on the
    consumer's thread), ``"engine"`` (native prefetch thread: CUDA, or the twin) and ``"streams"``
    (torch's streams on any accelerator).
    """

    def __init__(
        self,
        device: str | int | torch.device | None,
        mean: Sequence[float] | None,
        std: Sequence[float] | None,
        dtype: torch.dtype | None,
        channels_last: bool,
        image_key: int | str | None,
        depth: int | str | None,
    ) -> None:
        self.arguments = (device, mean, std, dtype, channels_last, image_key, depth)
        named = devices.check_device(device)
        self.normalization = make_normalization(mean, std, dtype, channels_last, image_key)
        self.depth = checked_depth(depth)
        self.depth_rule = DepthRule(AHEAD) if depth == "auto" else None
        self.watches_depth = False  # by the engine of the last epoch
        self.statistics = Statistics()
        check_environment(self.normalization)
        self._settled: tuple[torch.device | None, str] | None = None
        if device is None or (named is not None and named.type == "cpu"):
            self.settle()
        self.augmentation: Augmentation | None = None
        self._cpu: CpuDelivery | None = None
        self._streams: StreamDelivery | None = None
        self._idle: list[Engine] = []
        self._iterators: weakref.WeakSet[Any] = weakref.WeakSet()
        # Epochs outlive their iterator while their pump is still in the source's next().
        self._epochs: weakref.WeakSet[Epoch] = weakref.WeakSet()
        self._pid = os.getpid()
        # Guards _idle: a finalizer may run on any thread, and in the middle of any allocation, also
        # of the thread that holds the lock.
        self._lock = threading.RLock()
        self._last_engine_stats: dict[str, Any] = {}

    def settle(self) -> None:
        """At the first ``iter()``, device and path are chosen for good. Not before: a device without a
        number is the current one, which scripts set after they have made their loaders, and CUDA that
        was started here would be of no use in a process that is forked later."""
        if self._settled is None:
            device = devices.resolve_device(self.arguments[0])
            self._settled = device, choose_path(device, self.normalization)

    @property
    def device(self) -> torch.device | None:
        """Before the first ``iter()`` perhaps without its number."""
        if self._settled is not None:
            return self._settled[0]
        named = devices.check_device(self.arguments[0])
        return torch.device(devices.accelerator_type() or "cpu") if named is None else named

    @property
    def path(self) -> str:
        """Before the first ``iter()``, what it would be now."""
        return (
            choose_path(self.device, self.normalization)
            if self._settled is None
            else self._settled[1]
        )

    def augment(self, augmentation: Augmentation | None) -> None:
        """What to erase and mix from the next iter() on; None: nothing. Raises ValueError unless images
        are normalised here."""
        if augmentation is not None and self.normalization is None:
            raise ValueError(
                "erasing and mixing are done while images are normalised: give mean and std, or dtype"
            )
        self.augmentation = augmentation

    def _draws(self, begin: BeginDraws) -> EpochDraws | None:
        """To be called before the source is made, which may draw from the same generator sooner or
        later, so that every path sees the same state."""
        return None if self.augmentation is None else begin(self.augmentation)

    def iterate(
        self,
        make_source: Callable[[], Iterator[Any]],
        ahead: bool,
        pin: bool = False,
        begin_draws: BeginDraws = Augmentation.begin,
    ) -> Iterator[Any]:
        """An iterator over delivered batches. ``ahead`` allows the source to be advanced before a batch
        is asked for. ``pin``: where they are made on the CPU, in torch's pinned memory."""
        self._begin_in_this_process()
        draws = self._draws(begin_draws)
        # The source first: worker processes are forked before native threads start.
        source = make_source()
        if self.path == "torch":
            return source
        iterator = self._wrap(source, ahead, self.normalization, draws, pin)
        self._iterators.add(iterator)
        return iterator

    def adopt(self, iterator: Any) -> Any:
        """Ends an iterator that needs no delivery together with the others."""
        self._begin_in_this_process()
        self._iterators.add(iterator)
        return iterator

    def iterate_images(
        self,
        make_source: Callable[[Epoch | None], Iterator[Any]],
        normalization: Normalization | None,
        pin: bool,
        begin_draws: BeginDraws = Augmentation.begin,
    ) -> Iterator[Any]:
        """The same for pictures. On the engine path ``make_source`` gets the epoch in whose slots it
        makes its batches, otherwise None. On the CPU the source's batches are what is delivered,
        unless they are to be augmented."""
        self._begin_in_this_process()
        draws = self._draws(begin_draws)
        iterator: Iterator[Any]
        if self.path == "engine":
            epoch = self._begin_epoch(True, normalization, draws)
            try:
                source = make_source(epoch)
            except BaseException:
                epoch.end()
                self._give_back(epoch.engine)
                raise
            iterator = EngineIterator(epoch, source, self.statistics, True, self._give_back)
        else:
            iterator = make_source(None)
            if self.path == "streams" or draws is not None:
                iterator = self._wrap(iterator, True, normalization, draws, pin)
        self._iterators.add(iterator)
        return iterator

    def _wrap(
        self,
        source: Iterator[Any],
        ahead: bool,
        normalization: Normalization | None,
        draws: EpochDraws | None,
        pin: bool,
    ) -> Iterator[Any]:
        if self.path == "cpu":
            assert self.normalization is not None
            if self._cpu is None:
                self._cpu = CpuDelivery(self.normalization, self.statistics)
            return self._cpu.iterate(source, draws, pin)
        assert self.device is not None
        if self.path == "streams":
            if self._streams is None or self._streams.normalization != normalization:
                self._streams = StreamDelivery(self.device, normalization, self.statistics)
            return StreamIterator(source, self._streams, ahead, draws)
        epoch = self._begin_epoch(ahead, normalization, draws)
        return EngineIterator(epoch, source, self.statistics, ahead, self._give_back)

    def _begin_epoch(
        self, ahead: bool, normalization: Normalization | None, draws: EpochDraws | None
    ) -> Epoch:
        process.at_exit(end_everything)
        if self.depth_rule is not None:
            self.depth_rule.begin()
        epoch = Epoch(self._take_engine(ahead, normalization), draws)
        self._epochs.add(epoch)
        return epoch

    def _begin_in_this_process(self) -> None:
        self.settle()
        if self._pid != os.getpid():
            # In a forked child: the parent's threads are not here. What they own is left alone.
            self._pid = os.getpid()
            self._lock = threading.RLock()
            self._idle = []
            self._iterators = weakref.WeakSet()
            self._epochs = weakref.WeakSet()
            self._cpu = None
            self._streams = None

    def _take_engine(self, ahead: bool, normalization: Normalization | None) -> Engine:
        rule = self.depth_rule if ahead else None
        self.watches_depth = rule is not None
        with self._lock:
            idle = self._idle.pop() if self._idle else None
        if idle is not None:
            if idle.normalization == normalization and idle.rule is rule:
                return idle
            idle.close()
        assert self.device is not None
        if rule is not None:
            return Engine(self.device, normalization, rule.depth, rule)
        # Without look-ahead a second slot lets the next batch be packed while the last is copied.
        return Engine(self.device, normalization, self.depth or (AHEAD if ahead else 2))

    def _give_back(self, engine: Engine) -> None:
        if engine.prefetcher is None:  # closed by the exit hook
            return
        self._last_engine_stats = engine.prefetcher.stats()
        with self._lock:
            # More than one at a time is zip(loader, loader); one is what the next epoch needs.
            if not self._idle and engine.healthy:
                self._idle.append(engine)
                return
        engine.close()

    def end_iterators(self) -> None:
        """Ends every live iterator and waits until no pump is in the source any more, so that it may be
        iterated anew. Raises Error if one does not come back from it."""
        if not all([epoch.stop_pump(_PATIENCE) for epoch in self._end_epochs()]):
            raise Error(
                f"the source is still at a batch of the epoch before, {_PATIENCE:g} s after that was "
                "ended, so that no new one can begin: it waits for something in its own next()"
            )

    def _end_epochs(self) -> list[Epoch]:
        epochs = list(self._epochs)
        iterators = list(self._iterators)
        # At first, so that a next() that is under way knows what has happened to it.
        for iterator in iterators:
            iterator._closed = True
        for epoch in epochs:
            epoch.end()
        for iterator in iterators:
            iterator.close()
        return epochs

    def close(self) -> None:
        """Idempotent: ends every live iterator, then the threads, then frees the pinned memory."""
        if self._pid != os.getpid():
            return
        for epoch in self._end_epochs():
            if not epoch.stop_pump(patience=5):
                epoch.interrupt_pump()
        with self._lock:
            engines, self._idle = self._idle, []
        for engine in engines:
            prefetcher = engine.prefetcher
            engine.close()
            if prefetcher is not None:  # now that its threads have counted their last
                self._last_engine_stats = prefetcher.stats()

    def stats(self) -> dict[str, Any]:
        counted: dict[str, Any] = {
            "path": self.path,
            "device": None if self.device is None else str(self.device),
            "batches": self.statistics.batches,
            "errors": self.statistics.errors,
            "wait_s": self.statistics.wait_s,
            "edge_wait_s": self.statistics.edge_wait_s,
            "step_s": self.statistics.step_s,
        }
        if self._cpu is not None:
            counted.update(self._cpu.stats())
        ring = self.ring_stats()
        if ring:
            counted["ring"] = ring
        return counted

    def ring_stats(self) -> dict[str, Any]:
        """Of the engine used last; empty without one."""
        if self._pid != os.getpid():  # a thread of the parent's may have held its lock
            return self._last_engine_stats
        # A prefetcher goes as soon as its epoch is over, on another thread perhaps.
        with self._lock:
            prefetchers = [epoch.prefetcher for epoch in list(self._epochs)]
            prefetchers += [engine.prefetcher for engine in self._idle]
        running = [prefetcher for prefetcher in prefetchers if prefetcher is not None]
        return running[0].stats() if running else self._last_engine_stats
