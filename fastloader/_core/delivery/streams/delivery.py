"""Delivery to any accelerator that torch knows, with torch's streams alone.

timm's PrefetchLoader and Apex's data_prefetcher work like this, but with hazards that are absent here.
Outputs are allocated on the training loop's stream, so that torch's allocator never hands out memory
that the loop still reads. (The others allocate on the side stream and need ``record_stream``.) A loader
has one side stream, and not one per epoch. The loop's stream is read at each ``next()``. The memory that
a batch is copied from lives until the copy is done.
"""

from __future__ import annotations

import dataclasses
import weakref
from typing import Any

import torch

from fastloader._core.batch.augment_in_torch import apply
from fastloader._core.batch.augmentation import EpochDraws, Records
from fastloader._core.batch.tree import (
    BatchTree,
    Image,
    find_images,
    flatten,
    tensors_in,
    unflatten,
)
from fastloader._core.delivery.streams.held_inputs import HeldInputs
from fastloader._core.machine import devices
from fastloader._core.observation.statistics import Statistics
from fastloader.transforms._normalization import Normalization


class StreamDelivery:
    """Copies batches to ``device`` on a side stream, and normalises their image leaves there. With
    ``normalization=None`` every leaf is delivered as it is."""

    def __init__(
        self, device: torch.device, normalization: Normalization | None, statistics: Statistics
    ) -> None:
        self.device = device
        self.normalization = normalization
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
        images = find_images(tree, self.normalization) if self.normalization else {}
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
            if image is None or self.normalization is None:
                # empty_like preserves the format: a channels_last leaf stays one, as with .to().
                outputs.append(torch.empty_like(leaf, device=self.device))
            else:
                raw[index] = torch.empty_like(image.pixels, device=self.device)
                shape = image.shape if records is None else (len(records), *image.shape[1:])
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
