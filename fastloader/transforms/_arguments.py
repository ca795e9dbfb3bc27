"""Checks transforms' arguments: sizes, ranges, probabilities, interpolations."""

from __future__ import annotations

import math
import numbers
import operator
from collections.abc import Iterable, Sequence
from typing import Any

from fastloader.transforms._recipe.operations import PADDING_MODES, RESAMPLINGS

# Pillow's numbers.
RESAMPLING = {name: number for number, name in enumerate(RESAMPLINGS)}
# What "random" draws from, as timm does, and what Pillow's warps take.
DRAWN_INTERPOLATIONS = ("bilinear", "bicubic")
WARP_INTERPOLATIONS = ("nearest", "bilinear", "bicubic")

_BY_OTHER_NAMES = {"nearest-exact": "nearest"} | {
    str(number): name for name, number in RESAMPLING.items()
}


def interpolation_name(interpolation: Any, allowed: Iterable[str] = RESAMPLING) -> str:
    """Returns Pillow's name, in lower case, of an interpolation of torchvision or Pillow, or of a
    str."""
    value = str(getattr(interpolation, "value", interpolation)).lower()
    name = _BY_OTHER_NAMES.get(value, value)
    if name not in allowed:
        known = ", ".join(map(repr, allowed))
        raise ValueError(f"interpolation={interpolation!r}: use one of {known}")
    return name


def warp_interpolation(interpolation: Any) -> str:
    return interpolation_name(interpolation, WARP_INTERPOLATIONS)


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


def finite(name: str, value: Any) -> float:
    if not isinstance(value, numbers.Real):  # numpy's too
        raise TypeError(f"{name} should be a number. Got {type(value)}")
    if not math.isfinite(value):
        raise ValueError(f"{name}={value}: a finite number is allowed")
    return float(value)


def sequence(name: str, values: Any, lengths: tuple[int, ...]) -> tuple[float, ...]:
    """Returns finite numbers, as many as one of ``lengths`` says."""
    wanted = f"{name} should be a sequence of length {' or '.join(map(str, lengths))}."
    if not isinstance(values, Sequence) or isinstance(values, str):
        raise TypeError(wanted)
    if len(values) not in lengths:
        raise ValueError(wanted)
    return tuple(finite(name, value) for value in values)


def angles(name: str, value: Any, lengths: tuple[int, ...] = (2,)) -> tuple[float, ...]:
    """Returns ranges of degrees, each as two numbers. A number alone is the range from minus it to
    it."""
    if isinstance(value, numbers.Real):
        if value < 0:
            raise ValueError(f"If {name} is a single number, it must be positive.")
        value = (-value, value)
    found = sequence(name, value, lengths)
    if any(low > high for low, high in zip(found[::2], found[1::2])):
        raise ValueError(f"{name}={found}: ranges, each with the smaller number first")
    return found


def fill(fill: Any) -> tuple[int, int, int]:
    """Returns the colour that Pillow makes of the argument: red, green and blue in 0..255."""
    if fill is None:
        fill = 0
    if isinstance(fill, numbers.Real):
        fill = (fill,)
    elif not isinstance(fill, Sequence) or isinstance(fill, str):
        raise TypeError("Fill should be either a sequence or a number.")
    if len(fill) not in (1, 3):
        raise ValueError(
            "The number of elements in 'fill' does not match the number of channels of the image "
            f"({len(fill)} != 3)"
        )
    bands = tuple(fill) * (3 // len(fill))
    red, green, blue = (min(max(int(finite("fill", band)), 0), 255) for band in bands)
    return red, green, blue


def border(padding: Any) -> tuple[int, int, int, int]:
    """Returns the border's pixels on the left, the top, the right and the bottom."""
    if not isinstance(padding, numbers.Number | tuple | list):
        raise TypeError("Got inappropriate padding arg")
    edges = tuple(padding) if isinstance(padding, tuple | list) else (padding,)
    if len(edges) not in (1, 2, 4) or not all(isinstance(e, numbers.Integral) for e in edges):
        raise ValueError(
            f"Padding must be an int or a 1, 2, or 4 element of tuple or list, got {padding}."
        )
    left, top, right, bottom = (int(edge) for edge in edges * (4 // len(edges)))
    return left, top, right, bottom


def padding_mode(mode: Any) -> str:
    if mode not in PADDING_MODES:
        raise ValueError("Padding mode should be either constant, edge, reflect or symmetric")
    return str(mode)
