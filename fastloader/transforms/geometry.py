"""Transforms that cut, mirror, resize, turn and distort."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any, ClassVar

from fastloader.transforms import _arguments
from fastloader.transforms._recipe import sized as geometry
from fastloader.transforms._recipe.draw import Draw
from fastloader.transforms._recipe.draws import CROP, HORIZONTAL_FLIP, VERTICAL_FLIP
from fastloader.transforms._recipe.operations import PADDING_MODES, Size, apply_operation
from fastloader.transforms._recipe.recipe import (
    Number,
    Step,
    apply,
    constant,
    constants,
    one_of,
    operation,
    single,
    sized,
)
from fastloader.transforms.transform import RecipeTransform, WithProbability

__all__ = [
    "Resize",
    "CenterCrop",
    "RandomCrop",
    "RandomResizedCrop",
    "Pad",
    "RandomHorizontalFlip",
    "RandomVerticalFlip",
    "RandomRotation",
    "RandomAffine",
    "RandomPerspective",
]

# ---- Parts of the picture, and borders around it.


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


# ---- The picture mirrored.


class _Flip(WithProbability):
    _number: ClassVar[int]  # of its draws in the head of a chain

    def apply(self, image: Any, draw: Draw) -> Any:
        # With the numbers of a chain's head, and not with the step's.
        if draw(self._number).uniform() >= self.p:
            return image
        return apply_operation(image, self._operation, ())


class RandomHorizontalFlip(_Flip):
    """Mirrors left and right with probability ``p``."""

    _operation, _number = "hflip", HORIZONTAL_FLIP


class RandomVerticalFlip(_Flip):
    """Mirrors top and bottom with probability ``p``."""

    _operation, _number = "vflip", VERTICAL_FLIP


# ---- Other sizes.


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


# ---- Pictures that are turned, moved and distorted.


class RandomRotation(RecipeTransform):
    """Turns the picture counter-clockwise by a random angle.

    Args:
        degrees: The range (from, to) of the angle, drawn uniformly. A number d means (-d, d).
        interpolation: "nearest" (default), "bilinear" or "bicubic", also as torchvision's
            InterpolationMode or Pillow's constant.
        expand: Whether the picture becomes large enough to hold all of what is turned; default False.
        center: The (x, y) in pixels that stays where it is; default None, the middle.
        fill: The colour of what comes from outside, a number for all channels or (red, green, blue),
            each in 0..255; default 0, which is black.

    Raises:
        TypeError: for degrees, a center or a fill that are no numbers.
        ValueError: for negative degrees, for a reversed range, and for another interpolation or
            number of numbers.
    """

    def __init__(
        self,
        degrees: float | Sequence[float],
        interpolation: Any = "nearest",
        expand: bool = False,
        center: Sequence[float] | None = None,
        fill: Any = 0,
    ) -> None:
        self.degrees = _arguments.angles("degrees", degrees)
        self.interpolation = _arguments.warp_interpolation(interpolation)
        self.expand = bool(expand)
        self.center = None if center is None else _arguments.sequence("center", center, (2,))
        self.fill = _arguments.fill(fill)

    def step(self, size: Size | None) -> Step:
        resampling = _arguments.RESAMPLING[self.interpolation]
        rest = constants(resampling, self.expand, *(self.center or ()), *self.fill)
        return operation("rotate", single(*self.degrees), *rest)

    def size_after(self, size: Size | None) -> Size | None:
        return None if self.expand else size


class RandomAffine(RecipeTransform):
    """Turns, moves, scales and shears the picture by random amounts. Its size stays.

    Args:
        degrees: The range (from, to) of the angle, clockwise, drawn uniformly. A number d means (-d,
            d).
        translate: The largest moves (along x, along y), as parts of the width and of the height in
            0..1, each drawn uniformly in both directions; default None, no move.
        scale: The range (from, to) of the scale, drawn uniformly; default None, which is 1.
        shear: The range (from, to) of the shear along x in degrees, drawn uniformly. A number s means
            (-s, s). Four numbers are the ranges along x and along y. Default None, no shear.
        interpolation: "nearest" (default), "bilinear" or "bicubic", also as torchvision's
            InterpolationMode or Pillow's constant.
        fill: The colour of what comes from outside, a number for all channels or (red, green, blue),
            each in 0..255; default 0, which is black.
        center: The (x, y) in pixels about which it is turned; default None, the middle.

    Raises:
        TypeError: for arguments that are no numbers and no sequences of them.
        ValueError: for negative degrees or shear, moves outside 0..1, scales that are not positive,
            reversed ranges, and for another interpolation or number of numbers.
    """

    _second_version = False  # whether coefficients have the last bit of torchvision's v2

    def __init__(
        self,
        degrees: float | Sequence[float],
        translate: Sequence[float] | None = None,
        scale: Sequence[float] | None = None,
        shear: float | Sequence[float] | None = None,
        interpolation: Any = "nearest",
        fill: Any = 0,
        center: Sequence[float] | None = None,
    ) -> None:
        self.degrees = _arguments.angles("degrees", degrees)
        self.translate = (
            None if translate is None else _arguments.sequence("translate", translate, (2,))
        )
        if any(not 0.0 <= part <= 1.0 for part in self.translate or ()):
            raise ValueError("translation values should be between 0 and 1")
        self.scale = None if scale is None else _arguments.sequence("scale", scale, (2,))
        if self.scale is not None and min(self.scale) <= 0:
            raise ValueError("scale values should be positive")
        if self.scale is not None and self.scale[0] > self.scale[1]:
            raise ValueError(f"scale={self.scale}: a range, with the smaller number first")
        self.shear = None if shear is None else _arguments.angles("shear", shear, (2, 4))
        self.interpolation = _arguments.warp_interpolation(interpolation)
        self.fill = _arguments.fill(fill)
        self.center = None if center is None else _arguments.sequence("center", center, (2,))

    def step(self, size: Size | None) -> Step:
        right, down = self.translate or (None, None)
        shear = self.shear or ()
        numbers = [
            single(*self.degrees),
            _move(right, "width"),
            _move(down, "height"),
            single(*self.scale) if self.scale else constant(1.0),
            single(*shear[:2]) if shear else constant(0.0),
            single(*shear[2:]) if len(shear) == 4 else constant(0.0),
            constant(_arguments.RESAMPLING[self.interpolation]),
        ]
        name = "affine_about_v2" if self._second_version else "affine_about"
        return sized(name, *numbers, *constants(*self.fill, *(self.center or ())))


class RandomPerspective(RecipeTransform):
    """Moves the picture's corners inwards by random amounts, with probability ``p``.

    Args:
        distortion_scale: The largest move of a corner, as a part in 0..1 of half the width and half
            the height; default 0.5.
        p: The probability; default 0.5.
        interpolation: "bilinear" (default), "nearest" or "bicubic", also as torchvision's
            InterpolationMode or Pillow's constant.
        fill: The colour of what comes from outside, a number for all channels or (red, green, blue),
            each in 0..255; default 0, which is black.

    Raises:
        TypeError: for a distortion or fill that is no number.
        ValueError: for numbers outside 0..1, and for another interpolation. A picture of which corners
            fall together, such as one of a single pixel, raises it when the transform's turn comes.
    """

    def __init__(
        self,
        distortion_scale: float = 0.5,
        p: float = 0.5,
        interpolation: Any = "bilinear",
        fill: Any = 0,
    ) -> None:
        self.distortion_scale = _arguments.finite("distortion_scale", distortion_scale)
        if not 0 <= self.distortion_scale <= 1:
            raise ValueError("Argument distortion_scale value should be between 0 and 1")
        self.p = _arguments.probability(p)
        self.interpolation = _arguments.warp_interpolation(interpolation)
        self.fill = _arguments.fill(fill)

    def step(self, size: Size | None) -> Step:
        resampling = _arguments.RESAMPLING[self.interpolation]
        numbers = constants(self.distortion_scale, resampling, *self.fill)
        return apply(self.p, sized("random_perspective", *numbers))


def _move(part: float | None, unit: str) -> Number:
    if part is None:
        return constant(0.0)
    return Number("uniform", -part, part, unit=unit, rounding="nearest")
