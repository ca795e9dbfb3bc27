"""What is erased and mixed in batches whose source knows it: boxes are drawn by the samples' own seeds,
and what is mixed by that of a batch's first sample."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fastloader._core.batch.augmentation.augmentation import (
    Augmentation,
    EpochDraws,
    Records,
    unchanged,
)
from fastloader.transforms._erasing import Erasing


class SampleDraws(EpochDraws):
    """The draws of one epoch, which are a function of the seeds and the numbers of a batch's samples.
    The source tells which they are before it gives the batch."""

    def __init__(self, augmentation: Augmentation) -> None:
        super().__init__(augmentation, 0, 0)
        self._numbers: Sequence[int] = ()
        self._seeds: Sequence[int] = ()

    def give(self, samples: Sequence[int], seeds: Sequence[int]) -> None:
        """Tells the samples of the next batch, and the seed of each, or one for all."""
        self._numbers, self._seeds = samples, seeds

    def records(self, batch: int, height: int, width: int) -> Records:
        augmentation, mixing = self.augmentation, self.augmentation.mixing
        if mixing is not None:
            mixing.check(batch)
        self.samples += batch
        n = augmentation.out_batch(batch)
        mix, weights = unchanged(n)
        if mixing is not None and mixing.enabled:
            mix["partner"] = mixing.partners(batch)[:n]
            mixing.draw(self._random(), mix, weights, height, width)
        boxes = np.zeros((n, augmentation.max_boxes, 4), dtype=np.int32)
        if isinstance(augmentation.erasing, Erasing):
            drawn, keys = augmentation.erasing.draw(self._seeds, self._numbers, height, width)
            boxes[:, 0] = drawn
            mix["boxes"] = drawn[:, 1] > drawn[:, 0]
            mix["key"] = keys
        return Records(augmentation, mix, boxes, weights, batch)

    def _random(self) -> np.random.Generator:
        first = np.array([self._seeds[0] % 2**64, self._numbers[0]], dtype=np.uint64)
        return np.random.Generator(np.random.Philox(key=first))
