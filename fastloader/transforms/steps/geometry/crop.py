"""Parts of the picture, and borders around it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from fastloader.transforms import _arguments
from fastloader.transforms._recipe import geometry
from fastloader.transforms._recipe.draw import Draw
from fastloader.transforms._recipe.draws import CROP
from fastloader.transforms._recipe.number import constant, constants, one_of
from fastloader.transforms._recipe.operations import Size
from fastloader.transforms._recipe.parameters import PADDING_MODES
from fastloader.transforms._recipe.recipe import Step, operation, sized
from fastloader.transforms.steps.transform import RecipeTransform


class RandomResizedCrop(RecipeTransform):
    """Takes a random part of the image and resizes it to ``size``.

    Args:
        size: The (height, width) of the result; an int is a square.
        scale: The range of the part's share of the area; default (0.08, 1).
        ratio: The range of the part's width / height, drawn log-uniformly; default (3/4, 4/3).
        interpolation: "nearest", "box", "bilinear" (default), "hamming", "bicubic" or "lanczos", also
            as torchvision's InterpolationMode or Pillow's constant. "random" takes bilinear or
            bicubic for each picture, as timm does. As the first step of a chain, these three are
            native.
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

    def step(self, size: Size | None) -> Step:
        numbers = constants(*self.size, *self.scale, *self.ratio)
        if self.interpolation == "random":
            drawn = [_arguments.RESAMPLING[each] for each in _arguments.DRAWN_INTERPOLATIONS]
            return sized("random_resized_crop", *numbers, one_of(tuple(drawn)))
        resampling = _arguments.RESAMPLING[self.interpolation]
        return sized("random_resized_crop", *numbers, constant(resampling))

    def size_after(self, size: Size | None) -> Size | None:
        return self.size

    def apply(self, image: Any, draw: Draw) -> Any:
        # With the numbers of a chain's head, and not with the step's.
        left, top, width, height = geometry.random_resized_crop(
            image.height, image.width, self.scale, self.ratio, draw(CROP)
        )
        cropped = image.crop((left, top, left + width, top + height))
        return cropped.resize(self.size[::-1], draw.resampling(self.interpolation))


class CenterCrop(RecipeTransform):
    """Takes the central (height, width) of the image. What is missing around it is black."""

    def __init__(self, size: int | Sequence[int]) -> None:
        self.size = _arguments.pair(size)

    def step(self, size: Size | None) -> Step:
        return sized("center_crop", *constants(*self.size))

    def size_after(self, size: Size | None) -> Size | None:
        return self.size

    def apply(self, image: Any, draw: Draw) -> Any:
        height, width = self.size
        left = geometry.center(image.width, width)
        top = geometry.center(image.height, height)
        return image.crop((left, top, left + width, top + height))


class Pad(RecipeTransform):
    """Adds a border to the picture.

    Args:
        padding: The width of the border in pixels: an int for all sides, (left and right, top and
            bottom), or (left, top, right, bottom). A negative one crops.
        fill: The colour of a "constant" border, a number for all channels or (red, green, blue), each
            in 0..255; default 0, which is black.
        padding_mode: "constant" (default); "edge", which repeats the outermost pixels; "reflect",
            which mirrors the picture at the middle of its outermost pixels, or "symmetric", at their
            edge.

    Raises:
        TypeError: for a padding or fill that is no number and no sequence.
        ValueError: for a padding of other numbers, or another padding_mode.
    """

    def __init__(
        self, padding: int | Sequence[int], fill: Any = 0, padding_mode: str = "constant"
    ) -> None:
        self.padding = _arguments.border(padding)
        self.fill = _arguments.fill(fill)
        self.padding_mode = _arguments.padding_mode(padding_mode)

    def step(self, size: Size | None) -> Step:
        mode = PADDING_MODES.index(self.padding_mode)
        return operation("pad", *constants(*self.padding, mode, *self.fill))

    def size_after(self, size: Size | None) -> Size | None:
        left, top, right, bottom = self.padding
        return None if size is None else (size[0] + top + bottom, size[1] + left + right)


class RandomCrop(RecipeTransform):
    """Takes a part of the picture from a random place.

    Args:
        size: The (height, width) of the part in pixels; an int is a square.
        padding: The border that the picture gets before, as `Pad` takes it; default None, which is
            none.
        pad_if_needed: Whether a picture that is still too small gets a border on the two sides of that
            axis, each of all the pixels that are missing. Without it (the default), a picture that is
            too small raises ValueError.
        fill: The colour of a "constant" border, as `Pad` takes it; default 0.
        padding_mode: The kind of the borders, as `Pad` takes it; default "constant".

    Raises:
        TypeError, ValueError: as `Pad` does, and ValueError for edges of less than 1 pixel.
    """

    # Torchvision's v2 adds both borders in one step, which shows where they mirror the picture.
    _pads_at_once = False

    def __init__(
        self,
        size: int | Sequence[int],
        padding: int | Sequence[int] | None = None,
        pad_if_needed: bool = False,
        fill: Any = 0,
        padding_mode: str = "constant",
    ) -> None:
        self.size = _arguments.pair(size)
        self.padding = None if padding is None else _arguments.border(padding)
        self.pad_if_needed = bool(pad_if_needed)
        self.fill = _arguments.fill(fill)
        self.padding_mode = _arguments.padding_mode(padding_mode)

    def step(self, size: Size | None) -> Step:
        needed = (2 if self._pads_at_once else 1) if self.pad_if_needed else 0
        mode = PADDING_MODES.index(self.padding_mode)
        border = self.padding or (0, 0, 0, 0)
        numbers = constants(*self.size, needed, *border, mode, *self.fill)
        return sized("random_crop", *numbers)

    def size_after(self, size: Size | None) -> Size | None:
        return self.size
