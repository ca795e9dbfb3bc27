"""Values of pixels by way of a table, and Pillow's ways to spread them."""

from __future__ import annotations

import operator

from fastloader.transforms import _arguments
from fastloader.transforms._recipe.number import constant
from fastloader.transforms._recipe.operations import Size
from fastloader.transforms._recipe.recipe import Step, apply, operation
from fastloader.transforms.steps.transform import RecipeTransform


class RandomInvert(RecipeTransform):
    """Makes a negative, with probability ``p`` (default 0.5).

    Raises:
        ValueError: for a probability outside 0..1.
    """

    def __init__(self, p: float = 0.5) -> None:
        self.p = _arguments.probability(p)

    def step(self, size: Size | None) -> Step:
        return apply(self.p, operation("invert"))


class RandomPosterize(RecipeTransform):
    """Keeps the highest bits of each channel's values, with probability ``p``.

    Args:
        bits: How many bits are kept, an int in 0..8.
        p: The probability; default 0.5.

    Raises:
        TypeError: for bits that are no int.
        ValueError: for other numbers of bits, or a probability outside 0..1.
    """

    def __init__(self, bits: int, p: float = 0.5) -> None:
        self.bits = operator.index(bits)
        if not 0 <= self.bits <= 8:
            raise ValueError(f"bits={bits}: 0 to 8 are allowed")
        self.p = _arguments.probability(p)

    def step(self, size: Size | None) -> Step:
        return apply(self.p, operation("posterize", constant(self.bits)))


class RandomSolarize(RecipeTransform):
    """Inverts the values from a threshold on, with probability ``p``.

    Args:
        threshold: The least value, in 0..255, that is inverted. 256 inverts none.
        p: The probability; default 0.5.

    Raises:
        TypeError: for a threshold that is no number.
        ValueError: for one that is not finite, or a probability outside 0..1.
    """

    def __init__(self, threshold: float, p: float = 0.5) -> None:
        self.threshold = _arguments.finite("threshold", threshold)
        self.p = _arguments.probability(p)

    def step(self, size: Size | None) -> Step:
        return apply(self.p, operation("solarize", constant(self.threshold)))


class RandomAutocontrast(RecipeTransform):
    """Spreads each channel's values over 0..255, with probability ``p`` (default 0.5).

    Raises:
        ValueError: for a probability outside 0..1.
    """

    def __init__(self, p: float = 0.5) -> None:
        self.p = _arguments.probability(p)

    def step(self, size: Size | None) -> Step:
        return apply(self.p, operation("autocontrast"))


class RandomEqualize(RecipeTransform):
    """Makes each channel's histogram even, with probability ``p`` (default 0.5).

    Raises:
        ValueError: for a probability outside 0..1.
    """

    def __init__(self, p: float = 0.5) -> None:
        self.p = _arguments.probability(p)

    def step(self, size: Size | None) -> Step:
        return apply(self.p, operation("equalize"))
