"""Brightness, contrast, saturation and hue."""

from __future__ import annotations

import math
import numbers
from collections.abc import Sequence
from typing import Any

from fastloader.errors import NotNative
from fastloader.transforms import _arguments
from fastloader.transforms._pillow import image_module
from fastloader.transforms._recipe.draw import Draw
from fastloader.transforms._recipe.number import single
from fastloader.transforms._recipe.operations import Size
from fastloader.transforms._recipe.recipe import Step, apply, in_any_order, operation, together
from fastloader.transforms.steps.transform import RecipeTransform, shown

Strength = float | Sequence[float] | None


class ColorJitter(RecipeTransform):
    """Changes brightness, contrast, saturation and hue by random factors, in a random order.

    Each argument is a range (from, to) from which the factor is drawn uniformly, or a number, or None,
    which leaves that property as it is.

    Args:
        brightness: A number b means (max(0, 1 - b), 1 + b); default 0. The factor 1 changes nothing,
            and 0 makes a black picture.
        contrast: The same; default 0. The factor 0 makes a grey picture.
        saturation: The same; default 0. The factor 0 makes a picture of greys.
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
    """The range of a factor, or None if it changes nothing."""
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


class RandomGrayscale(RecipeTransform):
    """Makes a picture of greys with probability ``p`` (default 0.1), with as many channels as before.

    Raises:
        ValueError: for a probability outside 0..1.
    """

    def __init__(self, p: float = 0.1) -> None:
        self.p = _arguments.probability(p)

    def step(self, size: Size | None) -> Step:
        return apply(self.p, operation("grayscale"))
