"""The checks of transforms' arguments: sizes, ranges, probabilities, interpolations."""

from __future__ import annotations

import math
import numbers
import operator
from collections.abc import Sequence
from typing import Any

_INTERPOLATIONS = {"bilinear": "bilinear", "bicubic": "bicubic", "2": "bilinear", "3": "bicubic"}


def interpolation_name(interpolation: Any) -> str:
    """The name "bilinear" or "bicubic" of an interpolation of torchvision or Pillow, or of a str."""
    value = getattr(interpolation, "value", interpolation)
    name = _INTERPOLATIONS.get(str(value).lower())
    if name is None:
        raise ValueError(f"interpolation={interpolation!r}: use 'bilinear' or 'bicubic'")
    return name


def pair(size: Any) -> tuple[int, int]:
    if isinstance(size, numbers.Real):  # numpy's too
        pair = (int(float(size)), int(float(size)))
    elif len(size) == 1:
        pair = (operator.index(size[0]), operator.index(size[0]))
    elif len(size) == 2:
        pair = (operator.index(size[0]), operator.index(size[1]))
    else:
        raise ValueError("Please provide only two dimensions (h, w) for size.")
    if min(pair) < 1:
        raise ValueError(f"size={size}: edges must be at least 1 pixel")
    return pair


def checked_range(name: str, values: Sequence[float], least: float) -> tuple[float, float]:
    if not isinstance(values, Sequence):
        raise TypeError(f"{name.capitalize()} should be a sequence")
    low, high = (float(value) for value in values)
    if not (least <= low <= high < math.inf):
        raise ValueError(f"{name}=({low}, {high}): a range of finite numbers, the smaller first")
    return low, high


def probability(p: float) -> float:
    if not (isinstance(p, numbers.Real) and 0.0 <= p <= 1.0):  # numpy's too
        raise ValueError("`p` should be a floating point value in the interval [0.0, 1.0].")
    return float(p)


def antialias(antialias: bool | None) -> bool | None:
    if antialias is False:
        raise ValueError("antialias=False: images are resized as Pillow does, always antialiased")
    return antialias
