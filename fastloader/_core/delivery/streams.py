"""Delivers batches to any accelerator that torch knows, with torch's streams alone."""

from __future__ import annotations

import collections
import dataclasses
import logging
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import torch

from fastloader._core.batch.augment_in_torch import apply
from fastloader._core.batch.augmentation import EpochDraws, Records
from fastloader._core.batch.image_leaves import Image, LeafCheck, find_images
from fastloader._core.batch.tree import (
    BatchTree,
    fill_mask,
    flatten,
    tensors_in,
    unflatten,
)
from fastloader._core.delivery.path import DeliveryIterator, DeliveryPath, DeliverySpec
from fastloader._core.handoff import LoopFollower, NotYet, Plan
from fastloader._core.machine import devices
from fastloader._core.machine.process import HomeProcess
from fastloader._core.observation import trace
from fastloader._core.observation.statistics import LOOP, Figures, Stage, Statistics
from fastloader._core.order.epoch_order import EpochOrder
from fastloader.transforms._normalization import Normalization

# ---- The memory that batches are copied from, held until the copies are done.


class HeldInputs:
    """Holds the tensors that batches are copied from until the copies are done. torch keeps them alive
    for so long only if they are pinned, and not on every device. The MPS device is known to read
    pageable memory after it was freed (pytorch#189690)."""

    # Batches held besides the one issued last. They may lie in shared slots, of which a worker has so
    # many to spare. A loop that is so far ahead of its device loses nothing by waiting.
    MOST = 2

    def __init__(self, side: devices.StreamSide) -> None:
        self._side = side
        self._home = HomeProcess()
        # (event after the copies, the tensors copied from), oldest first, in the side stream's order.
        self._held: collections.deque[tuple[Any, list[Any]]] = collections.deque()

    def hold(self, inputs: list[Any]) -> None:
        """Holds ``inputs`` until the copies that were queued last are done."""
        self._held.append((self._side.mark(), inputs))
        while len(self._held) > self.MOST + 1 or (self._held and self._held[0][0].query()):
            self._release()

    def wait(self) -> None:
        """Waits until all copies are done. There are few."""
        if self._home.here:  # a forked child leaves its parent's copies alone
            while self._held:
                self._release()

    def _release(self) -> None:
        try:
            held = self._held.popleft()
        except IndexError:  # another thread, with its own iterator, was here meanwhile
            return
        try:
            held[0].synchronize()
        except BaseException:  # Ctrl-C, while the copy still reads
            self._held.appendleft(held)
            raise


# ---- Delivery to any accelerator that torch knows, with torch's streams alone.
#
# timm's PrefetchLoader and Apex's data_prefetcher work like this, but with hazards that are
# absent here. Outputs are allocated on the training loop's stream, so that torch's allocator
# never hands out memory that the loop still reads. (The others allocate on the side stream and
# need ``record_stream``.) A loader has one side stream, and not one per epoch. The loop's
# stream is read at each ``next()``. The memory that a batch is copied from lives until the copy
# is done.


class StreamDelivery:
    """Copies batches to ``device`` on a side stream, and normalises their image leaves there. With
    ``normalization=None`` every leaf is delivered as it is, but for a `StoredMask`."""

    def __init__(
        self,
        device: torch.device,
        normalization: Normalization | None,
        statistics: Statistics,
        leaf_check: LeafCheck,
    ) -> None:
        self.device = device
        self.normalization = normalization
        self.leaf_check = leaf_check
        self.statistics = statistics
        self.side = devices.StreamSide(device)
        self.inputs = HeldInputs(self.side)
        # Waits for the last copies, which would otherwise outlive the loader and even the interpreter.
        weakref.finalize(self, self.inputs.wait)
        # False once the device had no memory for a batch besides the one that the loop has. It stays
        # False: otherwise every step would ask for the memory again, which on CUDA empties the
        # allocator's cache.
        self.looks_ahead = True

    def load(self, batch: Any, draws: EpochDraws | None) -> Load:
        tree = flatten(batch)
        images: dict[int, Image] = {}
        if self.normalization:
            images = find_images(tree, self.normalization, self.leaf_check)
        records, target = None, None
        if draws is not None:
            augmented, target = draws.augmentation.leaves(tree, images)
            records = draws.next(images[augmented])
        return Load(tree, images, records, target)

    def issue(self, load: Load) -> InFlight:
        """Queues one batch on the side stream. Its outputs are made before, on the loop's stream."""
        with devices.ordinary_tensors():  # the loop may be in inference mode only now
            return self._issue(load.tree, load.images, load.records, load.target)

    def _issue(
        self, tree: BatchTree, images: dict[int, Image], records: Records | None, target: int | None
    ) -> InFlight:
        consumer = self.side.consumer()
        outputs = []
        raw = {}
        for index, leaf in enumerate(tree.leaves):
            image = images.get(index)
            if index in tree.stored:
                raw[index] = torch.empty_like(leaf, device=self.device)
                outputs.append(torch.empty_like(raw[index], dtype=tree.stored[index]))
            elif image is None or self.normalization is None:
                # empty_like preserves the format: a channels_last leaf stays one, as with .to().
                outputs.append(torch.empty_like(leaf, device=self.device))
            else:
                raw[index] = torch.empty_like(image.pixels, device=self.device)
                shape = image.delivered if records is None else (len(records), *image.shape[1:])
                outputs.append(self.normalization.output(shape, self.device))
        moved: list[Any] = []
        held = [*tree.leaves, *(image.pixels for image in images.values())]
        late = self.side.can_tell

        def move(value: Any) -> Any:
            held.append(value)
            moved.append(devices.move(value, self.device, non_blocking=late))
            return moved[-1]

        try:
            with self.side.begin():
                for index, leaf in enumerate(tree.leaves):
                    if index in tree.stored:
                        raw[index].copy_(leaf, non_blocking=late)
                        fill_mask(outputs[index], raw[index])
                    elif index in raw and self.normalization is not None:
                        raw[index].copy_(images[index].pixels, non_blocking=late)
                        if records is None:
                            out = outputs[index]
                            if images[index].clips is not None:
                                out = out.view(images[index].shape)
                            self.normalization.apply(raw[index], out)
                        else:
                            apply(self.normalization, raw[index], records, outputs[index])
                    else:
                        outputs[index].copy_(leaf, non_blocking=late)
                shown = [*outputs]
                if records is not None and target is not None:
                    shown[target] = records.mixed_target(outputs[target])
                    moved.append(shown[target])  # which is the side stream's memory, too
                delivered = unflatten(tree.template, shown, move)
        except BaseException:
            # The loop's stream must wait for the side stream, because its memory goes back to the
            # allocator while some work on it is still queued.
            self.side.hand_over(consumer)
            raise
        finally:
            if late:
                self.inputs.hold(held)
        # `raw` must live until the loop's stream waits, because it was made on that stream.
        return InFlight(delivered, consumer, [*outputs, *raw.values()], moved)

    def hand_over(self, in_flight: InFlight) -> Any:
        """Makes the loop's current stream wait for the batch, which then belongs to that stream."""
        consumer = self.side.consumer()
        self.side.hand_over(consumer)
        # Values that moved themselves were allocated on the side stream, so their memory must be
        # recorded. The other memory needs that only if the loop has changed its stream since.
        foreign = [*tensors_in(in_flight.moved)]
        if consumer != in_flight.consumer:
            foreign += in_flight.memory
        for tensor in foreign:
            if tensor.device.type not in ("cpu", "mps"):
                tensor.record_stream(consumer)
        return in_flight.delivered


@dataclasses.dataclass
class Load:
    """A batch that is to be queued, and its draws."""

    tree: BatchTree
    images: dict[int, Image]
    records: Records | None
    target: int | None


@dataclasses.dataclass
class InFlight:
    """A batch in flight. ``memory`` was made on stream ``consumer``, ``moved`` on the side stream."""

    delivered: Any
    consumer: Any
    memory: list[torch.Tensor]
    moved: list[Any]
    drawn: int = 0  # how many samples were drawn with this batch


# ---- One epoch with torch's streams.


_log = logging.getLogger("fastloader")


@dataclasses.dataclass
class ErrorInFlight:
    """An error that was raised instead of a batch. ``took``: whether it takes a batch's place."""

    error: Exception
    took: bool
    drawn: int  # as in InFlight


class StreamIterator(DeliveryIterator):
    """Delivers one epoch without a thread of its own. With ``ahead`` one batch is in flight while the
    training loop works, if the workers have one ready. Without it the source advances only in the loop's
    ``next()``, so that the user's RNG behaves as with DataLoader."""

    def __init__(
        self,
        source: Iterator[Any],
        delivery: StreamDelivery,
        ahead: bool,
        follow_loop: Callable[[Iterator[Any]], LoopFollower | None],
        draws: EpochDraws | None,
    ) -> None:
        super().__init__(source, delivery.statistics, delivery.leaf_check)
        self._delivery = delivery
        self._ahead = ahead
        self._draws = draws
        self._follower = follow_loop(source) if ahead else None
        self._flight: list[InFlight | ErrorInFlight] = []
        self._given: list[Any] = []  # the batch that the source gave, until it is the load
        self._load: Load | None = None  # a batch that is not in flight yet
        self._number = 0  # the number of the batch that the loop gets next
        weakref.finalize(self, _abandon, self._flight, delivery, self._home)

    def _check(self) -> None:
        super()._check()
        devices.forbid_capture(self._delivery.device)

    def _next(self) -> Any:
        """Delivers one batch. Ctrl-C or a lack of memory may break off every step, and the next call
        goes on there: a batch stays in flight until `_settle`."""
        delivery = self._delivery
        self._filled_place = False
        if not self._flight:
            self._advance(required=True)
        flown = self._flight[0]
        if self._follower is not None and not (isinstance(flown, ErrorInFlight) and not flown.took):
            try:
                self._follower.taken(self._number)
            except Exception:  # the sampler's error takes the batch's place
                self._settle(flown)
                raise
        if isinstance(flown, ErrorInFlight):
            self._settle(flown)
            try:
                raise flown.error
            finally:
                del flown  # breaks the cycle of this frame and the error
        # Before the next batch is queued, so that the loop's stream does not wait for that one.
        delivered = delivery.hand_over(flown)
        if self._ahead and delivery.looks_ahead and len(self._flight) == 1:
            self._advance(required=False)
        self._settle(flown)
        return delivered

    def _settle(self, flown: InFlight | ErrorInFlight) -> None:
        self._number += 1
        self._filled_place = not isinstance(flown, ErrorInFlight) or flown.took
        if self._draws is not None:
            self._draws.delivered = flown.drawn
        del self._flight[0]

    def _advance(self, required: bool) -> None:
        """Puts one batch in flight, or the error that is raised in its place. If the batch is not
        ``required``, the training loop does not wait for it, and is not told that it is late or that
        there is no memory for it: the loop asked for the batch before this one."""
        source: Any = self._batches  # None: closed meanwhile, which `waiting` says
        took = True
        try:
            if self._load is None and not self._given:
                try:
                    follower = self._follower
                    if follower is None:
                        self._given.append(next(source))
                    else:
                        self._given.append(next(follower) if required else follower.next_if_there())
                except StopIteration:
                    self._delivery.inputs.wait()  # so that nothing is held after the epoch
                    raise
                except Exception:
                    took = getattr(source, "_filled_place", True)
                    raise
            if self._load is None:
                drawn = self._drawn()
                try:
                    self._load = self._delivery.load(self._given[0], self._draws)
                except BaseException:  # the next batch gets these draws, or this one again
                    if self._draws is not None:
                        self._draws.samples = drawn
                    raise
            self._given.clear()
            begun = time.perf_counter()
            in_flight = self._delivery.issue(self._load)
            in_flight.drawn = self._drawn()
            self._flight.append(in_flight)
            self._load = None
            now = time.perf_counter()
            self._delivery.statistics.add_time("copy", now - begun)
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
            self._flight.append(ErrorInFlight(error, took, self._drawn()))

    def _drawn(self) -> int:
        return 0 if self._draws is None else self._draws.samples

    def close(self) -> None:
        """Ends the epoch early, from any thread. Further calls of ``next()`` raise StopIteration, and a
        call that is under way raises Error."""
        super().close()
        self._follower = None
        self._load = None
        self._given = []
        _abandon(self._flight, self._delivery, self._home)


def _abandon(flight: list[Any], delivery: StreamDelivery, home: HomeProcess) -> None:
    """Drops the batches in flight. Their memory may go back to the allocator only after the work on it,
    so the stream where it was made waits. That stream need not be the one that is current here."""
    if home.here:
        for flown in flight:
            if isinstance(flown, InFlight):
                delivery.side.hand_over(flown.consumer)
    flight.clear()


# ---- Delivery to any accelerator torch knows, as a path.


class StreamPath(DeliveryPath):
    """Copies and normalises batches on a side stream of torch."""

    name = "streams"
    words = "delivered to {device} through torch's streams"
    reads_ahead = True
    copies = True
    _streams: StreamDelivery | None = None  # the one of the epoch begun last

    @classmethod
    def serves(cls, spec: DeliverySpec, device: torch.device | None) -> bool:
        return device is not None

    def begin(
        self, plan: Plan, order: EpochOrder | None, draws: EpochDraws | None
    ) -> Iterator[Any]:
        batches = plan.open(order, self._handoff(plan, draws, pin=True))
        normalization = self._normalization(plan)
        if self._streams is None or self._streams.normalization != normalization:
            assert self.spec.device is not None
            self._streams = StreamDelivery(
                self.spec.device, normalization, self.statistics, self.leaf_check
            )
        return StreamIterator(batches, self._streams, plan.ahead, plan.follow_loop, draws)

    def figures(self) -> Figures:
        seconds, count = self.statistics.total("copy")
        stage = Stage("copy", seconds, count, "batch", LOOP, bound="copy")
        return Figures((stage,) if count else ())
