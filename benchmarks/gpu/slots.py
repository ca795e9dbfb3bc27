"""Batches that lie in the ring's slots already: a source in memory faster than any link."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from device import Device

from fastloader._core.batch.image_leaves import made_none
from fastloader._core.delivery.delivery import Delivery
from fastloader._core.delivery.path import DeliverySpec
from fastloader._core.handoff import Handoff, Slots

MEAN = (0.485, 0.456, 0.406)
STD = (0.229, 0.224, 0.225)
ALIGNMENT = 256  # of a leaf in its slot, as the native BatchLayout lays them out

Structure = Callable[[torch.Tensor, torch.Tensor], Any]


def pair(images: torch.Tensor, labels: torch.Tensor) -> Any:
    return images, labels


def mapping(images: torch.Tensor, labels: torch.Tensor) -> Any:
    return {"image": images, "label": labels}


def images_alone(images: torch.Tensor, labels: torch.Tensor) -> Any:
    return images


class Contents:
    """The same random pictures and labels in every slot, NHWC as decoders leave them. A slot is written
    when it is first seen, and afterwards found as it was left."""

    def __init__(self, batch: int, side: int, structure: Structure) -> None:
        self.batch, self.structure = batch, structure
        self.images = torch.randint(0, 256, (batch, side, side, 3), dtype=torch.uint8)
        self.labels = torch.randint(0, 1000, (batch,))
        self.image_bytes = self.images.numel()
        self._labels_at = -(-self.image_bytes // ALIGNMENT) * ALIGNMENT
        self.slot_bytes = self._labels_at
        if structure is not images_alone:
            self.slot_bytes += -(-batch * 8 // ALIGNMENT) * ALIGNMENT
        self._seen: dict[int, Any] = {}

    def at(self, address: int) -> Any:
        if address not in self._seen:
            images = _tensor_at(address, self.image_bytes).view(self.images.shape)
            images.copy_(self.images)
            labels = self.labels
            if self.structure is not images_alone:
                labels = _tensor_at(address + self._labels_at, self.batch * 8).view(torch.int64)
                labels.copy_(self.labels)
            # NCHW in torch's eyes, with the strides of NHWC.
            self._seen[address] = self.structure(images.permute(0, 3, 1, 2), labels)
        return self._seen[address]


def _tensor_at(address: int, size: int) -> torch.Tensor:
    return torch.frombuffer((ctypes.c_uint8 * size).from_address(address), dtype=torch.uint8)


class SlotBatches(Iterator[Any]):
    """What the decode pool is to the ring, without decoding: it reserves a slot, and the batch is there.
    ``first_filled``: when the first one was about to be committed."""

    def __init__(self, slots: Slots, contents: Contents, count: int) -> None:
        self._slots, self._contents, self._left = slots, contents, count
        self.first_filled = 0.0

    def __next__(self) -> Any:
        if not self._left:
            raise StopIteration
        reservation = self._slots.reserve(self._contents.slot_bytes)
        if reservation is None:
            raise StopIteration
        self._left -= 1
        self._slots.present(reservation)
        batch = self._contents.at(reservation.address)
        if not self.first_filled:
            self.first_filled = time.perf_counter()
        return batch


class SlotPlan:
    """One epoch of ``count`` batches. ``batches``: its iterator, once it has begun."""

    normalization = draws = None
    normalizes = exclusive = pins = False
    fills_slots = ahead = True
    made_under = staticmethod(made_none)

    def __init__(self, contents: Contents, count: int) -> None:
        self._contents, self._count = contents, count
        self.batches: SlotBatches | None = None

    def open(self, order: None, handoff: Handoff) -> SlotBatches:
        assert handoff.slots is not None
        self.batches = SlotBatches(handoff.slots, self._contents, self._count)
        return self.batches

    def follow_loop(self, batches: Iterator[Any]) -> None:
        return None


class MemoryLoader:
    """FastLoader's delivery behind such a source: pump, ring, prefetch thread, two streams, reaper."""

    def __init__(
        self, device: Device, contents: Contents, dtype: torch.dtype | None, channels_last: bool
    ) -> None:
        normalised = (MEAN, STD, dtype, channels_last) if dtype else (None, None, None, False)
        self._delivery = Delivery(DeliverySpec(device.torch_device, *normalised, None, None))
        if self._delivery.path != "engine":
            raise RuntimeError(
                f"batches for {device.torch_device} take the path {self._delivery.path!r}; these "
                "benchmarks are about the native engine (in a rehearsal: FASTLOADER_BACKEND=host)"
            )
        self.contents = contents

    def iterate(self, count: int) -> tuple[Any, SlotBatches]:
        """An iterator over so many batches, and its source's."""
        plan = SlotPlan(self.contents, count)
        iterator = self._delivery.begin(plan)
        assert plan.batches is not None
        return iterator, plan.batches

    def ring(self) -> dict[str, Any]:
        return dict(self._delivery.figures().ring)

    def close(self) -> None:
        self._delivery.close()
