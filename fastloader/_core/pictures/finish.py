"""Finishes a batch of pictures when the last of them is there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.utils.data._utils.pin_memory import pin_memory

from fastloader._core.batch.augment_in_torch import apply, augment_bytes
from fastloader._core.batch.augmentation import SampleDraws, make_augment_spec
from fastloader._core.batch.image_leaves import Image
from fastloader._core.handoff import Handoff
from fastloader._core.machine import extension
from fastloader._core.pictures.decoder import PendingBatch, bytes_of
from fastloader._core.pictures.images import NativeImages
from fastloader.transforms._erasing import Erasing

if TYPE_CHECKING:
    from fastloader import _native


class Finish:
    """Makes the batch that is delivered, once the pool is done with its pictures, and adds its labels.
    It erases as the dataset's transform asks, and mixes as the collate_fn asks. A delivery that
    normalises and has the plan's draws mixes in its place, and erases floats.

    Args:
        draws: the plan's, of what is erased in floats, and of what is mixed.
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
        delivered = draws is not None and handoff.draws is draws
        chain, mixing = pictures.chain, pictures.mixing
        # What is left to do here.
        erasing = None if delivered and chain.floating else chain.erasing
        self._mixes = mixing is not None and not delivered
        # Whether the batches come as bytes and leave normalised, which the kernel does with them.
        deviates = erasing is not None and erasing.value is None
        self.normalizes = deviates or (self._mixes and chain.floating)
        self._erasing: Erasing | None = None if self.normalizes else erasing
        self._values = torch.empty(0)
        if self._erasing is not None:
            self._values = self._values_of(self._erasing)
        self._pool: _native.BufferPool | None = None
        if self.normalizes and extension.load() is not None:
            self._pool = extension.native.BufferPool()

    def _values_of(self, erasing: Erasing) -> torch.Tensor:
        assert erasing.value is not None
        values, dtype = erasing.value, torch.float32
        if self._normalization is not None:
            dtype = self._normalization.dtype
        if not self._pictures.chain.floating:
            if self._normalization is None:
                dtype = torch.uint8
            else:  # the loader's
                values = self._normalization.of_pixel([int(value) for value in values])
        return torch.tensor(values, dtype=dtype, device="cpu").view(-1, 1, 1)

    def batch(self, pending: PendingBatch, kept: Sequence[int] | None) -> Any:
        """Makes the batch that is delivered. ``kept``: the positions of which it consists, None for all.
        A second call gives the same."""
        images = pending.batch.take()
        files = pending.files
        if kept is not None:
            images, files = images[kept], [files[each] for each in kept]
        others = pending.requested.others
        # Some are left out or have other files in their place, or the same file, which can be read now.
        if pending.bad or files != pending.requested.files:
            others = self._pictures.form.others(files)
        return self.finished(images, files, *self._drawn_by(pending, kept), others)

    def finished(
        self,
        images: torch.Tensor,
        files: list[int],
        samples: list[int],
        seeds: list[int],
        others: list[Any],
    ) -> Any:
        """Makes the batch that is delivered of pictures, which come from these ``files`` and were drawn
        for these ``samples`` by these seeds, one for each or one for all. ``others``: what else is in
        the samples, collated."""
        labels = torch.from_numpy(self._pictures.targets[files].astype(np.int64))
        if self._erasing is not None:
            self._erase(self._erasing, images, samples, seeds)
        if self._draws is not None:
            self._draws.give(samples, seeds)
            if self.normalizes or self._mixes:
                images, labels = self._augmented(self._draws, images, labels)
        if self._pin:
            images, labels = images.pin_memory(), labels.pin_memory()
            others = pin_memory(others)
        return self._pictures.form.batch(images, labels, others, self._pictures.container)

    def _drawn_by(
        self, pending: PendingBatch, kept: Sequence[int] | None
    ) -> tuple[list[int], list[int]]:
        """Returns the samples of a batch, and their seeds: those that were asked for, also where another
        file is in a bad one's place."""
        samples, seeds = pending.keys, pending.seeds
        if self._pictures.indices is not None:
            samples = self._pictures.indices[samples].tolist()
        if kept is not None:
            samples = [samples[each] for each in kept]
            seeds = seeds if len(seeds) == 1 else [seeds[each] for each in kept]
        return samples, seeds

    def _erase(
        self, erasing: Erasing, images: torch.Tensor, samples: list[int], seeds: list[int]
    ) -> None:
        boxes, _ = erasing.draw(seeds, samples, *self._size)
        # By numpy, because torch would share a box out to threads, which wait for the decode threads. It
        # has no bfloat16.
        kind = torch.int16 if images.dtype is torch.bfloat16 else images.dtype
        pixels, values = images.view(kind).numpy(), self._values.view(kind).numpy()
        for image, (top, bottom, left, right) in zip(pixels, boxes.tolist(), strict=True):
            if bottom > top:
                image[:, top:bottom, left:right] = values

    def _augmented(
        self, draws: SampleDraws, images: torch.Tensor, labels: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        images = images.contiguous(memory_format=torch.channels_last) if self.normalizes else images
        shape = (len(images), self._pictures.chain.channels, *self._size)
        image = Image(shape, True, images)
        records = draws.next(image)
        if self._mixes:
            labels = records.mixed_target(labels)
        if not self.normalizes:
            return augment_bytes(images, records), labels
        assert self._normalization is not None
        if self._pool is None:
            out = self._normalization.output((len(records), 3, *self._size), images.device)
            return apply(self._normalization, images, records, out), labels
        spec = make_augment_spec(image, self._normalization, records)
        packed = records.packed()
        capsule = self._pool.augmented(spec, source=images.data_ptr(), records=packed.data_ptr())
        return torch.from_dlpack(capsule), labels

    def leaf_bytes(self, leaves: list[int], samples: int, others: list[Any]) -> list[int]:
        """Returns the bytes of a batch's tensors, if ``leaves`` are those of its pixels and labels."""
        mixing = self._pictures.mixing
        if mixing is not None and self._mixes:
            return [leaves[0], samples * (mixing.num_classes or 0) * 4]
        return [*leaves, *bytes_of(others)]
