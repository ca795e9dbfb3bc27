"""Policies that take any operation, each as likely."""

from __future__ import annotations

import functools
import operator
from typing import Any

from fastloader.transforms import _arguments
from fastloader.transforms._recipe.number import MOST_VALUES
from fastloader.transforms._recipe.operations import Size
from fastloader.transforms._recipe.recipe import Step, choice, together
from fastloader.transforms.steps.policies import space
from fastloader.transforms.steps.transform import RecipeTransform


class RandAugment(RecipeTransform):
    """Does some operations of one strength, each drawn from 14: https://arxiv.org/abs/1909.13719.

    Args:
        num_ops: How many operations are done, one after the other; default 2.
        magnitude: The strength, from 0 to num_magnitude_bins - 1; default 9.
        num_magnitude_bins: Into how many steps the range of each strength is divided; default 31.
        interpolation: "nearest" (default), "bilinear" or "bicubic", also as torchvision's
            InterpolationMode or Pillow's constant, for the operations that warp.
        fill: The colour of what comes from outside, a number for all channels or (red, green, blue),
            each in 0..255; default None, which is black.

    It translates by a part of the picture's size. It is native where all pictures have one size, for
    instance behind RandomResizedCrop.

    Raises:
        TypeError: for a magnitude or num_magnitude_bins that is no int, and a fill that is no number.
        ValueError: for negative or too many num_ops, fewer than 2 bins, a magnitude beyond them, and
            another interpolation.
    """

    # Torchvision's v2 computes thresholds another way; see `space.magnitudes`.
    _scaled_thresholds = False

    def __init__(
        self,
        num_ops: int = 2,
        magnitude: int = 9,
        num_magnitude_bins: int = 31,
        interpolation: Any = "nearest",
        fill: Any = None,
    ) -> None:
        if not isinstance(num_ops, int) or not 0 <= num_ops <= 256:
            raise ValueError(
                "num_ops should be a non-negative integer, and 256 at most, "
                f"but got {num_ops} instead."
            )
        self.num_ops = num_ops
        self.num_magnitude_bins = _bins(num_magnitude_bins)
        self.magnitude = operator.index(magnitude)
        if not 0 <= self.magnitude < self.num_magnitude_bins:
            raise ValueError(f"magnitude={magnitude}: 0 to {num_magnitude_bins - 1} are allowed")
        self.interpolation = _arguments.warp_interpolation(interpolation)
        self.fill = _arguments.fill(fill)

    def step(self, size: Size | None) -> Step:
        look = space.Look(self.interpolation, self.fill, self._scaled_thresholds)
        drawn = _one_strength(self.magnitude, self.num_magnitude_bins, look, size)
        return together(*[drawn] * self.num_ops)


class TrivialAugmentWide(RecipeTransform):
    """Does one operation, drawn from 14, of a strength that is drawn: https://arxiv.org/abs/2103.10158.

    Args:
        num_magnitude_bins: Of how many strengths one is drawn; default 31.
        interpolation: "nearest" (default), "bilinear" or "bicubic", also as torchvision's
            InterpolationMode or Pillow's constant, for the operations that warp.
        fill: The colour of what comes from outside, a number for all channels or (red, green, blue),
            each in 0..255; default None, which is black.

    Raises:
        TypeError: for a num_magnitude_bins that is no int, and a fill that is no number.
        ValueError: for fewer than 2 bins, and another interpolation.
    """

    # Torchvision's v2 computes thresholds another way; see `space.magnitudes`.
    _scaled_thresholds = False

    def __init__(
        self, num_magnitude_bins: int = 31, interpolation: Any = "nearest", fill: Any = None
    ) -> None:
        self.num_magnitude_bins = _bins(num_magnitude_bins)
        self.interpolation = _arguments.warp_interpolation(interpolation)
        self.fill = _arguments.fill(fill)

    def step(self, size: Size | None) -> Step:
        look = space.Look(self.interpolation, self.fill, self._scaled_thresholds)
        return _any_strength(self.num_magnitude_bins, look)


@functools.lru_cache(maxsize=64)
def _one_strength(magnitude: int, bins: int, look: space.Look, size: Size | None) -> Step:
    def step(name: str) -> Step:
        if name in space.PLAIN:
            return space.PLAIN[name]
        reach = space.relative_reach(name, size, "RandAugment")
        found = space.magnitudes(name, space.MODERATE, bins, reach, look.scaled_thresholds)
        return space.strong_step(name, (found[magnitude],), look)

    return choice(*map(step, space.NAMES))


@functools.lru_cache(maxsize=64)
def _any_strength(bins: int, look: space.Look) -> Step:
    def step(name: str) -> Step:
        if name in space.PLAIN:
            return space.PLAIN[name]
        found = space.magnitudes(name, space.WIDE, bins, 32.0, look.scaled_thresholds)
        return space.strong_step(name, found, look)

    return choice(*map(step, space.NAMES))


def _bins(count: int) -> int:
    found = operator.index(count)
    if not 2 <= found <= MOST_VALUES:
        raise ValueError(f"num_magnitude_bins={count}: 2 to {MOST_VALUES} are allowed")
    return found
