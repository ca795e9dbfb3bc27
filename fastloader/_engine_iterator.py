"""One epoch through an Engine."""

from __future__ import annotations

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
from fastloader._closing import closed_meanwhile
from fastloader._engine import Credit, Engine, Plan
from fastloader._in_step import InStep, put_in_step
from fastloader._iterator import DeliveryIterator
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
    took: bool = True  # whether an error is there in a batch's place
    drawn: int = 0  # the number of the draws that come behind its own


class Epoch:
    """What iterator, pump thread and finalizer share. It holds no reference to the iterator, so that
    dropping that ends the epoch."""

    def __init__(self, engine: Engine, draws: EpochDraws | None) -> None:
        self.engine = engine
        self.draws = draws
        self.pid = os.getpid()
        # Not asked of the engine again, which lets go of it when it is closed.
        self.prefetcher = engine.prefetcher
        # The number of the batch that the loop gets next, and of the one that is put next.
        self.number, self.next_seq = self.prefetcher.open_epoch()
        self.fill_seq: int = self.next_seq
        # By number. An entry is made before its batch is put into the ring, so that whoever sees the
        # batch finds the entry.
        self.pending: dict[int, Pending] = {}
        self.credits: dict[int, Credit] = {}
        # Guards what the consumer does to the ring and its credits against `end` on another thread,
        # after which the ring may be another epoch's. Reentrant: a finalizer or a signal handler may
        # end the epoch in the middle of that.
        self.turn = threading.RLock()
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
        prefetcher, place, seq = self.prefetcher, self.place, self.fill_seq
        self.place = None
        if prefetcher is None:
            return False
        drawn = self._drawn()
        try:
            template, plan, sources = self.engine.pack(batch, self.draws)
            addresses = [source.data_ptr() for source in sources]
            self.engine.last_plan = plan
            self.pending[seq] = Pending(template, plan, drawn=self._drawn())
            if place is None:
                put = prefetcher.push(self.number, plan.native, addresses)
            else:
                put = place.commit(plan.native, addresses)
            self.fill_seq = seq + 1
        except BaseException:
            # Ctrl-C may arrive when the batch is in the ring already.
            self.fill_seq = prefetcher.progress()[1]
            if self.fill_seq == seq:
                self.place = place  # the error's, now
                if self.draws is not None:
                    self.draws.batch = drawn
                self.pending.pop(seq, None)
            raise
        return bool(put)

    def put_error(self, error: BaseException, took: bool) -> bool:
        """``took``: whether it is there in a batch's place."""
        prefetcher, place, seq = self.prefetcher, self.place, self.fill_seq
        self.place = None
        if prefetcher is None:
            return False
        self.pending[seq] = Pending(error=error, took=took, drawn=self._drawn())
        put = prefetcher.put_error(self.number) if place is None else place.commit_error()
        self.fill_seq = seq + 1
        return bool(put)

    def _drawn(self) -> int:
        return 0 if self.draws is None else self.draws.batch

    def put_end(self) -> None:
        prefetcher = self.prefetcher
        if prefetcher is not None:
            prefetcher.put_end(self.number)

    def end(self) -> None:
        """Idempotent. Nothing is written into undelivered memory any more, and the stream that owns
        it waits for what is still on its way."""
        if self.pid != os.getpid():
            return
        with self.turn:
            if self.over:
                return
            self.over = True
            # Each stream on which memory was made waits for what may still be written there: a
            # consumer that has changed its stream has credits of both, and each goes back to where it
            # was made.
            streams = {self.stream, *(credit.stream for credit in [*self.credits.values()])}
            self.prefetcher.cancel([*streams])
            self.prefetcher = None
            self.credits.clear()
            self.pending.clear()
        # Not in turn: this takes locks of the source's, under which the source may be collecting.
        if self.stop_source is not None:
            self.stop_source()
        if isinstance(self.pumped, InStep):
            self.pumped.leave()
        # Workers shut down with the last reference, here or on the pump's thread.
        self.pumped = None

    def stop_pump(self, patience: float) -> bool:
        """Ends the epoch, and waits for the pump to leave the source: ``patience`` seconds at most.
        Returns whether it has."""
        pump = self.pump
        self.end()
        if pump is None or self.pid != os.getpid() or pump is threading.current_thread():
            return True
        pump.join(patience)
        return not pump.is_alive()

    def interrupt_pump(self) -> None:
        """For a source that hangs in code of its own: raises SystemExit there, as soon as it is back in
        Python, and waits a last time."""
        pump = self.pump
        assert pump is not None
        ctypes.pythonapi.PyThreadState_SetAsyncExc(
            ctypes.c_ulong(pump.ident or 0), ctypes.py_object(SystemExit)
        )
        pump.join(_LAST_PATIENCE)
        if pump.is_alive():
            _log.warning("the source of a loader did not return; its thread is left to itself")


class EngineIterator(DeliveryIterator):
    """Delivers one epoch. With ``ahead`` a pump thread advances the source; without, the consumer's
    own thread does, batch by batch, so that its RNG and thread-locals behave as with DataLoader.

    ``on_end(engine)`` gets the engine back when the epoch is over.
    """

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
        # What the source gave, until it is in the ring; without look-ahead.
        self._given: list[Any] = []
        # The ring may have moved on from a batch that the loop did not get.
        self._unsettled = False
        self._closing = weakref.finalize(self, _finish, epoch, on_end)
        live.add(epoch)
        if ahead:
            # Memory made during a capture belongs to its graph; next() will make its own.
            if not _torch.is_capturing(epoch.engine.device):
                self._top_up(epoch.next_seq, required=False)
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
        with self._statistics.waiting(self):
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
        """Every step may be broken off, by Ctrl-C or for want of memory, and the next call goes on
        there: `_settle` is what moves on to the next batch."""
        epoch = self._epoch
        seq = epoch.next_seq
        self._took = False
        if not self._ahead and epoch.fill_seq == seq:
            self._pull()
        pending, credit = self._arrive(seq)
        try:
            if self._in_step is not None and pending.took:
                self._in_step.take(seq)
            if credit is None:
                assert pending.error is not None
                raise pending.error
            delivered = self._put_together(pending, credit)
        except Exception:
            # It has taken the batch's place, in which nothing comes any more; or it has come besides.
            self._settle(seq)
            self._took = pending.took
            raise
        finally:
            # Or this frame, which the traceback holds, would hold the error in turn, and both the
            # batch and the workers until the garbage collector comes by.
            del pending
        if self._ahead:
            # Now, not at the next call: the memory is then writable before this batch's training step
            # has even begun.
            self._top_up(seq + 1, required=False)
            epoch.engine.watch_depth(credit, epoch)
        self._settle(seq)
        return delivered

    def _pull(self) -> None:
        """Puts the source's next batch into the ring, on this thread."""
        if not self._given:
            source: Any = self._source  # None: closed meanwhile, which `waiting` says
            try:
                self._given.append(next(source))
            except StopIteration:
                self._closing()
                raise
            except Exception:
                self._took = getattr(source, "_took", True)
                raise
        try:
            self._epoch.put_batch(self._given[0])
        except Exception:  # refused
            self._given.clear()
            self._took = True
            raise

    def _arrive(self, seq: int) -> tuple[Pending, Credit | None]:
        """Waits for batch ``seq``, and makes the current stream wait for it. (entry, memory); no memory
        if an error has come in its place."""
        epoch = self._epoch
        prefetcher = epoch.prefetcher
        arrival = "before"
        if self._unsettled and prefetcher is not None and prefetcher.progress()[0] > seq:
            # A call before this one was broken off behind this point, on whatever stream.
            _torch.synchronize(epoch.engine.device)
        else:
            arrival = self._wait()
        with epoch.turn:
            if epoch.over:
                raise closed_meanwhile()
            self._unsettled = True
            if arrival == "batch":
                prefetcher.deliver(_torch.consumer_stream(epoch.engine.device))
            elif arrival == "error":
                prefetcher.skip()
            pending = epoch.pending[seq]
            # Memory may have been offered for what became an error: the next credit makes its own.
            return pending, None if pending.error is not None else epoch.credits[seq]

    def _wait(self) -> str:
        epoch = self._epoch
        while True:
            prefetcher = epoch.prefetcher
            if prefetcher is None:
                raise closed_meanwhile()
            arrival: str = prefetcher.wait_arrival(epoch.number, self._timeout)
            if arrival == "needs_credit":
                self._top_up(epoch.next_seq, required=True)
            elif arrival == "end":
                self._closing()
                raise StopIteration
            elif arrival == "timeout":
                raise RuntimeError(f"DataLoader timed out after {self._timeout} seconds")
            elif arrival == "over":
                raise closed_meanwhile()
            else:
                return arrival

    def _settle(self, seq: int) -> None:
        epoch = self._epoch
        epoch.next_seq = seq + 1
        self._took = True
        self._unsettled = False
        self._given.clear()
        settled = epoch.pending.pop(seq, None)
        epoch.credits.pop(seq, None)
        if epoch.draws is not None and settled is not None:
            epoch.draws.delivered = settled.drawn

    def _top_up(self, first: int, required: bool) -> None:
        """Offers memory for every batch of the window, from ``first`` on, that lacks it: of the right
        size for those already in the ring, of the size of the last one for those to come. Running out
        of memory while looking ahead is not the user's error and lowers the depth; only if ``required``
        must the first one fit."""
        epoch = self._epoch
        if not required and not epoch.engine.looks_ahead:
            return
        with epoch.turn:
            if epoch.over:
                return
            for seq, filled in epoch.prefetcher.uncredited(
                self._ahead and epoch.engine.looks_ahead
            ):
                plan = epoch.pending[seq].plan if filled else epoch.engine.last_plan
                if plan is None:
                    continue
                must = required and seq == first
                try:
                    credit = epoch.engine.make_credit(plan)
                except RuntimeError as error:
                    if must or not _torch.is_out_of_memory(error):
                        raise
                    epoch.engine.lower(seq - first)
                    return
                self._offer(seq, credit)

    def _offer(self, seq: int, credit: Credit) -> None:
        epoch = self._epoch
        # First of all: from then on somebody may write there.
        epoch.credits[seq] = credit
        addresses = [output.data_ptr() for output in credit.outputs]
        if credit.plan.records:
            addresses.append(0)
        epoch.prefetcher.give_credit(
            seq=seq,
            plan=credit.plan.native,
            outputs=addresses,
            staging=0 if credit.staging is None else credit.staging.data_ptr(),
            stream=credit.stream,
        )
        epoch.stream = credit.stream

    def _put_together(self, pending: Pending, credit: Credit) -> Any:
        epoch = self._epoch
        device = epoch.engine.device
        if _torch.consumer_stream(device) != credit.stream:
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
        return put_together(pending.template, outputs, lambda value: _torch.move(value, device))

    def close(self) -> None:
        """Ends the epoch early, from any thread; further calls of next() raise StopIteration, and one
        that is under way raises Error."""
        self._closed = True
        self._closing()
        super().close()
        self._in_step = None


# Epochs whose pump may still be running.
live: weakref.WeakSet[Epoch] = weakref.WeakSet()


def end_all_at_exit() -> None:
    """Interpreter exit: no thread of ours may outlive it."""
    for epoch in list(live):
        if not epoch.stop_pump(patience=1):
            epoch.interrupt_pump()


def _finish(epoch: Epoch, on_end: Callable[[Engine], None]) -> None:
    if epoch.pid != os.getpid():
        return
    try:
        epoch.end()
    finally:
        on_end(epoch.engine)


def _pump(epoch: Epoch, source: Iterator[Any]) -> None:
    """Advances the source until it ends or the epoch does."""
    while not epoch.over and _pump_one(epoch, source):
        pass


def _pump_one(epoch: Epoch, source: Iterator[Any]) -> bool:
    """Puts the source's next batch into the ring, and says whether there may be another. An error takes
    its batch's place and, as with DataLoader, does not end the epoch."""
    # A call of its own for each batch: the traceback of an error holds this frame, and whoever keeps the
    # error must not keep the slot of a batch that came later. Nor is anything kept while waiting for the
    # next: its shared memory goes back now.
    try:
        begun = time.perf_counter()
        batch = next(source)
        _trace.add("receive", begun, time.perf_counter())
        return epoch.put_batch(batch)
    except StopIteration as stop:
        # From a data set in a worker it says where, and with DataLoader more may follow.
        if stop.args and epoch.put_error(stop, True):
            return True
        epoch.put_end()
        return False
    except BaseException as error:
        return epoch.put_error(error, getattr(source, "_took", True))


def _drain_log(native: Any) -> None:
    messages, dropped = native.drain_log()
    for message in messages:
        _log.warning("%s", message)
    if dropped:
        _log.warning("%d more native warnings were dropped", dropped)
