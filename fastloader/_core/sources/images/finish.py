"""What is done to a batch of pictures when the last of them is there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from fastloader._core.batch.augmentation.augmentation import make_augment_spec
from fastloader._core.batch.augmentation.samples import SampleDraws
from fastloader._core.batch.images import Image
from fastloader._core.handoff import Handoff
from fastloader._core.machine import extension
from fastloader._core.pictures.native_images import NativeImages
from fastloader._core.pictures.pending_batch import PendingBatch
from fastloader.transforms._erasing import Erasing


class Finish:
    """Makes what is delivered of a batch that the pool is done with, with its labels. It erases as the
    dataset's transform asks: bytes here, floats by the delivery that normalises, and here where the
    source normalises.

    Args:
        draws: the plan's, of what is erased in floats.
        pin: whether batches are put into torch's pinned memory, as DataLoader's pin_memory does.
    """

    def __init__(
        self, pictures: NativeImages, handoff: Handoff, draws: SampleDraws | None, pin: bool
    ) -> None:
        assert pictures.chain.size is not None
        self._pictures = pictures
        self._size = pictures.chain.size
        self._draws = draws
        self._pin = pin
        self._normalization = handoff.normalization
        delivery_erases = draws is not None and handoff.draws is draws
        erasing = None if delivery_erases else pictures.chain.erasing
        # Whether the batches come as bytes and leave normalised: normal deviates are the kernel's.
        self.normalizes = erasing is not None and erasing.value is None
        self._erasing: Erasing | None = None if self.normalizes else erasing
        self._values = torch.empty(0)
        if self._erasing is not None:
            self._values = self._values_of(self._erasing)
        native: Any = extension.load()
        self._native = native
        self._pool: Any = native.BufferPool() if self.normalizes else None

    def _values_of(self, erasing: Erasing) -> torch.Tensor:
        assert erasing.value is not None
        values, dtype = erasing.value, torch.float32
        if not self._pictures.chain.floating:
            dtype = torch.uint8
            if self._normalization is not None:  # the loader's
                values = self._normalization.of_pixel([int(value) for value in values])
                dtype = self._normalization.dtype
        return torch.tensor(values, dtype=dtype, device="cpu").view(-1, 1, 1)

    def batch(self, pending: PendingBatch, kept: Sequence[int] | None) -> Any:
        """What is delivered. ``kept``: the positions of which the batch consists, None for all. A
        second call gives the same."""
        images = torch.from_dlpack(pending.batch.take())
        labels = torch.from_numpy(self._pictures.targets[pending.files].astype(np.int64))
        if kept is not None:
            images, labels = images[kept], labels[kept]
        if self._pictures.chain.erasing is not None:
            images = self._erased(images, *self._drawn_by(pending, kept))
        if self._pin:
            images, labels = images.pin_memory(), labels.pin_memory()
        return self._pictures.container((images, labels))

    def _drawn_by(
        self, pending: PendingBatch, kept: Sequence[int] | None
    ) -> tuple[list[int], list[int]]:
        """The samples of a batch, and their seeds: those that were asked for, also where another file
        is in a bad one's place."""
        samples, seeds = pending.keys, pending.seeds
        if self._pictures.indices is not None:
            samples = self._pictures.indices[samples].tolist()
        if kept is not None:
            samples = [samples[each] for each in kept]
            seeds = seeds if len(seeds) == 1 else [seeds[each] for each in kept]
        return samples, seeds

    def _erased(self, images: torch.Tensor, samples: list[int], seeds: list[int]) -> torch.Tensor:
        if self._draws is not None:
            self._draws.give(samples, seeds)
        if self.normalizes:
            return self._normalized(images)
        if self._erasing is not None:
            boxes, _ = self._erasing.draw(seeds, samples, *self._size)
            for image, (top, bottom, left, right) in zip(images, boxes.tolist(), strict=True):
                if bottom > top:
                    image[:, top:bottom, left:right] = self._values
        return images

    def _normalized(self, images: torch.Tensor) -> torch.Tensor:
        assert self._normalization is not None and self._draws is not None
        images = images.contiguous(memory_format=torch.channels_last)  # unless some were left out
        image = Image((len(images), 3, *self._size), True, images)
        records = self._draws.next(image)
        spec = make_augment_spec(self._native, image, self._normalization, records)
        packed = records.packed()
        capsule = self._pool.augmented(spec, source=images.data_ptr(), records=packed.data_ptr())
        return torch.from_dlpack(capsule)
