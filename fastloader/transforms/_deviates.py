"""The normal deviates with which erasing fills boxes, as csrc/image/normalize/augment.h defines them."""

from __future__ import annotations

import functools
import statistics
from typing import Any

import numpy as np
import numpy.typing as npt

from fastloader.transforms._recipe.draws import MASK, philox

# Operations of the counter-based generator: one deviate for each box, or for each element of a box.
PER_BOX, PER_ELEMENT = 16, 17
_TABLE = 2048  # deviates


def deviates(
    keys: npt.NDArray[np.uint64], operation: int, element: npt.NDArray[Any]
) -> npt.NDArray[np.float32]:
    """Computes one normal deviate for each ``element``, of the picture whose key is at the same place in
    ``keys``."""
    element = element.astype(np.uint64)
    zero = np.zeros_like(element)
    picture = (keys & np.uint64(MASK), keys >> np.uint64(32))
    words = np.stack(philox((element >> np.uint64(3), zero + operation, *picture), (0, 0)))
    index = (element >> np.uint64(1) & np.uint64(3)).astype(np.intp)
    word = np.take_along_axis(words, index[None], axis=0)[0]
    bits = np.where(element & np.uint64(1), word >> np.uint64(16), word)
    magnitude = _normal_table()[(bits % _TABLE).astype(np.intp)]
    return np.where(bits & np.uint64(_TABLE), -magnitude, magnitude)


@functools.lru_cache(maxsize=1)
def _normal_table() -> npt.NDArray[np.float32]:
    """Makes the table of csrc/image/normalize/normal_table.inc. The rounding to 2^-16 hides the
    differences between mathematical libraries. A test compares the two tables."""
    normal = statistics.NormalDist()
    entries = [round(normal.inv_cdf(0.5 + (i + 0.5) / (2 * _TABLE)) * 2**16) for i in range(_TABLE)]
    return np.array(entries, dtype=np.float32) * np.float32(2.0**-16)
