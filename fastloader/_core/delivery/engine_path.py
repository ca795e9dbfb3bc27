"""Delivers batches through the native ring and prefetch thread."""

from __future__ import annotations

import os
import threading
import warnings
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import torch

from fastloader._core.batch.augmentation import EpochDraws
from fastloader._core.batch.tree import fill_mask, unflatten
from fastloader._core.delivery.engine import (
    Credit,
    Engine,
    PackedBatch,
    RingEpoch,
    drain_log,
    end_everything,
    live_pumps,
    pump,
)
from fastloader._core.delivery.path import DeliveryIterator, DeliveryPath, DeliverySpec
from fastloader._core.handoff import DEFAULT_DEPTH, LentMemory, LoopFollower, Plan
from fastloader._core.machine import devices, extension, process
from fastloader._core.machine.process import HomeProcess
from fastloader._core.observation.statistics import (
    LOOP,
    Figures,
    Stage,
    Statistics,
    closed_meanwhile,
)
from fastloader._core.order.epoch_order import EpochOrder

# ---- One epoch through an Engine.


class EngineIterator(DeliveryIterator):
    """Delivers one epoch. With ``ahead`` a pump thread advances the source. Without it the training
    loop's own thread does, batch by batch, so that its RNG and thread-locals behave as with DataLoader.

    Args:
        follow_loop: the plan's method, which gives what keeps a pumped source's sampler in step.
        on_end: gets the engine back when the epoch is over.
    """

    def __init__(
        self,
        epoch: RingEpoch,
        source: Iterator[Any],
        statistics: Statistics,
        ahead: bool,
        follow_loop: Callable[[Iterator[Any]], LoopFollower | None],
        on_end: Callable[[Engine], None],
    ) -> None:
        self._epoch = epoch
        super().__init__(source, statistics, epoch.engine.packing.leaf_check)
        self._ahead = ahead
        self._timeout = 0.0  # seconds that next() waits; 0 for no limit
        # Without look-ahead, the batch that the source gave, until it is in the ring.
        self._given: list[Any] = []
        # Whether the ring may have moved on from a batch that the loop did not get.
        self._unsettled = False
        self._closing = weakref.finalize(self, _finish, epoch, on_end)
        live_pumps.add(epoch)
        if ahead:
            # Memory made during a capture belongs to the captured graph, so next() makes its own then.
            if not devices.is_capturing(epoch.engine.device):
                self._top_up(epoch.next_seq, required=False)
            # The pump thread is a daemon, because it may wait at a worker's queue. The exit hook ends it
            # in order.
            epoch.pumped = source
            epoch.follower = self._follower = follow_loop(source)
            if self._follower is not None:
                self._timeout = self._follower.hand_over_timeout()
            epoch.pump = threading.Thread(
                target=pump,
                args=(epoch, self._follower or source),
                name="fastloader-pump",
                daemon=True,
            )
            epoch.pump.start()

    def __next__(self) -> Any:
        delivered = super().__next__()
        if extension.native.log_pending():
            drain_log()
        return delivered

    def _check(self) -> None:
        super()._check()
        if self.progress is not None:
            self.progress.check()  # one that another epoch has ended says so
        if self._epoch.over:
            raise StopIteration
        devices.forbid_capture(self._epoch.engine.device)

    def _next(self) -> Any:
        """Delivers one batch. Ctrl-C or a lack of memory may break off every step, and the next call
        goes on there: only `_settle` moves on to the next batch."""
        epoch = self._epoch
        seq = epoch.next_seq
        self._filled_place = False
        if not self._ahead and epoch.fill_seq == seq:
            self._pull()
        packed, credit = self._arrive(seq)
        try:
            if self._follower is not None and packed.took:
                self._follower.taken(seq)
            if credit is None:
                assert packed.error is not None
                raise packed.error
            delivered = self._unflatten(packed, credit)
        except Exception:
            # Settled in both cases: the error took the batch's place, in which nothing comes any more,
            # or it came between two batches.
            self._settle(seq)
            self._filled_place = packed.took
            raise
        finally:
            # Break the cycle error -> traceback -> frame -> error, which would keep the batch and the
            # workers alive until the next garbage collection.
            del packed
        if self._ahead:
            # Offered now and not at the next call, so that the native thread can write into the memory
            # before this batch's training step has even begun.
            self._top_up(seq + 1, required=False)
            epoch.engine.watch_depth(credit, epoch)
        self._settle(seq)
        return delivered

    def _pull(self) -> None:
        """Puts the source's next batch into the ring, on the training loop's thread."""
        if not self._given:
            source: Any = self._batches  # None: closed meanwhile, which `waiting` says
            try:
                self._given.append(next(source))
            except StopIteration:
                self._closing()
                raise
            except Exception:
                self._filled_place = getattr(source, "_filled_place", True)
                raise
        try:
            self._epoch.put_batch(self._given[0])
        except Exception:  # the batch cannot be packed
            self._given.clear()
            self._filled_place = True
            raise

    def _arrive(self, seq: int) -> tuple[PackedBatch, Credit | None]:
        """Waits for batch ``seq``, and makes the current stream wait for it. Returns (entry, memory);
        the memory is None if an error has come."""
        epoch = self._epoch
        prefetcher, arrivals = epoch.prefetcher, extension.native.Arrival
        arrival = None
        if self._unsettled and prefetcher is not None and prefetcher.progress()[0] > seq:
            # An earlier call was broken off after this point, on an unknown stream.
            devices.synchronize(epoch.engine.device)
        else:
            arrival = self._wait()
        with epoch.turn:
            if epoch.over:
                raise closed_meanwhile()
            assert prefetcher is not None  # until the epoch is over
            self._unsettled = True
            if arrival is arrivals.BATCH:
                prefetcher.deliver(devices.consumer_stream(epoch.engine.device))
            elif arrival is arrivals.ERROR:
                prefetcher.skip()
            packed = epoch.pending[seq]
            # Memory may have been offered for what became an error. It is dropped, and the next credit
            # makes its own.
            return packed, None if packed.error is not None else epoch.credits[seq]

    def _wait(self) -> Any:
        epoch = self._epoch
        arrivals = extension.native.Arrival
        while True:
            prefetcher = epoch.prefetcher
            if prefetcher is None:
                raise closed_meanwhile()
            arrival = prefetcher.wait_arrival(epoch.number, self._timeout)
            if arrival is arrivals.NEEDS_CREDIT:
                self._top_up(epoch.next_seq, required=True)
            elif arrival is arrivals.END:
                self._closing()
                raise StopIteration
            elif arrival is arrivals.TIMEOUT:
                raise RuntimeError(f"DataLoader timed out after {self._timeout} seconds")
            elif arrival is arrivals.OVER:
                raise closed_meanwhile()
            else:
                return arrival

    def _settle(self, seq: int) -> None:
        epoch = self._epoch
        epoch.next_seq = seq + 1
        self._filled_place = True
        self._unsettled = False
        self._given.clear()
        settled = epoch.pending.pop(seq, None)
        epoch.credits.pop(seq, None)
        if epoch.draws is not None and settled is not None:
            epoch.draws.delivered = settled.drawn

    def _top_up(self, first: int, required: bool) -> None:
        """Offers memory for every batch of the window, from ``first`` on, that lacks it. A batch that is
        already in the ring gets its own size, a batch to come gets the size of the last one. Only if
        ``required`` must the first one fit: running out of memory while looking ahead is not the user's
        error, and lowers the depth."""
        epoch = self._epoch
        if not required and not epoch.engine.looks_ahead:
            return
        with epoch.turn:
            if epoch.over:
                return
            assert epoch.prefetcher is not None  # until the epoch is over
            ahead = self._ahead and epoch.engine.looks_ahead
            for seq, filled in epoch.prefetcher.uncredited(ahead):
                layout = epoch.pending[seq].layout if filled else epoch.engine.last_layout
                if layout is None:
                    continue
                must = required and seq == first
                try:
                    credit = epoch.engine.make_credit(layout)
                except RuntimeError as error:
                    if must or not devices.is_out_of_memory(error):
                        raise
                    epoch.engine.lower(seq - first)
                    return
                self._offer(seq, credit)

    def _offer(self, seq: int, credit: Credit) -> None:
        epoch = self._epoch
        # Stored before it is offered, because the native thread may write there from then on.
        epoch.credits[seq] = credit
        addresses = [output.data_ptr() for output in credit.outputs]
        if credit.layout.records:
            addresses.append(0)
        assert epoch.prefetcher is not None  # until the epoch is over
        epoch.prefetcher.give_credit(
            seq=seq,
            layout=credit.layout.native,
            outputs=addresses,
            staging=0 if credit.staging is None else credit.staging.data_ptr(),
            stream=credit.stream,
        )
        epoch.stream = credit.stream

    def _unflatten(self, packed: PackedBatch, credit: Credit) -> Any:
        epoch = self._epoch
        device = epoch.engine.device
        if devices.consumer_stream(device) != credit.stream:
            # Recorded before anything else, because what follows may raise and free the memory.
            devices.record_stream(credit.memory, device)
        outputs = credit.outputs
        if credit.masks:
            outputs = [*outputs]
            for index, mask in credit.masks.items():
                outputs[index] = fill_mask(mask, outputs[index])
        if credit.layout.mixed is not None:
            outputs = [*outputs]
            assert epoch.draws is not None and epoch.draws.augmentation.mixing is not None
            target, weights = credit.layout.mixed
            outputs[target] = epoch.draws.augmentation.mixing.target(
                outputs[target], outputs[weights]
            )
        return unflatten(packed.template, outputs, lambda value: devices.move(value, device))

    def close(self) -> None:
        """Ends the epoch early, from any thread. Further calls of ``next()`` raise StopIteration, and a
        call that is under way raises Error."""
        self._closed = True
        self._closing()
        super().close()
        self._follower = None


def _finish(epoch: RingEpoch, on_end: Callable[[Engine], None]) -> None:
    if not epoch.home.here:
        return
    try:
        epoch.end()
    finally:
        on_end(epoch.engine)


# ---- Delivery through the native ring and prefetch thread, as a path.


class EnginePath(DeliveryPath):
    """Delivers to CUDA, or to the host twin in tests. The last epoch's engine serves the next epoch."""

    name = "engine"
    words = "delivered to {device} by the native prefetch thread"
    reads_ahead = True
    copies = True

    @classmethod
    def serves(cls, spec: DeliverySpec, device: torch.device | None) -> bool:
        """Serves CUDA, and with FASTLOADER_BACKEND=host the CPU.

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
            return Engine(device, normalization, self.leaf_check, rule.depth, rule)
        # Two slots without look-ahead, so that the next batch can be packed while the last is copied.
        depth = self.spec.depth or (DEFAULT_DEPTH if plan.ahead else 2)
        return Engine(device, normalization, self.leaf_check, depth)

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
        where = "the device, normalising too"
        stages.append(Stage("copy", ring["device_s"], count, "batch", where, 0, bound="copy"))
        return Figures(stages=tuple(stages), ring=ring)

    def stats(self) -> dict[str, Any]:
        ring = self._ring_stats()
        return {"ring": ring} if ring else {}

    def _ring_stats(self) -> dict[str, Any]:
        """Returns the ring's statistics from the engine used last; empty without an engine."""
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
    """Warns of what is so on every rank of this machine: the first one does."""
    if text not in _warned and os.environ.get("LOCAL_RANK", "0") == "0":
        _warned.add(text)
        warnings.warn(text, RuntimeWarning, stacklevel=4)
