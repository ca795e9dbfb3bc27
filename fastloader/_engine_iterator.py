"""One epoch through an Engine."""

from __future__ import annotations

import collections
import contextlib
import ctypes
import dataclasses
import logging
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any

from fastloader import _torch, _trace
from fastloader._augmentation import EpochDraws
from fastloader._batch import put_together
from fastloader._engine import Credit, Engine, Plan
from fastloader._in_step import InStep, put_in_step
from fastloader._iterator import DeliveryIterator
from fastloader._progress import Progress
from fastloader._statistics import Statistics
from fastloader.errors import BackendError

_log = logging.getLogger("fastloader")

_LAST_PATIENCE = 15.0  # seconds, for a source that hangs in code of its own, not of torch's


@dataclasses.dataclass
class Pending:
    """What was put into the ring and not delivered yet: a batch's structure, or an error."""

    template: Any = None
    plan: Plan | None = None
    error: BaseException | None = None


class Epoch:
    """What iterator, pump thread and finalizer share. It holds no reference to the iterator, so that
    dropping that ends the epoch."""

    def __init__(self, engine: Engine, draws: EpochDraws | None) -> None:
        self.engine = engine
        self.draws = draws
        self.pid = os.getpid()
        # Not asked of the engine again, which lets go of it when it is closed.
        self.prefetcher = engine.prefetcher
        self.number, self.next_seq = self.prefetcher.open_epoch()
        # In the order of the ring. An entry is appended before its batch is put into the ring, so
        # that whoever sees the batch finds the entry.
        self.pending: collections.deque[Pending] = collections.deque()
        self.credits: dict[int, Credit] = {}
        self.stream = _torch.consumer_stream(engine.device)
        self.over = False
        self.pump: threading.Thread | None = None
        # The source, while a pump is in it. Without a pump only the iterator holds it: the finalizer
        # keeps the epoch alive, and a data set that leads to its own iterator could not be collected.
        self.pumped: Iterator[Any] | None = None
        # The slot in which a source made what its next() gave or raised last, if it makes its batches
        # in slots of its own reserving; set on the thread that calls that next().
        self.place: Any = None
        # Makes such a source stop working for an epoch that is over.
        self.stop_source: Callable[[], None] | None = None

    def reserve(self, size: int) -> Any | None:
        """A slot with room for ``size`` bytes, waiting for one; None once the epoch is over. What is
        reserved is put in the same order, each through `place`."""
        prefetcher = self.prefetcher
        return None if prefetcher is None else prefetcher.reserve(self.number, size)

    def put_batch(self, batch: Any) -> bool:
        """Packs a batch into the ring, waiting for a slot; False once the epoch is over. Raises what
        the batch is refused for, leaving the ring as it was."""
        prefetcher, place = self.prefetcher, self.place
        self.place = None
        if prefetcher is None:
            return False
        appended = False
        try:
            template, plan, sources = self.engine.pack(batch, self.draws)
            addresses = [source.data_ptr() for source in sources]
            self.pending.append(Pending(template, plan))
            appended = True
            if place is None:
                put = prefetcher.push(self.number, plan.native, addresses)
            else:
                put = place.commit(plan.native, addresses)
        except BaseException:
            self.place = place  # the error's, now
            if appended:
                with contextlib.suppress(IndexError):  # end() may have cleared it meanwhile
                    self.pending.pop()
            raise
        self.engine.last_plan = plan
        return bool(put)

    def put_error(self, error: BaseException) -> bool:
        prefetcher, place = self.prefetcher, self.place
        self.place = None
        if prefetcher is None:
            return False
        self.pending.append(Pending(error=error))
        if place is None:
            return bool(prefetcher.put_error(self.number))
        return bool(place.commit_error())

    def put_end(self) -> None:
        prefetcher = self.prefetcher
        if prefetcher is not None:
            prefetcher.put_end(self.number)

    def end(self) -> None:
        """Idempotent. Nothing is written into undelivered memory any more, and the stream that owns
        it waits for what is still on its way."""
        if self.over or self.pid != os.getpid():
            return
        self.over = True
        # Each stream on which memory was made waits for what may still be written there: a consumer
        # that has changed its stream has credits of both, and each goes back to where it was made.
        streams = {self.stream, *(credit.stream for credit in [*self.credits.values()])}
        self.prefetcher.cancel([*streams])
        self.prefetcher = None
        if self.stop_source is not None:
            self.stop_source()
        self.credits.clear()
        self.pending.clear()
        if isinstance(self.pumped, InStep):
            self.pumped.leave()
        # Workers shut down with the last reference, here or on the pump's thread.
        self.pumped = None

    def stop_pump(self, patience: float | None) -> None:
        """Waits until the pump has left the source. With ``patience`` (seconds), a pump that still
        waits for a worker then is interrupted, and torch's workers are shut down."""
        pump = self.pump
        source: Any = self.pumped
        self.end()
        if pump is None or self.pid != os.getpid() or pump is threading.current_thread():
            return
        pump.join(patience)
        if not pump.is_alive():
            return
        # torch's iterator polls its queue every five seconds, so that is when this arrives.
        ctypes.pythonapi.PyThreadState_SetAsyncExc(
            ctypes.c_ulong(pump.ident or 0), ctypes.py_object(SystemExit)
        )
        if hasattr(source, "_shutdown_workers"):
            source._shutdown_workers()
        pump.join(_LAST_PATIENCE)
        if pump.is_alive():
            _log.warning("the source of a loader did not return; its thread is left to itself")


class EngineIterator(DeliveryIterator):
    """Delivers one epoch. With ``ahead`` a pump thread advances the source; without, the consumer's
    own thread does, batch by batch, so that its RNG and thread-locals behave as with DataLoader.

    ``on_end(engine)`` gets the engine back when the epoch is over.
    """

    progress: Progress | None = None  # set on the iterator that the user gets

    def __init__(
        self,
        epoch: Epoch,
        source: Iterator[Any],
        statistics: Statistics,
        ahead: bool,
        on_end: Callable[[Engine], None],
    ) -> None:
        self._epoch = epoch
        super().__init__(source)
        self._statistics = statistics
        self._ahead = ahead
        self._in_step: InStep | None = None
        self._timeout = 0.0  # seconds, of next(); 0 is none
        self._closing = weakref.finalize(self, _finish, epoch, on_end)
        live.add(epoch)
        if ahead:
            # Memory made during a capture belongs to its graph; next() will make its own.
            if not _torch.is_capturing(epoch.engine.device):
                self._top_up(required=False)
            # A daemon, because it may sit in a worker's queue; the exit hook below ends it in order.
            epoch.pumped = source
            self._in_step = put_in_step(source)
            if self._in_step is not None:
                # It counts from next(), not from when the pump begins to wait.
                self._timeout, self._in_step._timeout = self._in_step._timeout, 0
            epoch.pump = threading.Thread(
                target=_pump, args=(epoch, source), name="fastloader-pump", daemon=True
            )
            epoch.pump.start()

    def _take(self) -> Any:
        epoch = self._epoch
        if epoch.pid != os.getpid():
            raise RuntimeError(
                f"this iterator belongs to process {epoch.pid}, this is process {os.getpid()}: call "
                "iter() on the loader to get one here"
            )
        if self.progress is not None:
            self.progress.check()  # one that another epoch has ended says so
        if epoch.over:
            raise StopIteration
        _torch.forbid_capture(epoch.engine.device)
        with self._statistics.waiting(self.progress):
            try:
                delivered = self._next()
            except BackendError:
                epoch.engine.healthy = False
                raise
        self._statistics.batches += 1
        self._count()
        if epoch.engine.native.log_pending():
            _drain_log(epoch.engine.native)
        return delivered

    def _next(self) -> Any:
        epoch = self._epoch
        prefetcher = epoch.prefetcher
        if not self._ahead:
            assert self._source is not None
            try:
                batch = next(self._source)
            except StopIteration:
                self._closing()
                raise
            epoch.put_batch(batch)
        while True:
            arrival = prefetcher.wait_arrival(self._timeout)
            if arrival == "needs_credit":
                self._top_up(required=True)
                continue
            if arrival == "batch":
                try:
                    delivered = self._deliver()
                finally:
                    # Also of a batch that could not be put together: its place at the workers is
                    # free, and without another one in it the epoch would never end.
                    if self._in_step is not None:
                        self._in_step.take()
                if self._ahead:
                    # Now, not at the next call: the memory is then writable before this batch's
                    # training step has even begun.
                    self._top_up(required=False)
                return delivered
            if arrival == "end":
                self._closing()
                raise StopIteration
            if arrival == "timeout":
                raise RuntimeError(f"DataLoader timed out after {self._timeout} seconds")
            prefetcher.skip()
            # Memory that was offered for it is taken back: the next credit makes its own.
            epoch.credits.pop(epoch.next_seq, None)
            epoch.next_seq += 1
            error = epoch.pending.popleft().error
            assert error is not None
            try:
                if self._in_step is not None:
                    self._in_step.take()
                raise error
            finally:
                # Or this frame, which the traceback holds, would hold the error in turn, and both the
                # batch and the workers until the garbage collector comes by.
                del error

    def _top_up(self, required: bool) -> None:
        """Offers memory for every batch of the window that lacks it: of the right size for those
        already in the ring, of the size of the last one for those to come. Running out of memory
        while looking ahead is not the user's error; only if ``required`` must the next batch fit."""
        epoch = self._epoch
        for seq, filled in epoch.prefetcher.uncredited(self._ahead):
            plan = epoch.pending[seq - epoch.next_seq].plan if filled else epoch.engine.last_plan
            if plan is None:
                continue
            try:
                credit = epoch.engine.make_credit(plan)
            except RuntimeError as error:
                if _torch.is_out_of_memory(error) and not (required and seq == epoch.next_seq):
                    return
                raise
            addresses = [output.data_ptr() for output in credit.outputs]
            if plan.records:
                addresses.append(0)
            epoch.prefetcher.give_credit(
                seq=seq,
                plan=plan.native,
                outputs=addresses,
                staging=0 if credit.staging is None else credit.staging.data_ptr(),
                stream=credit.stream,
            )
            epoch.credits[seq] = credit
            epoch.stream = credit.stream

    def _deliver(self) -> Any:
        epoch = self._epoch
        device = epoch.engine.device
        stream = _torch.consumer_stream(device)
        epoch.prefetcher.deliver(stream)
        credit = epoch.credits.pop(epoch.next_seq)
        pending = epoch.pending.popleft()
        epoch.next_seq += 1
        if stream != credit.stream:
            # First of all, since what follows may raise and give the memory back.
            memory = (
                [*credit.outputs] if credit.staging is None else [*credit.outputs, credit.staging]
            )
            _torch.record_stream(memory, device)
        outputs = credit.outputs
        if credit.plan.mixed is not None:
            outputs = [*outputs]
            assert epoch.draws is not None and epoch.draws.augmentation.mixing is not None
            target, weights = credit.plan.mixed
            outputs[target] = epoch.draws.augmentation.mixing.target(
                outputs[target], outputs[weights]
            )
        delivered = put_together(
            pending.template, outputs, lambda value: _torch.move(value, device)
        )
        if self._ahead:
            epoch.engine.watch_depth(credit, epoch)
        return delivered

    def close(self) -> None:
        """Ends the epoch early; further calls of next() raise StopIteration."""
        self._closing()
        super().close()
        self._in_step = None


# Epochs whose pump may still be running.
live: weakref.WeakSet[Epoch] = weakref.WeakSet()


def end_all_at_exit() -> None:
    """Interpreter exit: no thread of ours may outlive it."""
    for epoch in list(live):
        epoch.stop_pump(patience=1)


def _finish(epoch: Epoch, on_end: Callable[[Engine], None]) -> None:
    if epoch.pid != os.getpid():
        return
    try:
        epoch.end()
    finally:
        on_end(epoch.engine)


def _pump(epoch: Epoch, source: Iterator[Any]) -> None:
    """Advances the source until it ends or the epoch does. An error takes its batch's place and, as
    with DataLoader, does not end the epoch."""
    while not epoch.over:
        try:
            begun = time.perf_counter()
            batch = next(source)
            _trace.add("receive", begun, time.perf_counter())
            if not epoch.put_batch(batch):
                return
        except StopIteration as stop:
            # From a data set in a worker it says where, and with DataLoader more may follow.
            if not stop.args or not epoch.put_error(stop):
                epoch.put_end()
                return
        except BaseException as error:
            if not epoch.put_error(error):
                return
        # Nothing of a batch is kept while waiting for the next: its shared memory goes back now.
        batch = None


def _drain_log(native: Any) -> None:
    messages, dropped = native.drain_log()
    for message in messages:
        _log.warning("%s", message)
    if dropped:
        _log.warning("%d more native warnings were dropped", dropped)
