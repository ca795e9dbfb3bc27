"""Parts of the picture."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from fastloader.transforms import _arguments
from fastloader.transforms._recipe import geometry
from fastloader.transforms._recipe.draw import Draw
from fastloader.transforms._recipe.draws import CROP
from fastloader.transforms.steps.transform import Transform


class RandomResizedCrop(Transform):
    """Takes a random part of the image and resizes it to ``size``.

    Args:
        size: The (height, width) of the result; an int is a square.
        scale: The range of the part's share of the area; default (0.08, 1).
        ratio: The range of the part's width / height, drawn log-uniformly; default (3/4, 4/3).
        interpolation: "bilinear" (default) or "bicubic", also as torchvision's InterpolationMode or
            Pillow's constant. "random" takes one of the two for each picture, as timm does.
        antialias: Images are always antialiased, as Pillow does it. False raises ValueError.
    """

    def __init__(
        self,
        size: int | Sequence[int],
        scale: tuple[float, float] = (0.08, 1.0),
        ratio: tuple[float, float] = (3.0 / 4.0, 4.0 / 3.0),
        interpolation: Any = "bilinear",
        antialias: bool | None = True,
    ) -> None:
        self.size = _arguments.pair(size)
        self.scale = _arguments.checked_range("scale", scale, 0.0)
        self.ratio = _arguments.checked_range("ratio", ratio, math.ulp(0.0))
        self.interpolation = (
            "random" if interpolation == "random" else _arguments.interpolation_name(interpolation)
        )
        self.antialias = _arguments.antialias(antialias)

    def apply(self, image: Any, draw: Draw) -> Any:
        left, top, width, height = geometry.random_resized_crop(
            image.height, image.width, self.scale, self.ratio, draw(CROP)
        )
        cropped = image.crop((left, top, left + width, top + height))
        return cropped.resize(self.size[::-1], draw.resampling(self.interpolation))


class CenterCrop(Transform):
    """Takes the central (height, width) of the image. What is missing around it is black."""

    def __init__(self, size: int | Sequence[int]) -> None:
        self.size = _arguments.pair(size)

    def apply(self, image: Any, draw: Draw) -> Any:
        height, width = self.size
        left = geometry.center(image.width, width)
        top = geometry.center(image.height, height)
        return image.crop((left, top, left + width, top + height))
