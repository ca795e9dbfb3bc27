"""Random erasing: its arguments, and the boxes that are erased, with timm 1.0.31's distributions."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import numpy.typing as npt

_FILLS = ("const", "rand", "pixel")
_ATTEMPTS = 10


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
    erasing: RandomErasing,
    random: np.random.Generator,
    boxes: npt.NDArray[np.int32],
    height: int,
    width: int,
) -> npt.NDArray[np.uint32]:
    """Draws as timm's RandomErasing._erase, for all images at once. Returns how many boxes each image
    has. A box that never fitted stays empty."""
    n, most = len(boxes), erasing.most
    chosen = random.random(n) <= erasing.probability
    chosen[: n // erasing.num_splits if erasing.num_splits > 1 else 0] = False
    counts = random.integers(erasing.min_count, most, size=n, endpoint=True)
    shape = (n, most, _ATTEMPTS)
    area = random.uniform(erasing.min_area, erasing.max_area, shape) * (height * width)
    area /= counts[:, None, None]
    max_aspect = erasing.max_aspect or 1 / erasing.min_aspect
    aspect = np.exp(random.uniform(math.log(erasing.min_aspect), math.log(max_aspect), shape))
    h = np.rint(np.sqrt(area * aspect)).astype(np.int64)
    w = np.rint(np.sqrt(area / aspect)).astype(np.int64)
    fits = (w < width) & (h < height)
    first = fits.argmax(axis=2)[:, :, None]
    h = np.take_along_axis(h, first, axis=2)[:, :, 0]
    w = np.take_along_axis(w, first, axis=2)[:, :, 0]
    used = fits.any(axis=2) & chosen[:, None] & (np.arange(most) < counts[:, None])
    h, w = np.where(used, h, 0), np.where(used, w, 0)
    top = random.integers(0, height - h + 1)
    left = random.integers(0, width - w + 1)
    boxes[:] = np.stack((top, top + h, left, left + w), axis=2)
    return np.where(chosen, counts, 0).astype(np.uint32)
