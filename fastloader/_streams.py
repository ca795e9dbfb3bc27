"""Delivery to any accelerator torch knows, with torch's streams alone.

The way timm's PrefetchLoader and Apex's data_prefetcher go, without their hazards: outputs are
allocated on the consumer's stream, so that torch's allocator never hands out memory that the consumer
still reads (peers allocate on the side stream and need ``record_stream``); the side stream is one per
loader, not one per epoch; the consumer's stream is read at each ``next()``; what is copied from lives
until the copy is done.
"""

from __future__ import annotations

import collections
import dataclasses
import os
import time
import weakref
from collections.abc import Iterator
from typing import Any

import torch

from fastloader import _torch, _trace
from fastloader._augment_torch import apply
from fastloader._augmentation import EpochDraws
from fastloader._batch import find_images, put_together, take_apart, tensors_in
from fastloader._in_step import NotYet, put_in_step
from fastloader._iterator import DeliveryIterator
from fastloader._normalization import Normalization
from fastloader._progress import Progress
from fastloader._statistics import Statistics


class StreamDelivery:
    """``normalization`` None delivers every leaf as it is."""

    def __init__(
        self, device: torch.device, normalization: Normalization | None, statistics: Statistics
    ) -> None:
        self.device = device
        self.normalization = normalization
        self.statistics = statistics
        self.side = _torch.StreamSide(device)
        self.sources = HeldSources(self.side)
        # Copies outlive the loader, and the interpreter.
        weakref.finalize(self, self.sources.wait)

    def iterate(
        self, source: Iterator[Any], ahead: bool, draws: EpochDraws | None
    ) -> Iterator[Any]:
        return StreamIterator(source, self, ahead, draws)

    def issue(self, batch: Any, draws: EpochDraws | None) -> Flight:
        """Queues one batch on the side stream. Outputs are made before, on the consumer's."""
        parts = take_apart(batch)
        images = find_images(parts, self.normalization) if self.normalization else {}
        records, target = None, None
        if draws is not None:
            augmented, target = draws.augmentation.leaves(parts, images)
            records = draws.next(images[augmented])
        consumer = self.side.consumer()
        outputs = []
        raw = {}
        for index, leaf in enumerate(parts.leaves):
            image = images.get(index)
            if image is None or self.normalization is None:
                # preserve_format: a channels_last leaf stays one, as with .to().
                outputs.append(torch.empty_like(leaf, device=self.device))
            else:
                raw[index] = torch.empty_like(image.pixels, device=self.device)
                shape = image.shape if records is None else (len(records), *image.shape[1:])
                outputs.append(self.normalization.output(shape, self.device))
        moved: list[Any] = []
        held = [*parts.leaves, *(image.pixels for image in images.values())]
        late = self.side.can_tell

        def move(value: Any) -> Any:
            held.append(value)
            moved.append(_torch.move(value, self.device, non_blocking=late))
            return moved[-1]

        try:
            with self.side.begin():
                for index, leaf in enumerate(parts.leaves):
                    if index in raw and self.normalization is not None:
                        raw[index].copy_(images[index].pixels, non_blocking=late)
                        if records is None:
                            self.normalization.apply(raw[index], outputs[index])
                        else:
                            apply(self.normalization, raw[index], records, outputs[index])
                    else:
                        outputs[index].copy_(leaf, non_blocking=late)
                shown = [*outputs]
                if records is not None and target is not None:
                    shown[target] = records.mixed_target(outputs[target])
                    moved.append(shown[target])  # of the side stream's memory, too
                delivered = put_together(parts.template, shown, move)
        except BaseException:
            # The consumer's memory goes back with some of the work on it still queued.
            self.side.hand_over(consumer)
            raise
        finally:
            if late:
                self.sources.hold(held)
        # `raw` must live until the consumer waits: it belongs to the consumer's stream.
        return Flight(delivered, consumer, [*outputs, *raw.values()], moved)

    def hand_over(self, flight: Flight) -> Any:
        """The consumer's current stream waits for the batch, which is its own from then on."""
        consumer = self.side.consumer()
        self.side.hand_over(consumer)
        # What moved itself was allocated on the side stream; the rest only needs telling when the
        # consumer has moved to another stream since.
        foreign = [*tensors_in(flight.moved)]
        if consumer != flight.consumer:
            foreign += flight.memory
        for tensor in foreign:
            if tensor.device.type not in ("cpu", "mps"):
                tensor.record_stream(consumer)
        return flight.delivered


class HeldSources:
    """What batches are copied from, until their copies are done. torch keeps a source alive for as long
    only if it is pinned, and not on every device; the MPS device is known to read pageable memory
    after it was freed (pytorch#189690)."""

    # Batches beside the one issued last. They may lie in slots of the worker ring, which has as many to
    # spare; and a loop that is so far ahead of its device loses nothing by waiting.
    MOST = 2

    def __init__(self, side: _torch.StreamSide) -> None:
        self._side = side
        self._pid = os.getpid()
        # (event behind the copies, their sources), oldest first: the side stream keeps the order.
        self._held: collections.deque[tuple[Any, list[Any]]] = collections.deque()

    def hold(self, sources: list[Any]) -> None:
        """For the copies that were queued last."""
        self._held.append((self._side.mark(), sources))
        while len(self._held) > self.MOST + 1 or (self._held and self._held[0][0].query()):
            self._release()

    def wait(self) -> None:
        """Until all copies are done, of which there are few."""
        if self._pid == os.getpid():  # the copies of a parent are no matter of a forked child
            while self._held:
                self._release()

    def _release(self) -> None:
        try:
            held = self._held.popleft()
        except IndexError:  # another thread, with an iterator of its own, was here meanwhile
            return
        try:
            held[0].synchronize()
        except BaseException:  # Ctrl-C, while the copy still reads
            self._held.appendleft(held)
            raise


@dataclasses.dataclass
class Flight:
    """A batch on its way: ``memory`` was made on stream ``consumer``, ``moved`` on the side stream."""

    delivered: Any
    consumer: Any
    memory: list[torch.Tensor]
    moved: list[Any]


class StreamIterator(DeliveryIterator):
    """Owns no thread. ``ahead`` keeps one batch in flight while the consumer works, if the workers have
    one ready; without it the source advances only when asked, so that the user's RNG behaves as with
    DataLoader."""

    progress: Progress | None = None  # set on the iterator that the user gets

    def __init__(
        self,
        source: Iterator[Any],
        delivery: StreamDelivery,
        ahead: bool,
        draws: EpochDraws | None,
    ) -> None:
        super().__init__(source)
        self._delivery = delivery
        self._ahead = ahead
        self._draws = draws
        self._in_step = put_in_step(source) if ahead else None
        self._pid = os.getpid()
        self._flight: list[Flight | BaseException] = []
        weakref.finalize(self, _abandon, self._flight, delivery, self._pid)

    def _take(self) -> Any:
        if self._pid != os.getpid():
            raise RuntimeError(
                f"this iterator belongs to process {self._pid}, this is {os.getpid()}: call iter() on "
                "the loader to get one here"
            )
        delivery = self._delivery
        _torch.forbid_capture(delivery.device)
        with delivery.statistics.waiting(self.progress):
            if not self._flight:
                self._advance(waiting=True)
            flown = self._flight.pop(0)
            if self._in_step is not None:
                self._in_step.take()
            if isinstance(flown, BaseException):
                try:
                    raise flown
                finally:
                    del flown  # or this frame and the error would hold each other
            # Before the next batch is queued: the consumer need not wait for that one.
            delivered = delivery.hand_over(flown)
            if self._ahead:
                try:
                    self._advance(waiting=False)
                except BaseException:  # Ctrl-C: the batch in hand is not lost
                    self._flight.insert(0, flown)
                    raise
        delivery.statistics.batches += 1
        self._count()
        return delivered

    def _advance(self, waiting: bool) -> None:
        """Puts the next batch on its way. From workers only one that is there, unless ``waiting``: who
        asked for the batch before it is not to wait for this one, nor be told that it is late."""
        try:
            if self._source is None:
                raise StopIteration
            try:
                if waiting or self._in_step is None:
                    batch = next(self._source)
                else:
                    batch = self._in_step.next_if_there()
            except NotYet:
                return
            except StopIteration:
                self._delivery.sources.wait()  # a loop that goes on to something else holds nothing
                raise
            begun = time.perf_counter()
            self._flight.append(self._delivery.issue(batch, self._draws))
            now = time.perf_counter()
            self._delivery.statistics.spend("copy", now - begun)
            _trace.add("issue", begun, now)
        except Exception as error:  # StopIteration too: each takes its batch's place
            self._flight.append(error)

    def close(self) -> None:
        """Ends the epoch early; further calls of next() raise StopIteration."""
        super().close()
        self._in_step = None
        _abandon(self._flight, self._delivery, self._pid)


def _abandon(flight: list[Any], delivery: StreamDelivery, pid: int) -> None:
    """Memory of a batch in flight goes back to the allocator only behind the work on it: on the stream
    where it was made, which need not be the one that is current here."""
    if pid == os.getpid():
        for flown in flight:
            if isinstance(flown, Flight):
                delivery.side.hand_over(flown.consumer)
    flight.clear()
