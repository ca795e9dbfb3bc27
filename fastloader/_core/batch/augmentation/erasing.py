"""Random erasing: its arguments, and the boxes that are erased, with timm 1.0.31's distributions."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import numpy.typing as npt

from fastloader.transforms._erasing import below, between, numbers_of, uniform_of
from fastloader.transforms._recipe.draws import ERASING, OCCURRENCE, PICTURE

_FILLS = ("const", "rand", "pixel")
_ATTEMPTS = 10
_STREAM = ERASING | 1 << OCCURRENCE  # that of a chain, which may have the same seed, is without


@dataclasses.dataclass(frozen=True)
class RandomErasing:
    """timm's RandomErasing, with the same names, defaults and meaning.

    An image is erased at all with ``probability``. It then gets ``min_count`` to ``max_count`` boxes.
    Each has ``min_area`` to ``max_area`` of the image divided by their number, and a log-uniform aspect
    ratio. A box that does not fit is drawn again, ten times at most. ``mode`` fills with "const" (0,
    the mean), "rand" (one normal deviate for each box and channel) or "pixel" (one for each value).
    With ``num_splits`` above 1 the first ``batch // num_splits`` images stay as they are.

    Raises:
        ValueError: for what cannot be drawn.
    """

    probability: float = 0.5
    min_area: float = 0.02
    max_area: float = 1 / 3
    min_aspect: float = 0.3
    max_aspect: float | None = None
    mode: str = "const"
    min_count: int = 1
    max_count: int | None = None
    num_splits: int = 0

    def __post_init__(self) -> None:
        if self.fill not in _FILLS:
            raise ValueError(f"mode={self.mode!r}: random erasing fills 'const', 'rand' or 'pixel'")
        if not 0 <= self.probability <= 1:
            raise ValueError(f"probability={self.probability} of random erasing is not in 0..1")
        if not 0 <= self.min_area <= self.max_area:
            raise ValueError(
                f"min_area={self.min_area} and max_area={self.max_area} of random erasing: "
                "0 <= min_area <= max_area is needed"
            )
        if self.min_aspect <= 0 or (self.max_aspect or 1) <= 0:
            raise ValueError(
                f"min_aspect={self.min_aspect} and max_aspect={self.max_aspect} of random erasing "
                "must be positive"
            )
        if not 1 <= self.min_count <= self.most:
            raise ValueError(
                f"min_count={self.min_count} and max_count={self.max_count} of random erasing: "
                "1 <= min_count <= max_count is needed"
            )

    @property
    def fill(self) -> str:
        return self.mode.lower() or "const"

    @property
    def most(self) -> int:
        return self.max_count or self.min_count


def draw_boxes(
    erasing: RandomErasing, seed: int, places: Any, splits: Any, height: int, width: int
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.uint32], npt.NDArray[np.uint64]]:
    """Draws as timm's RandomErasing._erase, for all images at once: of each a function of the seed, its
    place in the order, and the split of the batch in which it stands.

    Returns:
        The boxes of each image, int32 (n, most, 4); how many it has; the key of its deviates. A box that
        never fitted stays empty.
    """
    n, most = len(places), erasing.most
    streams = _STREAM | splits << PICTURE
    # Whether it is erased, how many boxes, the deviates' key, and one that is not used.
    numbers = numbers_of([seed], places, streams, 2)
    chosen = uniform_of(numbers[:, 0]) <= erasing.probability
    chosen[: n // erasing.num_splits if erasing.num_splits > 1 else 0] = False
    spread = np.full(n, most - erasing.min_count + 1)
    counts = np.where(chosen, erasing.min_count + below(numbers[:, 1], spread), 0)
    boxes = np.zeros((n, most, 4), dtype=np.int32)
    rows = chosen.nonzero()[0]
    if len(rows):
        # Of each box area and aspect of each attempt, top and left.
        its = numbers_of([seed], places[rows], streams[rows], most * (_ATTEMPTS + 1), first=2)
        boxes[rows] = _boxes(erasing, its.reshape(len(rows), most, -1), counts[rows], height, width)
    return boxes, counts.astype(np.uint32), numbers[:, 2]


def _boxes(
    erasing: RandomErasing,
    numbers: npt.NDArray[np.uint64],
    counts: npt.NDArray[np.int64],
    height: int,
    width: int,
) -> npt.NDArray[np.int64]:
    """Draws the boxes of images that are erased, of which each has its count."""
    uniform = uniform_of(numbers[:, :, : 2 * _ATTEMPTS])
    area = between((erasing.min_area, erasing.max_area), uniform[:, :, ::2]) * (height * width)
    area /= counts[:, None, None]
    max_aspect = erasing.max_aspect or 1 / erasing.min_aspect
    ends = math.log(erasing.min_aspect), math.log(max_aspect)
    aspect = np.exp(between(ends, uniform[:, :, 1::2]))
    h = np.rint(np.sqrt(area * aspect)).astype(np.int64)
    w = np.rint(np.sqrt(area / aspect)).astype(np.int64)
    fits = (w < width) & (h < height)
    first = fits.argmax(axis=2)[:, :, None]
    h = np.take_along_axis(h, first, axis=2)[:, :, 0]
    w = np.take_along_axis(w, first, axis=2)[:, :, 0]
    used = fits.any(axis=2) & (np.arange(numbers.shape[1]) < counts[:, None])
    h, w = np.where(used, h, 0), np.where(used, w, 0)
    top = below(numbers[:, :, -2], height - h + 1)
    left = below(numbers[:, :, -1], width - w + 1)
    return np.stack((top, top + h, left, left + w), axis=2)
