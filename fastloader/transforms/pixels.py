"""Transforms of colours, tones and sharpness."""

from __future__ import annotations

import math
import numbers
import operator
from collections.abc import Sequence
from typing import Any

from fastloader.errors import NotNative
from fastloader.transforms import _arguments
from fastloader.transforms._pillow import image_module
from fastloader.transforms._recipe.draw import Draw
from fastloader.transforms._recipe.operations import Size
from fastloader.transforms._recipe.recipe import (
    Step,
    apply,
    constant,
    constants,
    in_any_order,
    operation,
    single,
    together,
)
from fastloader.transforms.transform import RecipeTransform, WithProbability, shown

__all__ = [
    "ColorJitter",
    "Grayscale",
    "RandomGrayscale",
    "GaussianBlur",
    "RandomAdjustSharpness",
    "RandomAutocontrast",
    "RandomEqualize",
    "RandomInvert",
    "RandomPosterize",
    "RandomSolarize",
]

# ---- Brightness, contrast, saturation and hue.


Strength = float | Sequence[float] | None


class ColorJitter(RecipeTransform):
    """Changes brightness, contrast, saturation and hue by random factors, in a random order.

    Each argument is a range (from, to) from which the factor is drawn uniformly, or a number, or None,
    which leaves that property as it is.

    Args:
        brightness: A number b means (max(0, 1 - b), 1 + b); default 0. The factor 1 changes nothing,
            and 0 makes a black picture.
        contrast: As brightness; default 0. The factor 0 makes a grey picture.
        saturation: As brightness; default 0. The factor 0 makes a picture of greys.
        hue: In turns of the colour circle, -0.5 to 0.5. A number h means (-h, h); default 0.

    Raises:
        TypeError: for what is neither a number nor a pair.
        ValueError: for a negative number, or a range that is not finite, is reversed, or leaves the
            bounds.
    """

    def __init__(
        self,
        brightness: Strength = 0,
        contrast: Strength = 0,
        saturation: Strength = 0,
        hue: Strength = 0,
    ) -> None:
        self.brightness = _range("brightness", brightness)
        self.contrast = _range("contrast", contrast)
        self.saturation = _range("saturation", saturation)
        self.hue = _range("hue", hue, 0.0, (-0.5, 0.5))

    def step(self, size: Size | None) -> Step:
        kinds = ("brightness", "contrast", "saturation", "hue")
        ranges = {kind: getattr(self, kind) for kind in kinds}
        found = [operation(kind, single(*each)) for kind, each in ranges.items() if each]
        return in_any_order(*found) if found else together()


def _range(
    name: str,
    value: Strength,
    center: float = 1.0,
    bounds: tuple[float, float] = (0.0, math.inf),
) -> tuple[float, float] | None:
    """Returns the range of a factor, or None if it changes nothing."""
    if value is None:
        return None
    if isinstance(value, numbers.Real):
        if value < 0:
            raise ValueError(f"If {name} is a single number, it must be non negative.")
        low, high = center - float(value), center + float(value)
        low = (
            max(low, 0.0) if center == 1.0 else low
        )  # so that hue=0.6 is refused, as torchvision does
    elif isinstance(value, Sequence) and not isinstance(value, str) and len(value) == 2:
        low, high = float(value[0]), float(value[1])
    else:
        raise TypeError(f"{name} should be a single number or a list/tuple with length 2.")
    if not (bounds[0] <= low <= high <= bounds[1] and math.isfinite(high)):
        raise ValueError(f"{name} values should be between {bounds}, but got {[low, high]}.")
    return None if low == high == center else (low, high)


class Grayscale(RecipeTransform):
    """Makes a picture of greys, with the weights of ITU-R 601-2.

    Args:
        num_output_channels: 3 gives an RGB picture of three equal channels. 1 (the default) gives a
            picture of mode L.

    Raises:
        ValueError: for other numbers of channels.
    """

    def __init__(self, num_output_channels: int = 1) -> None:
        if num_output_channels not in (1, 3):
            raise ValueError("num_output_channels should be either 1 or 3")
        self.num_output_channels = num_output_channels

    def step(self, size: Size | None) -> Step:
        if self.num_output_channels == 1:
            raise NotNative(
                f"{shown(self)} gives pictures of one channel, and is native only as a step of the chain"
            )
        return operation("grayscale")

    def apply(self, image: Any, draw: Draw) -> Any:
        grey = image.convert("L")
        return grey if self.num_output_channels == 1 else image_module().merge("RGB", [grey] * 3)


class RandomGrayscale(WithProbability):
    """Makes a picture of greys with probability ``p`` (default 0.1), with as many channels as before.

    Raises:
        ValueError: for a probability outside 0..1.
    """

    _operation = "grayscale"

    def __init__(self, p: float = 0.1) -> None:
        super().__init__(p)


# ---- Sharper and softer pictures.


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


# ---- Values of pixels by way of a table, and Pillow's ways to spread them.


class RandomInvert(WithProbability):
    """Makes a negative, with probability ``p`` (default 0.5).

    Raises:
        ValueError: for a probability outside 0..1.
    """

    _operation = "invert"


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


class RandomAutocontrast(WithProbability):
    """Spreads each channel's values over 0..255, with probability ``p`` (default 0.5).

    Raises:
        ValueError: for a probability outside 0..1.
    """

    _operation = "autocontrast"


class RandomEqualize(WithProbability):
    """Makes each channel's histogram even, with probability ``p`` (default 0.5).

    Raises:
        ValueError: for a probability outside 0..1.
    """

    _operation = "equalize"
