"""Random erasing of single pictures, with torchvision's distribution: draws what is erased, for many
pictures at once."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from fastloader.transforms._recipe.draws import ERASING, MASK, PICTURE, philox

_ATTEMPTS = 10
# Pairs of 64-bit numbers for a picture: whether it is erased, area and ratio of each attempt, top and
# left, and one for the deviates.
_BLOCKS = _ATTEMPTS + 2
_KEY = 2 * _BLOCKS - 1


@dataclasses.dataclass(frozen=True)
class Erasing:
    """Erases one box of a picture with ``probability``. The box's share of the area is in ``scale``, and
    the logarithm of its height / width in ``log_ratio``. A box that does not fit is drawn again, ten
    times at most. ``value`` is the fill for each channel; None is a normal deviate for each value."""

    probability: float
    scale: tuple[float, float]
    log_ratio: tuple[float, float]
    value: tuple[float, ...] | None

    most = 1  # box of a picture

    @property
    def fill(self) -> str:
        return "pixel" if self.value is None else "const"

    @property
    def values(self) -> tuple[float, ...] | None:
        """The constant that fills a box, if it is not 0."""
        return self.value if self.value is not None and any(self.value) else None

    def draw(
        self,
        seeds: Sequence[int],
        samples: Sequence[int],
        height: int,
        width: int,
        picture: int = 0,
    ) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.uint64]]:
        """Draws for pictures of one size. ``seeds``: one for each, or one for all. ``picture``: which of
        its sample's each is.

        Returns:
            (top, bottom, left, right) of each box, four equal numbers where nothing is erased; and the
            key of each picture's deviates.
        """
        numbers = numbers_of(seeds, samples, ERASING | picture << PICTURE, _BLOCKS)
        uniform = uniform_of(numbers)
        area = between(self.scale, uniform[:, 1 : 2 * _ATTEMPTS : 2]) * (height * width)
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            ratio = np.exp(between(self.log_ratio, uniform[:, 2 : 2 * _ATTEMPTS + 1 : 2]))
            high, wide = np.rint(np.sqrt(area * ratio)), np.rint(np.sqrt(area / ratio))
            fits = (high < height) & (wide < width)
        first = fits.argmax(axis=1)[:, None]
        erased = (uniform[:, :1] < self.probability) & np.take_along_axis(fits, first, axis=1)
        high, wide = (
            np.where(erased, np.take_along_axis(edges, first, axis=1), 0).astype(np.int64)
            for edges in (high, wide)
        )
        top = below(np.take_along_axis(numbers, 2 * first + 3, axis=1), height - high + 1)
        left = below(np.take_along_axis(numbers, 2 * first + 4, axis=1), width - wide + 1)
        boxes = np.concatenate((top, top + high, left, left + wide), axis=1)
        empty = (high == 0) | (wide == 0)
        return np.where(empty, 0, boxes).astype(np.int32), numbers[:, _KEY]


def numbers_of(
    seeds: Sequence[int], samples: Any, streams: Any, count: int, first: int = 0
) -> npt.NDArray[np.uint64]:
    """Draws 2 * ``count`` numbers of `Draws(seed, sample, stream)`, from number 2 * ``first`` on, a row
    for each sample. Of seeds and streams there is one for each sample, or one for all."""
    low, high = (
        np.array([seed >> shift & MASK for seed in seeds], dtype=np.uint64)[:, None]
        for shift in (0, 32)
    )
    index = np.array(samples, dtype=np.uint64)[:, None]
    blocks = np.arange(first, first + count, dtype=np.uint64) + np.zeros_like(index)
    stream = np.zeros_like(blocks) + np.array(streams, dtype=np.uint64).reshape(-1, 1)
    mask, half = np.uint64(MASK), np.uint64(32)
    key: Any = (low, high)
    a, b, c, d = philox((blocks, stream, index & mask, index >> half), key)
    pairs = np.stack((a | b << half, c | d << half), axis=2)
    return pairs.reshape(len(index), 2 * count)


def uniform_of(numbers: npt.NDArray[np.uint64]) -> npt.NDArray[np.float64]:
    """Returns what `Draws.uniform` of 0 to 1 makes of the numbers."""
    return (numbers >> np.uint64(11)) * 2.0**-53


def between(ends: tuple[float, float], share: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    low, high = ends
    return low + (high - low) * share


def below(numbers: npt.NDArray[np.uint64], count: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Returns what `Draws.below` makes of the numbers: the upper 64 of the 128 bits of the product.
    ``count`` is below 2^31."""
    counts, half = count.astype(np.uint64), np.uint64(32)
    low = (numbers & np.uint64(MASK)) * counts >> half
    return ((numbers >> half) * counts + low >> half).astype(np.int64)
