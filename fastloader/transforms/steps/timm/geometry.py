"""timm's transforms that change a picture's size: scaled in shape, padded and cut."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from fastloader.errors import NotNative
from fastloader.transforms import CenterCrop, _arguments
from fastloader.transforms._pillow import image_module
from fastloader.transforms._recipe import geometry
from fastloader.transforms._recipe.draw import Draw
from fastloader.transforms._recipe.number import Number, constant, constants, one_of, uniform
from fastloader.transforms._recipe.operations import Size
from fastloader.transforms._recipe.parameters import PADDING_MODES
from fastloader.transforms._recipe.recipe import Step, choice, operation, sized
from fastloader.transforms.steps.transform import RecipeTransform

Fill = int | Sequence[int]


class ResizeKeepRatio(RecipeTransform):
    """Resizes in shape, to cover ``size`` (height, width) or, with ``longest=1``, to fit into it.

    Args:
        size: (height, width); an int is a square.
        longest: How far the result goes from covering the size (0, the default) to fitting into it (1).
        interpolation: One of Pillow's six, default "bilinear"; or "random", which is "bilinear" or
            "bicubic" for each picture.
        random_scale_prob: The probability that the result is scaled by a factor, which is uniform in
            ``random_scale_range``.
        random_scale_area: Whether the factor is of the area that a crop of ``size`` then sees: below 1,
            the result grows. False (default): it is of the edges.
        random_aspect_prob: The probability that width / height changes by a factor, which is log-uniform
            in ``random_aspect_range``.
    """

    def __init__(
        self,
        size: int | Sequence[int],
        longest: float = 0.0,
        interpolation: Any = "bilinear",
        random_scale_prob: float = 0.0,
        random_scale_range: tuple[float, float] = (0.85, 1.05),
        random_scale_area: bool = False,
        random_aspect_prob: float = 0.0,
        random_aspect_range: tuple[float, float] = (0.9, 1.11),
    ) -> None:
        self.size = _arguments.pair(size)
        self.longest = float(longest)
        self.interpolation = (
            "random" if interpolation == "random" else _arguments.interpolation_name(interpolation)
        )
        self.random_scale_prob = _arguments.probability(random_scale_prob)
        self.random_scale_range = _factors("random_scale_range", random_scale_range)
        self.random_scale_area = bool(random_scale_area)
        self.random_aspect_prob = _arguments.probability(random_aspect_prob)
        self.random_aspect_range = _factors("random_aspect_range", random_aspect_range)

    def step(self, size: Size | None) -> Step:
        scales = _perhaps(self.random_scale_prob, constant(1), uniform(*self.random_scale_range))
        logarithms = [math.log(edge) for edge in self.random_aspect_range]
        aspects = _perhaps(self.random_aspect_prob, constant(0), uniform(*logarithms))
        cases = [(p * q, scale, aspect) for p, scale in scales for q, aspect in aspects]
        steps = [self._resize(scale, aspect) for _weight, scale, aspect in cases]
        if len(steps) == 1:
            return steps[0]
        return choice(*steps, weights=tuple(weight for weight, *_numbers in cases))

    def size_after(self, size: Size | None) -> Size | None:
        if size is None or self.random_scale_prob or self.random_aspect_prob:
            return None
        return geometry.resized_in_shape(*size, self.size, self.longest)

    def _resize(self, scale: Number, aspect: Number) -> Step:
        return sized(
            "resize_keep_ratio",
            *constants(*self.size, self.longest),
            scale,
            constant(self.random_scale_area),
            aspect,
            one_of(tuple(_arguments.RESAMPLING[name] for name in _arguments.DRAWN_INTERPOLATIONS))
            if self.interpolation == "random"
            else constant(_arguments.RESAMPLING[self.interpolation]),
        )


def _factors(name: str, values: Sequence[float]) -> tuple[float, float]:
    return _arguments.checked_range(name, values, math.ulp(0.0))


def _perhaps(probability: float, plain: Number, drawn: Number) -> list[tuple[float, Number]]:
    """What is possible, with the probabilities."""
    cases = [(1.0 - probability, plain), (probability, drawn)]
    return [(weight, number) for weight, number in cases if weight > 0]


class CenterCropOrPad(RecipeTransform):
    """Takes the central ``size`` (height, width) of the image, and pads an edge that is shorter.

    Args:
        size: (height, width); an int is a square.
        fill: What the image is padded with: one number for all channels, or one for each.
        padding_mode: "constant" (default) pads with ``fill``; "edge", "reflect" and "symmetric" continue
            the picture.
    """

    _drawn = 0

    def __init__(
        self, size: int | Sequence[int], fill: Fill = 0, padding_mode: str = "constant"
    ) -> None:
        self.size = _arguments.pair(size)
        self.fill = fill
        self.padding_mode = padding_mode
        if padding_mode not in PADDING_MODES:
            raise ValueError(
                f"padding_mode={padding_mode!r}: use one of {', '.join(PADDING_MODES)}"
            )

    def step(self, size: Size | None) -> Step:
        mode = PADDING_MODES.index(self.padding_mode)
        return sized(
            "crop_or_pad", *constants(*self.size, self._drawn, 1, mode, *_colour(self.fill))
        )

    @property
    def colour(self) -> tuple[int, int, int]:
        """``fill`` as three numbers."""
        return _colour(self.fill)

    def size_after(self, size: Size | None) -> Size | None:
        return self.size

    def apply(self, image: Any, draw: Draw) -> Any:
        bands = len(image.getbands())
        if self._drawn or self.padding_mode != "constant" or bands <= 3:
            return super().apply(image, draw)
        # Steps have colours of three channels, pictures may have four.
        height, width = max(self.size[0], image.height), max(self.size[1], image.width)
        fill = (self.fill,) if isinstance(self.fill, int) else tuple(self.fill)
        padded = image_module().new(
            image.mode, (width, height), fill * bands if len(fill) == 1 else fill
        )
        padded.paste(image, ((width - image.width) // 2, (height - image.height) // 2))
        return CenterCrop(self.size).apply(padded, draw)


class RandomCropOrPad(CenterCropOrPad):
    """Takes ``size`` (height, width) of the image at a random place, and pads an edge that is shorter
    at random on its two sides. The arguments are those of `CenterCropOrPad`."""

    _drawn = 1


class RandomPad(RecipeTransform):
    """Pads the image to ``input_size`` (height, width) at least, at random on the two sides. ``fill`` is
    one number for all channels, or one for each."""

    def __init__(self, input_size: Sequence[int], fill: Fill = 0) -> None:
        self.input_size = _arguments.pair(input_size)
        self.fill = fill

    def step(self, size: Size | None) -> Step:
        return sized("crop_or_pad", *constants(*self.input_size, 1, 0, 0, *_colour(self.fill)))

    def size_after(self, size: Size | None) -> Size | None:
        if size is None:
            return None
        return max(size[0], self.input_size[0]), max(size[1], self.input_size[1])


class TrimBorder(RecipeTransform):
    """Cuts ``border_size`` pixels off on all four sides."""

    def __init__(self, border_size: int) -> None:
        if border_size < 0:
            raise ValueError(f"border_size={border_size}: use 0 or more")
        self.border_size = border_size

    def step(self, size: Size | None) -> Step:
        # A border of less than nothing.
        return operation("pad", *constants(*(-self.border_size,) * 4, 0, 0, 0, 0))

    def size_after(self, size: Size | None) -> Size | None:
        return (
            None
            if size is None
            else (size[0] - 2 * self.border_size, size[1] - 2 * self.border_size)
        )


def _colour(fill: Fill) -> tuple[int, int, int]:
    """Three numbers. The first one is that of a grey picture."""
    values = (fill,) if isinstance(fill, int) else tuple(fill)
    if len(values) not in (1, 3) or not all(
        isinstance(each, int) and 0 <= each <= 255 for each in values
    ):
        raise NotNative(f"fill={fill!r} is no colour of 1 or 3 bytes")
    red, green, blue = values if len(values) == 3 else values * 3
    return red, green, blue
