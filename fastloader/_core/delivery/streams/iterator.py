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
import logging
import os
import time
import weakref
from collections.abc import Iterator
from typing import Any

import torch

from fastloader._core.batch.augmentation.augmentation import EpochDraws, Records
from fastloader._core.batch.augmentation.in_torch import apply
from fastloader._core.batch.images import Image, find_images
from fastloader._core.batch.tree import Parts, put_together, take_apart, tensors_in
from fastloader._core.delivery.iterator import DeliveryIterator
from fastloader._core.machine import devices
from fastloader._core.observation import trace
from fastloader._core.observation.statistics import Statistics
from fastloader._core.sources.python.lookahead import NotYet, put_in_step
from fastloader.transforms._normalization import Normalization

_log = logging.getLogger("fastloader")


class StreamDelivery:
    """``normalization`` None delivers every leaf as it is."""

    def __init__(
        self, device: torch.device, normalization: Normalization | None, statistics: Statistics
    ) -> None:
        self.device = device
        self.normalization = normalization
        self.statistics = statistics
        self.side = devices.StreamSide(device)
        self.sources = HeldSources(self.side)
        # Copies outlive the loader, and the interpreter.
        weakref.finalize(self, self.sources.wait)
        # False once there was no memory for a batch besides the one that the loop has. For good, or
        # every step would ask for it again, which on CUDA empties the allocator's cache.
        self.looks_ahead = True

    def iterate(
        self, source: Iterator[Any], ahead: bool, draws: EpochDraws | None
    ) -> Iterator[Any]:
        return StreamIterator(source, self, ahead, draws)

    def load(self, batch: Any, draws: EpochDraws | None) -> Load:
        parts = take_apart(batch)
        images = find_images(parts, self.normalization) if self.normalization else {}
        records, target = None, None
        if draws is not None:
            augmented, target = draws.augmentation.leaves(parts, images)
            records = draws.next(images[augmented])
        return Load(parts, images, records, target)

    def issue(self, load: Load) -> Flight:
        """Queues one batch on the side stream. Outputs are made before, on the consumer's."""
        with devices.ordinary_tensors():  # the batch may be taken when the mode is another
            return self._issue(load.parts, load.images, load.records, load.target)

    def _issue(
        self, parts: Parts, images: dict[int, Image], records: Records | None, target: int | None
    ) -> Flight:
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
            moved.append(devices.move(value, self.device, non_blocking=late))
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

    def __init__(self, side: devices.StreamSide) -> None:
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
class Load:
    """A batch that is to be queued, and what was drawn for it."""

    parts: Parts
    images: dict[int, Image]
    records: Records | None
    target: int | None


@dataclasses.dataclass
class Failed:
    """What was raised instead of a batch; ``took``: in its place."""

    error: Exception
    took: bool
    drawn: int  # as in Flight


@dataclasses.dataclass
class Flight:
    """A batch on its way: ``memory`` was made on stream ``consumer``, ``moved`` on the side stream."""

    delivered: Any
    consumer: Any
    memory: list[torch.Tensor]
    moved: list[Any]
    drawn: int = 0  # the number of the draws that come behind its own


class StreamIterator(DeliveryIterator):
    """Owns no thread. ``ahead`` keeps one batch in flight while the consumer works, if the workers have
    one ready; without it the source advances only when asked, so that the user's RNG behaves as with
    DataLoader."""

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
        self._flight: list[Flight | Failed] = []
        self._given: list[Any] = []  # by the source, until it is the load
        self._load: Load | None = None  # not in flight yet
        self._number = 0  # of the batch that the loop gets next
        weakref.finalize(self, _abandon, self._flight, delivery, self._pid)

    def _take(self) -> Any:
        if self._pid != os.getpid():
            raise RuntimeError(
                f"this iterator belongs to process {self._pid}, this is {os.getpid()}: call iter() on "
                "the loader to get one here"
            )
        delivery = self._delivery
        devices.forbid_capture(delivery.device)
        with delivery.statistics.waiting(self):
            delivered = self._next()
        delivery.statistics.batches += 1
        self._count()
        return delivered

    def _next(self) -> Any:
        """Every step may be broken off, by Ctrl-C or for want of memory, and the next call goes on
        there: what is in flight stays there until the end."""
        delivery = self._delivery
        self._took = False
        if not self._flight:
            self._advance(required=True)
        flown = self._flight[0]
        if self._in_step is not None and not (isinstance(flown, Failed) and not flown.took):
            try:
                self._in_step.take(self._number)
            except Exception:  # the sampler's: takes the batch's place
                self._settle(flown)
                raise
        if isinstance(flown, Failed):
            self._settle(flown)
            try:
                raise flown.error
            finally:
                del flown  # or this frame and the error would hold each other
        # Before the next batch is queued: the consumer need not wait for that one.
        delivered = delivery.hand_over(flown)
        if self._ahead and delivery.looks_ahead and len(self._flight) == 1:
            self._advance(required=False)
        self._settle(flown)
        return delivered

    def _settle(self, flown: Flight | Failed) -> None:
        self._number += 1
        self._took = not isinstance(flown, Failed) or flown.took
        if self._draws is not None:
            self._draws.delivered = flown.drawn
        del self._flight[0]

    def _advance(self, required: bool) -> None:
        """Puts one batch in flight, or what is raised in its place. A batch that is not ``required`` is
        not waited for, and may lack memory: who asked for the batch before it is not to wait for this
        one, nor be told that it is late or that there is no room for it."""
        source: Any = self._source  # None: closed meanwhile, which `waiting` says
        took = True
        try:
            if self._load is None and not self._given:
                try:
                    in_step = None if required else self._in_step
                    self._given.append(next(source) if in_step is None else in_step.next_if_there())
                except StopIteration:
                    self._delivery.sources.wait()  # a loop that goes on to something else holds nothing
                    raise
                except Exception:
                    took = getattr(source, "_took", True)
                    raise
            if self._load is None:
                drawn = self._drawn()
                try:
                    self._load = self._delivery.load(self._given[0], self._draws)
                except BaseException:  # the draws are the next batch's, or this one's once more
                    if self._draws is not None:
                        self._draws.batch = drawn
                    raise
            self._given.clear()
            begun = time.perf_counter()
            flight = self._delivery.issue(self._load)
            flight.drawn = self._drawn()
            self._flight.append(flight)
            self._load = None
            now = time.perf_counter()
            self._delivery.statistics.spend("copy", now - begun)
            trace.add("issue", begun, now)
        except NotYet:
            return
        except Exception as error:
            if self._load is not None and devices.is_out_of_memory(error):
                if required:
                    raise
                self._delivery.looks_ahead = False
                _log.warning(
                    "fastloader: out of memory on %s while looking ahead: from now on memory for a "
                    "batch only when it is asked for",
                    self._delivery.device,
                )
                return
            self._load = None
            self._given.clear()
            self._flight.append(Failed(error, took, self._drawn()))

    def _drawn(self) -> int:
        return 0 if self._draws is None else self._draws.batch

    def close(self) -> None:
        """Ends the epoch early, from any thread; further calls of next() raise StopIteration, and one
        that is under way raises Error."""
        super().close()
        self._in_step = None
        self._load = None
        self._given = []
        _abandon(self._flight, self._delivery, self._pid)


def _abandon(flight: list[Any], delivery: StreamDelivery, pid: int) -> None:
    """Memory of a batch in flight goes back to the allocator only behind the work on it: on the stream
    where it was made, which need not be the one that is current here."""
    if pid == os.getpid():
        for flown in flight:
            if isinstance(flown, Flight):
                delivery.side.hand_over(flown.consumer)
    flight.clear()
