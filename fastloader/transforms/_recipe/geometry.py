"""The geometry of torchvision's transforms on Pillow pictures, in pure Python.

It mirrors csrc/image/crop.h, which is the definition. A test compares the two.
"""

from __future__ import annotations

import math

from fastloader.transforms._recipe.draws import Draws


def random_resized_crop(
    height: int, width: int, scale: tuple[float, float], ratio: tuple[float, float], draws: Draws
) -> tuple[int, int, int, int]:
    """Draws as torchvision's RandomResizedCrop.get_params, and returns (left, top, width, height)."""
    area = float(width) * float(height)
    low, high = math.log(ratio[0]), math.log(ratio[1])
    for _ in range(10):
        target = area * draws.uniform(*scale)
        aspect = math.exp(draws.uniform(low, high))
        w = round(math.sqrt(target * aspect))
        h = round(math.sqrt(target / aspect))
        if 0 < w <= width and 0 < h <= height:
            top = draws.below(height - h + 1)
            left = draws.below(width - w + 1)
            return left, top, w, h
    w, h = width, height
    if width / height < ratio[0]:
        h = min(max(round(width / ratio[0]), 1), height)
    elif width / height > ratio[1]:
        w = min(max(round(height * ratio[1]), 1), width)
    return (width - w) // 2, (height - h) // 2, w, h


def random_interpolation(draws: Draws) -> str:
    """Draws the interpolation that timm calls "random"."""
    return ("bilinear", "bicubic")[draws.below(2)]


def resized(
    height: int, width: int, size: tuple[int, ...], max_size: int | None
) -> tuple[int, int]:
    """The (height, width) that torchvision's Resize gives."""
    if len(size) == 2:
        return size[0], size[1]
    short, long = min(height, width), max(height, width)
    new_short, new_long = size[0], int(size[0] * long / short)
    if max_size is not None and new_long > max_size:
        new_short, new_long = int(max_size * new_short / new_long), max_size
    return (new_long, new_short) if width <= height else (new_short, new_long)


def resized_in_shape(
    height: int,
    width: int,
    size: tuple[float, float],
    longest: float,
    factors: tuple[float, float] = (1.0, 1.0),
) -> tuple[int, int]:
    """The (height, width) that timm's ResizeKeepRatio gives: between covering ``size``, with
    ``longest`` 0, and fitting into it, with 1; times ``factors``."""
    down, across = height / size[0], width / size[1]
    ratio = max(down, across) * longest + min(down, across) * (1.0 - longest)
    return round(height * factors[0] / ratio), round(width * factors[1] / ratio)


def center(image: int, crop: int) -> int:
    if crop > image:
        return -((crop - image) // 2)
    return round((image - crop) / 2.0)
