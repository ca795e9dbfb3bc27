"""Sharper and softer pictures."""

from __future__ import annotations

import numbers
import operator
from collections.abc import Sequence
from typing import Any

from fastloader.transforms import _arguments
from fastloader.transforms._recipe.number import constant, constants, single
from fastloader.transforms._recipe.operations import Size
from fastloader.transforms._recipe.recipe import Step, apply, operation
from fastloader.transforms.steps.transform import RecipeTransform


class RandomAdjustSharpness(RecipeTransform):
    """Makes the picture sharper or softer, with probability ``p``.

    Args:
        sharpness_factor: 0 gives a soft picture, 1 the same picture, 2 a sharper one.
        p: The probability; default 0.5.

    Raises:
        TypeError: for a factor that is no number.
        ValueError: for one that is not finite, or a probability outside 0..1.
    """

    def __init__(self, sharpness_factor: float, p: float = 0.5) -> None:
        self.sharpness_factor = _arguments.finite("sharpness_factor", sharpness_factor)
        self.p = _arguments.probability(p)

    def step(self, size: Size | None) -> Step:
        return apply(self.p, operation("sharpness", constant(self.sharpness_factor)))


class GaussianBlur(RecipeTransform):
    """Blurs the picture by a convolution with a Gaussian, whose border is mirrored.

    Args:
        kernel_size: The (width, height) of the kernel in pixels, odd numbers; an int is a square.
            Half of it must be smaller than the picture.
        sigma: The range (from, to) of the standard deviation in pixels, drawn uniformly and the same
            along both axes; default (0.1, 2). A number is always that.

    Raises:
        TypeError: for a kernel whose edges are no integers.
        ValueError: for even or negative edges, and for a sigma that is no positive number and no range
            of them.
    """

    def __init__(
        self, kernel_size: int | Sequence[int], sigma: float | Sequence[float] = (0.1, 2.0)
    ) -> None:
        edges: Any = kernel_size
        if isinstance(edges, numbers.Real):
            edges = (int(float(edges)),)
        if len(edges) not in (1, 2):
            raise ValueError("Kernel size should be a tuple/list of two integers")
        self.kernel_size = (operator.index(edges[0]), operator.index(edges[-1]))
        if any(edge <= 0 or edge % 2 == 0 for edge in self.kernel_size):
            raise ValueError("Kernel size value should be an odd and positive number.")
        if isinstance(sigma, numbers.Real):
            if sigma <= 0:
                raise ValueError("If sigma is a single number, it must be positive.")
            sigma = (float(sigma), float(sigma))
        elif not isinstance(sigma, Sequence) or len(sigma) != 2:
            raise ValueError("sigma should be a single number or a list/tuple with length 2.")
        low, high = (_arguments.finite("sigma", each) for each in sigma)
        if not 0.0 < low <= high:
            raise ValueError("sigma values should be positive and of the form (min, max).")
        self.sigma = (low, high)

    def step(self, size: Size | None) -> Step:
        return operation("gaussian_blur", *constants(*self.kernel_size), single(*self.sigma))
