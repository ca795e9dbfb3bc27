"""Batches of pictures without the native module."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from fastloader._core.batch.augmentation import Augmentation, SampleDraws
from fastloader._core.handoff import Handoff
from fastloader._core.observation.statistics import Statistics
from fastloader._core.pictures.crop_seeds import SeededKeys
from fastloader._core.pictures.in_place.in_place import InPlace
from fastloader._core.pictures.native_images import NativeImages
from fastloader._core.sources.images.finish import Finish
from fastloader.transforms._recipe import draw

_log = logging.getLogger("fastloader")


class PillowPictures(InPlace):
    """Makes the batches of the native path where there is no native module: the same draws, and the
    same pixels, by Pillow and torch.

    Args:
        images: pictures whose whole transform is known, and what a known collate_fn mixes.
        collate_fn: the loader's, for samples that are the dataset's own.
    """

    def __init__(
        self,
        dataset: Any,
        images: NativeImages,
        collate_fn: Callable[[Any], Any],
        began: Callable[[InPlace], None] | None = None,
    ) -> None:
        super().__init__(dataset, images, began)
        self._collate_fn = collate_fn

    def __getitems__(self, keys: Any) -> list[Any]:
        made = super().__getitems__(keys)
        return _Made(made) if type(keys) is SeededKeys else made

    def sample(self, key: Any, number: int, seed: int) -> Any:
        """Returns (pixels, file, the sample's own file, seed)."""
        own = self.file(number)
        file, picture = self._opened_one(own)
        made = draw.made(self.images.chain, picture, seed, own)
        return np.asarray(made), file, own, seed

    def _opened_one(self, file: int) -> tuple[int, Any]:
        """Opens a file or, by timm's rule, one of those that follow it."""
        attempts = self.images.attempts
        for _ in range(attempts):
            try:
                return file, self.store.open_rgb(file)
            except OSError as error:
                if attempts == 1:
                    raise
                last = error
                _log.warning("fastloader: skipped %s: %s", self.store.name(file), error)
                dataset = self.parts[self.part(file)]
                if hasattr(dataset, "skipped"):  # that of compat.timm counts
                    dataset.skipped += 1
                file = self.images.next_file(file)
        raise RuntimeError(f"Failed to load {attempts} consecutive samples") from last

    def collate(self, samples: Any) -> Any:
        if type(samples) is not _Made:
            return self._collate_fn(samples)
        pixels, files, own, seeds = (list(each) for each in zip(*samples, strict=True))
        chain = self.images.chain
        rgb = torch.from_numpy(np.stack(pixels)).permute(0, 3, 1, 2)
        images = rgb[:, : chain.channels].contiguous()  # those of a grey picture are equal
        finish = self._finish()
        if chain.floating and not finish.normalizes:
            normalization = chain.normalization
            out = normalization.output(images.shape, images.device)
            images = normalization.apply(images, out)
        return finish.finished(images, files, own, seeds, self.images.form.others(files))

    def _finish(self) -> Finish:
        """One for each batch, because worker threads are at several batches at a time, and its draws
        know one batch's samples."""
        chain, mixing = self.images.chain, self.images.mixing
        erasing = chain.erasing if chain.floating else None
        draws = None
        if erasing is not None or mixing is not None:
            draws = SampleDraws(Augmentation(erasing, mixing))
        handoff = Handoff(
            Statistics(),
            held_by_loop=True,
            normalization=chain.normalization if chain.floating else None,
        )
        return Finish(self.images, handoff, draws, pin=False)


class _Made(list[Any]):
    """The samples of a batch, before they are finished together."""
