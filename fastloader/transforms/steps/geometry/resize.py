"""Other sizes."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

from fastloader.transforms import _arguments
from fastloader.transforms._recipe import geometry
from fastloader.transforms._recipe.draw import Draw
from fastloader.transforms._recipe.number import constants
from fastloader.transforms._recipe.operations import Size
from fastloader.transforms._recipe.recipe import Step, operation, sized
from fastloader.transforms.steps.transform import RecipeTransform


class Resize(RecipeTransform):
    """Resizes the image to ``size``. An int, or a sequence of one, is the shorter edge: the longer edge
    follows and is at most ``max_size``. A pair is (height, width).

    ``interpolation`` is "nearest", "box", "bilinear" (default), "hamming", "bicubic" or "lanczos",
    also as torchvision's InterpolationMode or Pillow's constant. As the first step of a chain,
    bilinear and bicubic are native."""

    def __init__(
        self,
        size: int | Sequence[int],
        interpolation: Any = "bilinear",
        max_size: int | None = None,
        antialias: bool | None = True,
    ) -> None:
        if isinstance(size, int) and not isinstance(size, bool):
            self.size: tuple[int, ...] = (size,)
        elif isinstance(size, Sequence) and not isinstance(size, str) and len(size) in (1, 2):
            self.size = tuple(operator.index(edge) for edge in size)
        elif isinstance(size, Sequence) and not isinstance(size, str):
            raise ValueError("If size is a sequence, it should have 1 or 2 values")
        else:
            raise TypeError(f"Size should be int or sequence. Got {type(size)}")
        if any(edge < 1 for edge in self.size):
            raise ValueError(f"size={size}: edges must be at least 1 pixel")
        if max_size is not None:
            if len(self.size) == 2:
                raise ValueError(
                    "max_size should only be passed if size specifies the length of the smaller edge"
                )
            if max_size <= self.size[0]:
                raise ValueError(
                    f"max_size = {max_size} must be strictly greater than the requested size for the "
                    f"smaller edge size = {size}"
                )
        self.max_size = max_size
        self.interpolation = _arguments.interpolation_name(interpolation)
        self.antialias = _arguments.antialias(antialias)

    def step(self, size: Size | None) -> Step:
        resampling = _arguments.RESAMPLING[self.interpolation]
        if len(self.size) == 2:
            return operation("resize", *constants(*self.size, resampling))
        return sized("resize_shorter", *constants(self.size[0], self.max_size or 0, resampling))

    def size_after(self, size: Size | None) -> Size | None:
        if len(self.size) == 2:
            return self.size[0], self.size[1]
        return None if size is None else geometry.resized(*size, self.size, self.max_size)

    def apply(self, image: Any, draw: Draw) -> Any:
        height, width = geometry.resized(image.height, image.width, self.size, self.max_size)
        return image.resize((width, height), draw.resampling(self.interpolation))
