"""Pictures that are turned, moved and distorted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fastloader.transforms import _arguments
from fastloader.transforms._recipe.number import Number, constant, constants, single
from fastloader.transforms._recipe.operations import Size
from fastloader.transforms._recipe.recipe import Step, apply, operation, sized
from fastloader.transforms.steps.transform import RecipeTransform


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
