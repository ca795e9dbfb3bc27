"""The state of one epoch in the ring."""

from __future__ import annotations

import ctypes
import dataclasses
import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from fastloader._core.batch.augmentation import EpochDraws
from fastloader._core.delivery.engine.engine import Credit, Engine
from fastloader._core.delivery.engine.packing import PackedLayout
from fastloader._core.handoff import LoopFollower
from fastloader._core.machine import devices
from fastloader._core.machine.process import HomeProcess

if TYPE_CHECKING:
    from fastloader import _native


_log = logging.getLogger("fastloader")

_LAST_PATIENCE = 15.0  # seconds, for a source that hangs in its own code and not in torch's


@dataclasses.dataclass
class PackedBatch:
    """An entry of the ring that is not delivered yet: the structure of a batch, or an error."""

    template: Any = None
    layout: PackedLayout | None = None
    error: BaseException | None = None
    took: bool = True  # whether the error takes a batch's place
    drawn: int = 0  # how many samples were drawn with this batch


class RingEpoch:
    """The state of one epoch in the ring, shared by the iterator, the pump thread and the finalizer. It
    is also the `Slots` of a source that makes its batches in place. It must not refer to the iterator:
    the epoch ends when the training loop drops its last reference to that."""

    def __init__(self, engine: Engine, draws: EpochDraws | None) -> None:
        self.engine = engine
        self.draws = draws
        self.home = HomeProcess()
        # A reference of its own, because the engine drops its prefetcher when it is closed.
        prefetcher = engine.prefetcher
        assert prefetcher is not None  # a closed engine begins no epoch
        self.prefetcher: _native.Prefetcher | None = prefetcher
        # The number of the batch that the loop gets next, and of the one that is put next.
        self.number, self.next_seq = prefetcher.open_epoch()
        self.fill_seq: int = self.next_seq
        # Entries by batch number. An entry is made before its batch is put into the ring, so that the
        # thread that sees the batch finds the entry.
        self.pending: dict[int, PackedBatch] = {}
        self.credits: dict[int, Credit] = {}
        # Guards what the training loop does to the ring and its credits against `end` on another thread.
        # After `end` the ring may be another epoch's. Reentrant, because a finalizer or a signal handler
        # may end the epoch while the loop's own thread holds the lock.
        self.turn = threading.RLock()
        self.stream = devices.consumer_stream(engine.device)
        self.over = False
        self.pump: threading.Thread | None = None
        # The source, while a pump thread is in it. Without a pump only the iterator may hold the source:
        # the finalizer keeps the epoch alive, so a dataset that refers to its own iterator could not
        # be collected.
        self.pumped: Iterator[Any] | None = None
        # Keeps that source's sampler in step with the loop, if the source needs that.
        self.follower: LoopFollower | None = None
        # The reservation of the slot in which the source made what its next() gave or raised last.
        self._presented: Any = None
        self._stop_source: Callable[[], None] | None = None

    @property
    def depth(self) -> int:
        return self.engine.depth

    def reserve_for(self, leaves: Sequence[int], samples: int) -> Any | None:
        return self.reserve(self.engine.packing.packed_bytes(leaves, samples, self.draws))

    def reserve(self, size: int) -> Any | None:
        prefetcher = self.prefetcher
        return None if prefetcher is None else prefetcher.reserve(self.number, size)

    def present(self, reservation: Any) -> None:
        self._presented = reservation

    def on_end(self, stop: Callable[[], None]) -> None:
        self._stop_source = stop

    def put_batch(self, batch: Any) -> bool:
        """Packs a batch into the ring, after waiting for a slot. Returns False once the epoch is over.
        If the batch cannot be packed, raises the reason and leaves the ring as it was."""
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
                self._presented = reservation  # for the error, which comes next
                if self.draws is not None:
                    self.draws.samples = drawn
                self.pending.pop(seq, None)
            raise
        return bool(put)

    def put_error(self, error: BaseException, took: bool) -> bool:
        """Puts an error into the ring. Returns False once the epoch is over. ``took``: whether the error
        takes a batch's place."""
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
        return 0 if self.draws is None else self.draws.samples

    def put_end(self) -> None:
        prefetcher = self.prefetcher
        if prefetcher is not None:
            prefetcher.put_end(self.number)

    def end(self) -> None:
        """Ends the epoch. Idempotent. Afterwards nothing new is written into undelivered memory, and the
        stream that owns the memory waits for copies that are still on their way."""
        if not self.home.here:
            return
        with self.turn:
            if self.over:
                return
            self.over = True
            # Every stream on which memory was made must wait for what may still be written there. A
            # training loop that has changed its stream has credits of both streams, and each credit
            # goes back to the stream where it was made.
            streams = {self.stream, *(credit.stream for credit in [*self.credits.values()])}
            assert self.prefetcher is not None  # until the epoch is over
            self.prefetcher.cancel([*streams])
            self.prefetcher = None
            self.credits.clear()
            self.pending.clear()
        # Outside of `turn`, because this takes locks of the source, and garbage collection may run while
        # the source holds them.
        if self._stop_source is not None:
            self._stop_source()
        if self.follower is not None:
            self.follower.leave()
        # Workers shut down with the last reference to the source, here or on the pump thread.
        self.pumped = self.follower = None

    def stop_pump(self, patience: float) -> bool:
        """Ends the epoch, and waits ``patience`` seconds at most for the pump thread to leave the
        source. Returns whether it has left."""
        pump = self.pump
        self.end()
        if pump is None or not self.home.here or pump is threading.current_thread():
            return True
        pump.join(patience)
        return not pump.is_alive()

    def interrupt_pump(self) -> None:
        """Raises SystemExit in the pump thread as soon as that is back in Python, and waits a last time.
        For a source that hangs in its own code."""
        pump = self.pump
        assert pump is not None
        ctypes.pythonapi.PyThreadState_SetAsyncExc(
            ctypes.c_ulong(pump.ident or 0), ctypes.py_object(SystemExit)
        )
        pump.join(_LAST_PATIENCE)
        if pump.is_alive():
            _log.warning("the source of a loader did not return; its thread is left to itself")
