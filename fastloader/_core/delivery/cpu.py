"""Delivery to the CPU: images are normalised into recycled memory on the consumer's thread."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils.data._utils import pin_memory

from fastloader._core.batch.augmentation.augmentation import (
    EpochDraws,
    Records,
    make_augment_spec,
)
from fastloader._core.batch.augmentation.in_torch import apply
from fastloader._core.batch.containers import Key, rebuild
from fastloader._core.batch.images import Image, as_image, find_images
from fastloader._core.batch.tree import is_leaf, put_together, take_apart
from fastloader._core.delivery.iterator import DeliveryIterator
from fastloader._core.machine import extension
from fastloader._core.observation import trace
from fastloader._core.observation.statistics import Statistics
from fastloader.transforms._normalization import Normalization, make_spec


class CpuDelivery:
    """With the native module or without it: the same tensors to the bit."""

    def __init__(self, normalization: Normalization, statistics: Statistics) -> None:
        self._native = extension.load()
        self._normalization = normalization
        self.statistics = statistics
        self._pool = None if self._native is None else self._native.BufferPool()
        # By shape and strides, of images that need not be copied first. Varying shapes are few, and a
        # spec is cheap to make again.
        self._specs: dict[tuple[tuple[int, ...], tuple[int, ...]], Any] = {}

    def iterate(
        self, source: Iterator[Any], draws: EpochDraws | None, pin: bool = False
    ) -> Iterator[Any]:
        return CpuIterator(source, self, draws, pin)

    def deliver(self, batch: Any, draws: EpochDraws | None = None) -> Any:
        if draws is not None:
            return self._deliver_augmented(batch, draws)
        # In one pass over the containers, since nothing but the images changes.
        wanted = self._normalization.image_key
        found = False

        def visit(value: Any, key: Key) -> Any:
            nonlocal found
            if type(value) is torch.Tensor and value.dtype is torch.uint8:
                if (wanted is None or key == wanted) and is_leaf(value):
                    normalized = self._normalized(value)
                    if normalized is not None:
                        found = True
                        return normalized
            return value

        delivered = rebuild(batch, visit)
        if not found:
            find_images(take_apart(batch), self._normalization)  # says what there is instead
        return delivered

    def _deliver_augmented(self, batch: Any, draws: EpochDraws) -> Any:
        parts = take_apart(batch)
        outputs = list(parts.leaves)
        images = find_images(parts, self._normalization)
        index, target = draws.augmentation.leaves(parts, images)
        records = draws.next(images[index])
        outputs[index] = self._augmented(images[index], records)
        if target is not None:
            outputs[target] = records.mixed_target(parts.leaves[target])
        return put_together(parts.template, outputs, lambda value: value)

    def _augmented(self, image: Image, records: Records) -> torch.Tensor:
        if self._pool is None:
            shape = (len(records), *image.shape[1:])
            out = self._normalization.output(shape, image.pixels.device)
            return apply(self._normalization, image.pixels, records, out)
        spec = make_augment_spec(self._native, image, self._normalization, records)
        packed = records.packed()
        capsule = self._pool.augmented(
            spec, source=image.pixels.data_ptr(), records=packed.data_ptr()
        )
        return torch.from_dlpack(capsule)

    def _normalized(self, leaf: torch.Tensor) -> torch.Tensor | None:
        """None for what is no image."""
        if self._pool is None:
            image = as_image(leaf, self._normalization)
            if image is None:
                return None
            out = self._normalization.output(image.shape, image.pixels.device)
            return self._normalization.apply(image.pixels, out)
        key = (leaf.shape, leaf.stride())
        spec = self._specs.get(key)
        if spec is None:
            image = as_image(leaf, self._normalization)
            if image is None:
                return None
            spec = make_spec(self._native, image.shape, image.nhwc, self._normalization)
            if image.pixels.data_ptr() == leaf.data_ptr():
                if len(self._specs) >= 64:
                    self._specs.clear()
                self._specs[key] = spec
            leaf = image.pixels
        return torch.from_dlpack(self._pool.normalized(spec, source=leaf.data_ptr()))

    def stats(self) -> dict[str, Any]:
        return {} if self._pool is None else {"buffers": self._pool.stats()}


class CpuIterator(DeliveryIterator):
    """Owns no thread and no look-ahead: whatever runs ahead is torch's workers. ``pin`` puts what is
    delivered into torch's pinned memory, as DataLoader's pin_memory does."""

    def __init__(
        self,
        source: Iterator[Any],
        delivery: CpuDelivery,
        draws: EpochDraws | None,
        pin: bool,
    ) -> None:
        super().__init__(source)
        self._pin = pin
        self._delivery = delivery
        self._draws = draws
        # By the source, and not delivered yet: Ctrl-C may come in between.
        self._given: list[Any] = []

    def _take(self) -> Any:
        statistics = self._delivery.statistics
        with statistics.waiting(self):
            source: Any = self._source  # None: closed meanwhile, which `waiting` says
            if not self._given:
                try:
                    self._given.append(next(source))
                except Exception:
                    self._took = getattr(source, "_took", True)
                    raise
            self._took = True
            begun = time.perf_counter()
            drawn = 0 if self._draws is None else self._draws.batch
            try:
                delivered = self._delivery.deliver(self._given[0], self._draws)
                if self._pin:
                    delivered = pin_memory.pin_memory(delivered)
            except BaseException as error:
                if self._draws is not None:  # they are the next batch's, or this one's once more
                    self._draws.batch = drawn
                if isinstance(error, Exception):
                    self._given.clear()  # it takes the batch's place
                raise
            self._given.clear()
            if self._draws is not None:
                self._draws.delivered = self._draws.batch
            now = time.perf_counter()
            statistics.spend("normalise", now - begun)
            trace.add("normalise", begun, now)
        statistics.batches += 1
        self._count()
        return delivered
