"""One epoch of pictures: batches that the C++ pool decodes, in the sampler's order."""

from __future__ import annotations

import collections
import contextlib
import functools
import logging
import operator
import weakref
from collections.abc import Callable, Iterator
from typing import Any

from fastloader._core.handoff import DEFAULT_DEPTH, Handoff
from fastloader._core.machine.eager import eager
from fastloader._core.machine.limits import memory_budget, own_threads
from fastloader._core.machine.process import HomeProcess
from fastloader._core.observation.statistics import TIMED, LeftOut, LoopIterator
from fastloader._core.observation.tuning import DepthRule
from fastloader._core.pictures.decoder import (
    ImageDecoder,
    PendingBatch,
    PendingError,
    RequestedSamples,
)
from fastloader._core.pictures.finish import Finish
from fastloader._core.pictures.images import CropSeeds
from fastloader._core.pictures.repair import ImageRepair, Repair
from fastloader.errors import StoppedError

_log = logging.getLogger("fastloader")


class Remains:
    """All that is known of an epoch without its iterator, which ends when the loop drops it."""

    def __init__(self, decoder: ImageDecoder, seeds: CropSeeds, handoff: Handoff) -> None:
        self._decoder = decoder
        self._slots = handoff.slots
        self._depth = handoff.depth
        self.seeds = seeds

    @property
    def ahead(self) -> int:
        """How many batches are in the pool: with slots, as many as there are slots."""
        if self._slots is not None:
            return self._slots.depth
        if isinstance(self._depth, DepthRule):
            return self._depth.depth
        return self._depth or DEFAULT_DEPTH

    def replay(self, index: int) -> dict[str, Any]:
        """Returns what was drawn for a sample that was submitted in this epoch."""
        seed = self.seeds.of(index)
        images = self._decoder.images
        file = index if images.indices is None else int(images.indices[index])
        return self._decoder.drawn(file, seed)


class ImageIterator(LoopIterator):
    """Gives [images, labels] as default_collate makes them from (image, class) samples.

    With ``handoff.slots`` pictures are decoded straight into the slots. Then only the owner of the slots
    may use a batch, and only before it asks for the next one.

    Args:
        seeds: how crops are drawn.
        length: gives the number of batches.
        finish: makes what is delivered of a batch that the pool is done with.
        drawn_ahead: how many index batches are asked of the sampler at the beginning. Another one
            follows whenever a batch is taken, as torch does for its workers. None: as the pool needs.
        late: whether the beginning is the first ``next()``, as without workers in torch.
    """

    def __init__(
        self,
        decoder: ImageDecoder,
        index_batches: Iterator[Any],
        seeds: CropSeeds,
        length: Callable[[], int],
        handoff: Handoff,
        finish: Finish,
        drawn_ahead: int | None = None,
        late: bool = False,
    ) -> None:
        super().__init__(handoff.statistics if handoff.held_by_loop else None)
        self._decoder = decoder
        slots = self._slots = handoff.slots
        self._depth_rule: DepthRule | None = None
        if isinstance(handoff.depth, DepthRule) and slots is None:  # with slots the ring watches
            self._depth_rule = handoff.depth
            handoff.depth.begin()
        self.remains = Remains(decoder, seeds, handoff)
        if slots is None:
            decoder.memory.keep(self.ahead + 1)
        self._taken = 0
        if decoder.options.tuner is not None:
            decoder.options.tuner.filling(own_threads(), handoff.statistics, decoder)
        self._length = length
        self._seen = handoff.statistics  # the loop's, whichever iterator counts its batches
        self._finish = finish
        self._index_batches: Iterator[Any] | None = index_batches
        # Each index batch in a tuple of its own, because a sampler may give one object twice.
        self._drawn: collections.deque[tuple[Any]] = collections.deque()
        self._draws_in_step = drawn_ahead is not None
        self.seeds = seeds
        self._flight: collections.deque[PendingBatch | PendingError] = collections.deque()
        # Whether next() has begun to finish the first of them, which the pool is done with.
        self._finishing = False
        self._repair = ImageRepair(decoder)
        self._cancel = functools.partial(_cancel, self._flight, self._repair, self._home)
        weakref.finalize(self, self._cancel)
        if slots is not None:
            slots.on_end(self._cancel)
        self._undrawn = drawn_ahead or 0
        if not late:
            self._top_up()

    @property
    def ahead(self) -> int:
        """How many batches are in the pool: with slots, as many as there are slots."""
        return self.remains.ahead

    def _draw(self, index_batches: Iterator[Any]) -> None:
        """Draws one index batch, or notes in its place what the sampler raises."""
        if self._drawn and self._drawn[-1][0] is StopIteration:
            return
        try:
            self._drawn.append((next(index_batches, StopIteration),))
        except Exception as error:
            self._drawn.append((error,))

    def _drop_begun(self) -> None:
        """Drops the index batch whose batch is in flight. Until then it stays, for Ctrl-C may come."""
        with contextlib.suppress(IndexError):  # there is none, or closed meanwhile
            if self._flight[-1].drawn is self._drawn[0]:
                self._drawn.popleft()

    def _top_up(self) -> None:
        self._drop_begun()  # which Ctrl-C may have prevented
        while self._undrawn and self._index_batches is not None:
            self._draw(self._index_batches)
            self._undrawn -= 1
        ahead = self.ahead + self._finishing
        while self._index_batches is not None and len(self._flight) < ahead:
            if not self._drawn:
                if self._draws_in_step:
                    break
                self._draw(self._index_batches)
            try:
                self._flight.append(self._begin_batch(self._drawn[0]))
                self._drop_begun()
            except (StopIteration, _EpochIsOver):
                self._index_batches = None
            if self._slots is not None and self._slots.over:
                self.close()  # the epoch may have ended before there was this batch to stop

    def _begin_batch(self, drawn: tuple[Any]) -> PendingBatch | PendingError:
        # Each batch has a call of its own: the traceback of an error holds this frame, and a user who
        # keeps the error must not keep the slot of another batch.
        reservation = None
        try:
            (indices,) = drawn
            if indices is StopIteration or isinstance(indices, Exception):
                raise indices
            keys = self._checked([operator.index(key) for key in indices])
            requested = RequestedSamples.of(self._decoder.images, keys)
            if self._slots is not None:
                own = self._decoder.leaf_bytes(len(keys))
                leaves = self._finish.leaf_bytes(own, len(keys), requested.others)
                reservation = _still(self._slots.reserve_for(leaves, len(keys)))
            return self._submit(drawn, requested, reservation)
        except (StopIteration, _EpochIsOver):
            raise
        except Exception as error:  # the sampler's error takes its batch's place
            if self._slots is not None and reservation is None:
                reservation = _still(self._slots.reserve(0))
            return PendingError(drawn, error, reservation)

    def _checked(self, keys: list[int]) -> list[int]:
        if not keys:
            raise IndexError("the sampler gave a batch without an index")  # as default_collate
        length = len(self._decoder.images)
        for key in keys:
            if not -length <= key < length:
                raise IndexError(f"the sampler gave index {key}; the dataset has {length} samples")
        return [key + length if key < 0 else key for key in keys]

    def _submit(
        self, drawn: tuple[Any], requested: RequestedSamples, reservation: Any | None
    ) -> PendingBatch:
        keys = requested.keys
        seeds = self.seeds.of_next(len(keys))
        pending = PendingBatch(self._decoder, drawn, requested, seeds, reservation)
        self.seeds.submitted(keys, seeds)
        if self._decoder.store.packed:
            self._seen.add_time("locate", pending.locate_s)
        return pending

    @eager
    def __next__(self) -> Any:
        self._home.check()
        if self._slots is None and (TIMED or self._depth_rule is not None):
            self._count_ready()
        tuner = self._decoder.options.tuner
        try:
            delivered = super().__next__()
        except StopIteration:
            if tuner is not None:
                tuner.ended(self._seen, self._decoder)
            raise
        self._taken += 1
        # The first batches are left out, because the loop's waiting says nothing while an epoch begins.
        if tuner is not None and self._taken > self.ahead:
            tuner.taken(self._seen, self._decoder)
        return delivered

    def _count_ready(self) -> None:
        """Counts the batches that are ready when the loop asks for one."""
        flight = list(self._flight)  # which another thread may clear
        ready = sum(type(each) is PendingBatch and each.batch.ready() for each in flight)
        self._seen.note_ready(ready)
        rule = self._depth_rule
        # The rule does not see the end of an epoch, where the pool runs empty in any case.
        if rule is not None and self._index_batches is not None and rule.note_ready(ready, self):
            self._deepen(rule)

    def _deepen(self, rule: DepthRule) -> None:
        first = next(iter(self._flight), None)
        samples = len(first.keys) if isinstance(first, PendingBatch) else 1
        if rule.deepen(memory_budget() // max(1, samples * self._decoder.sample_bytes)):
            self._decoder.memory.keep(rule.depth + 1)
            _log.info("fastloader: depth %d now: %s", rule.depth, rule.why)

    def _next(self) -> Any:
        """Gives the next batch. Ctrl-C may break off every step, and the next call goes on there: the
        batch stays where it is until `_settle`."""
        self._top_up()
        try:
            first = self._flight[0]
        except IndexError:
            raise StopIteration from None
        if isinstance(first, PendingBatch) and not first.batch.wait():
            raise StopIteration
        if not self._finishing:
            if self._draws_in_step and self._index_batches is not None:
                self._draw(self._index_batches)
            if isinstance(first, PendingBatch):
                self._decoder.policy.seen += len(first.keys)
            self._finishing = True
        if self._slots is None:
            self._top_up()  # with slots, only after this batch's slot has been committed
        self._begin_looks()
        try:
            delivered = self._finished(first)
        except StoppedError:
            raise StopIteration from None
        except Exception:  # takes the batch's place, as LeftOut does
            self._settle(first)
            del first  # breaks the cycle of this frame and the error
            raise
        self._settle(first)
        return delivered

    def _begin_looks(self) -> None:
        """Begins to look at the files of the batches that were read. The loop waits for a look only when
        it comes for the batch, and most looks have ended by then."""
        if self._decoder.store.packed:
            for each in list(self._flight):  # which another thread may clear
                if type(each) is PendingBatch:
                    each.begin_look()

    def _finished(self, first: PendingBatch | PendingError) -> Any:
        """Returns what is delivered of a batch that the pool is done with. A second call gives the
        same."""
        if isinstance(first, PendingError):
            try:
                raise first.error
            finally:
                del first
        failures = first.batch.failures()
        bad = failures or first.bad
        kept = self._repair.done(first, failures) if bad else None
        first.check(again=bool(bad))
        if kept is not None and not kept:
            raise LeftOut
        return self._finish.batch(first, kept)

    def _settle(self, first: PendingBatch | PendingError) -> None:
        """Drops the first batch, or what was raised in its place."""
        self._repair.forget()
        self._finishing = False
        with contextlib.suppress(IndexError):  # closed meanwhile, on another thread or at exit
            self._flight.popleft()
        if self._slots is not None:
            # The delivery puts it at once or not at all, so nothing else may hold the slot.
            self._slots.present(first.reservation)

    def __len__(self) -> int:
        return self._length()

    def leave(self) -> None:
        """Closes this iterator, when the delivery's iterator is closed."""
        self.close()

    def close(self) -> None:
        """Ends the epoch early, from any thread. Decode threads give their pictures up."""
        self._closed = True
        self._index_batches = None
        self._cancel()


class _EpochIsOver(Exception):
    pass


def _still(reservation: Any | None) -> Any:
    """Returns the reservation, while the epoch goes on."""
    if reservation is None:
        raise _EpochIsOver
    return reservation


def _cancel(
    flight: collections.deque[PendingBatch | PendingError], repair: Repair, home: HomeProcess
) -> None:
    """Stops all batches, from any thread, even while another thread waits for the first one."""
    if not home.here:
        return
    repair.stop()
    for each in list(flight):
        if isinstance(each, PendingBatch):
            each.stop()
    flight.clear()
