"""The state of one epoch in the ring."""

from __future__ import annotations

import ctypes
import dataclasses
import logging
import threading
from collections.abc import Callable, Iterator
from typing import Any

from fastloader._core.batch.augmentation.augmentation import EpochDraws
from fastloader._core.delivery.engine.engine import Credit, Engine
from fastloader._core.delivery.engine.packing import PackedLayout
from fastloader._core.handoff import LoopFollower
from fastloader._core.machine import devices
from fastloader._core.machine.process import HomeProcess

_log = logging.getLogger("fastloader")

_LAST_PATIENCE = 15.0  # seconds, for a source that hangs in code of its own, not of torch's


@dataclasses.dataclass
class PackedBatch:
    """What was put into the ring and not delivered yet: a batch's structure, or an error."""

    template: Any = None
    layout: PackedLayout | None = None
    error: BaseException | None = None
    took: bool = True  # whether an error is there in a batch's place
    drawn: int = 0  # the number of the draws that come behind its own


class RingEpoch:
    """The state of one epoch in the ring, shared by the iterator, the pump thread and the finalizer; and
    the `Slots` of a source that makes its batches in place. It must not refer to the iterator: the epoch
    ends when the training loop drops its last reference to that."""

    def __init__(self, engine: Engine, draws: EpochDraws | None) -> None:
        self.engine = engine
        self.draws = draws
        self.home = HomeProcess()
        # Not asked of the engine again, which lets go of it when it is closed.
        self.prefetcher = engine.prefetcher
        # The number of the batch that the loop gets next, and of the one that is put next.
        self.number, self.next_seq = self.prefetcher.open_epoch()
        self.fill_seq: int = self.next_seq
        # By number. An entry is made before its batch is put into the ring, so that whoever sees the
        # batch finds the entry.
        self.pending: dict[int, PackedBatch] = {}
        self.credits: dict[int, Credit] = {}
        # Guards what the consumer does to the ring and its credits against `end` on another thread,
        # after which the ring may be another epoch's. Reentrant: a finalizer or a signal handler may
        # end the epoch in the middle of that.
        self.turn = threading.RLock()
        self.stream = devices.consumer_stream(engine.device)
        self.over = False
        self.pump: threading.Thread | None = None
        # The source, while a pump is in it. Without a pump only the iterator holds it: the finalizer
        # keeps the epoch alive, and a data set that leads to its own iterator could not be collected.
        self.pumped: Iterator[Any] | None = None
        # What keeps that source's sampler in step with the loop, if it needs that.
        self.follower: LoopFollower | None = None
        # The slot in which a source made what its next() gave or raised last.
        self._presented: Any = None
        self._stop_source: Callable[[], None] | None = None

    @property
    def depth(self) -> int:
        return self.engine.depth

    def reserve(self, size: int) -> Any | None:
        prefetcher = self.prefetcher
        return None if prefetcher is None else prefetcher.reserve(self.number, size)

    def present(self, reservation: Any) -> None:
        self._presented = reservation

    def on_end(self, stop: Callable[[], None]) -> None:
        self._stop_source = stop

    def put_batch(self, batch: Any) -> bool:
        """Packs a batch into the ring, waiting for a slot; False once the epoch is over. Raises what
        the batch is refused for, leaving the ring as it was."""
        prefetcher, reservation, seq = self.prefetcher, self._presented, self.fill_seq
        self._presented = None
        if prefetcher is None:
            return False
        drawn = self._drawn()
        try:
            template, layout, sources = self.engine.packing.pack(batch, self.draws)
            addresses = [source.data_ptr() for source in sources]
            self.engine.last_layout = layout
            self.pending[seq] = PackedBatch(template, layout, drawn=self._drawn())
            if reservation is None:
                put = prefetcher.push(self.number, layout.native, addresses)
            else:
                put = reservation.commit(layout.native, addresses)
            self.fill_seq = seq + 1
        except BaseException:
            # Ctrl-C may arrive when the batch is in the ring already.
            self.fill_seq = prefetcher.progress()[1]
            if self.fill_seq == seq:
                self._presented = reservation  # the error's, now
                if self.draws is not None:
                    self.draws.batch = drawn
                self.pending.pop(seq, None)
            raise
        return bool(put)

    def put_error(self, error: BaseException, took: bool) -> bool:
        """``took``: whether it is there in a batch's place."""
        prefetcher, reservation, seq = self.prefetcher, self._presented, self.fill_seq
        self._presented = None
        if prefetcher is None:
            return False
        self.pending[seq] = PackedBatch(error=error, took=took, drawn=self._drawn())
        if reservation is None:
            put = prefetcher.put_error(self.number)
        else:
            put = reservation.commit_error()
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
        if not self.home.here:
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
        if self._stop_source is not None:
            self._stop_source()
        if self.follower is not None:
            self.follower.leave()
        # Workers shut down with the last reference, here or on the pump's thread.
        self.pumped = self.follower = None

    def stop_pump(self, patience: float) -> bool:
        """Ends the epoch, and waits for the pump to leave the source: ``patience`` seconds at most.
        Returns whether it has."""
        pump = self.pump
        self.end()
        if pump is None or not self.home.here or pump is threading.current_thread():
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
