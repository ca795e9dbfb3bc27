"""Delivery to any accelerator torch knows, with torch's streams alone.

The way timm's PrefetchLoader and Apex's data_prefetcher go, without their hazards: outputs are
allocated on the consumer's stream, so that torch's allocator never hands out memory that the consumer
still reads (peers allocate on the side stream and need ``record_stream``); the side stream is one per
loader, not one per epoch; the consumer's stream is read at each ``next()``; what is copied from lives
until the copy is done.
"""

from __future__ import annotations

import dataclasses
import weakref
from typing import Any

import torch

from fastloader._core.batch.augmentation.augmentation import EpochDraws, Records
from fastloader._core.batch.augmentation.in_torch import apply
from fastloader._core.batch.images import Image, find_images
from fastloader._core.batch.tree import BatchTree, flatten, tensors_in, unflatten
from fastloader._core.delivery.streams.held_sources import HeldSources
from fastloader._core.machine import devices
from fastloader._core.observation.statistics import Statistics
from fastloader.transforms._normalization import Normalization


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

    def load(self, batch: Any, draws: EpochDraws | None) -> Load:
        tree = flatten(batch)
        images = find_images(tree, self.normalization) if self.normalization else {}
        records, target = None, None
        if draws is not None:
            augmented, target = draws.augmentation.leaves(tree, images)
            records = draws.next(images[augmented])
        return Load(tree, images, records, target)

    def issue(self, load: Load) -> InFlight:
        """Queues one batch on the side stream. Outputs are made before, on the consumer's."""
        with devices.ordinary_tensors():  # the batch may be taken when the mode is another
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
                # preserve_format: a channels_last leaf stays one, as with .to().
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
                    moved.append(shown[target])  # of the side stream's memory, too
                delivered = unflatten(tree.template, shown, move)
        except BaseException:
            # The consumer's memory goes back with some of the work on it still queued.
            self.side.hand_over(consumer)
            raise
        finally:
            if late:
                self.sources.hold(held)
        # `raw` must live until the consumer waits: it belongs to the consumer's stream.
        return InFlight(delivered, consumer, [*outputs, *raw.values()], moved)

    def hand_over(self, in_flight: InFlight) -> Any:
        """The consumer's current stream waits for the batch, which is its own from then on."""
        consumer = self.side.consumer()
        self.side.hand_over(consumer)
        # What moved itself was allocated on the side stream; the rest only needs telling when the
        # consumer has moved to another stream since.
        foreign = [*tensors_in(in_flight.moved)]
        if consumer != in_flight.consumer:
            foreign += in_flight.memory
        for tensor in foreign:
            if tensor.device.type not in ("cpu", "mps"):
                tensor.record_stream(consumer)
        return in_flight.delivered


@dataclasses.dataclass
class Load:
    """A batch that is to be queued, and what was drawn for it."""

    tree: BatchTree
    images: dict[int, Image]
    records: Records | None
    target: int | None


@dataclasses.dataclass
class InFlight:
    """A batch on its way: ``memory`` was made on stream ``consumer``, ``moved`` on the side stream."""

    delivered: Any
    consumer: Any
    memory: list[torch.Tensor]
    moved: list[Any]
    drawn: int = 0  # the number of the draws that come behind its own
