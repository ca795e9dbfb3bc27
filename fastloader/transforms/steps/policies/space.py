"""The operations that policies draw from, by torchvision's names, and their strengths."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch

from fastloader.errors import NotNative
from fastloader.transforms import _arguments
from fastloader.transforms._recipe.number import Number, constant, constants
from fastloader.transforms._recipe.operations import Size
from fastloader.transforms._recipe.recipe import Step, operation, sized, together

# Of a policy with magnitudes 0.3, 0.9, 30 and so on: what its operations' ranges end with, what
# posterize takes away, and of how many bits if not of 8.
Ends = tuple[tuple[str, float], ...]
MODERATE: Ends = (("shear", 0.3), ("rotate", 30.0), ("enhance", 0.9), ("bits", 4.0))
WIDE: Ends = (("shear", 0.99), ("rotate", 135.0), ("enhance", 0.99), ("bits", 6.0))
MIXED: Ends = (*MODERATE, ("of_bits", 4.0))

# Those that have no strength.
PLAIN = {
    "Identity": together(),
    "AutoContrast": operation("autocontrast"),
    "Equalize": operation("equalize"),
    "Invert": operation("invert"),
}
_ENHANCED = {
    "Brightness": "brightness",
    "Color": "saturation",
    "Contrast": "contrast",
    "Sharpness": "sharpness",
}
# In the order in which RandAugment and TrivialAugmentWide have them.
NAMES = (
    "Identity",
    "ShearX",
    "ShearY",
    "TranslateX",
    "TranslateY",
    "Rotate",
    "Brightness",
    "Color",
    "Contrast",
    "Sharpness",
    "Posterize",
    "Solarize",
    "AutoContrast",
    "Equalize",
)
# In that of AugMix, which does without the last four if it is not to take all.
MIXED_NAMES = (
    "ShearX",
    "ShearY",
    "TranslateX",
    "TranslateY",
    "Rotate",
    "Posterize",
    "Solarize",
    "AutoContrast",
    "Equalize",
    "Brightness",
    "Color",
    "Contrast",
    "Sharpness",
)


class Look(NamedTuple):
    """What all operations of a policy have in common."""

    interpolation: str
    fill: tuple[int, int, int]
    scaled_thresholds: bool  # see `magnitudes`


def magnitudes(
    name: str, ends: Ends, bins: int, reach: float, scaled_thresholds: bool
) -> tuple[float, ...]:
    """Torchvision's magnitudes of an operation, to the last bit.

    ``reach`` is the pixels of the farthest translation. Torchvision's v2 has thresholds of parts of
    255 (``scaled_thresholds``), of which some are a little above a whole number, and v1 has none of
    these.
    """
    end = dict(ends)
    if name == "Posterize":
        steps = torch.arange(bins) / ((bins - 1) / end["bits"])
        return _floats(int(end.get("of_bits", 8)) - steps.round().int())
    if name == "Solarize":
        if scaled_thresholds:
            return tuple(255.0 * part for part in _floats(torch.linspace(1.0, 0.0, bins)))
        return _floats(torch.linspace(255.0, 0.0, bins))
    if name in ("TranslateX", "TranslateY"):
        return _floats(torch.linspace(0.0, reach, bins))
    kind = {"ShearX": "shear", "ShearY": "shear", "Rotate": "rotate"}.get(name, "enhance")
    return _floats(torch.linspace(0.0, end[kind], bins))


def _floats(values: torch.Tensor) -> tuple[float, ...]:
    return tuple(float(value) for value in values)


def relative_reach(name: str, size: Size | None, policy: str) -> float:
    """How far RandAugment and AutoAugment translate by a part of the picture's size, in pixels.

    Raises:
        NotNative: if the size is not known.
    """
    return 150.0 / 331.0 * edge(name, size, policy)


def edge(name: str, size: Size | None, policy: str) -> int:
    """The picture's edge along which an operation translates, in pixels, or 0 for other operations.

    Raises:
        NotNative: if the size is not known.
    """
    if name not in ("TranslateX", "TranslateY"):
        return 0
    if size is None:
        raise NotNative(
            f"{policy} moves pictures by a part of their size, which differs: put it behind a step that "
            "gives all pictures one size, such as RandomResizedCrop(224)"
        )
    return size[name == "TranslateX"]


def strong_step(name: str, strengths: tuple[float, ...], look: Look) -> Step:
    """The operation with one of the strengths, each as likely, and a random sign if it has one."""
    if name in PLAIN:
        return PLAIN[name]
    if name in _ENHANCED:
        return operation(_ENHANCED[name], _number(strengths, after=1.0))
    if name in ("Posterize", "Solarize"):
        return operation(name.lower(), _number(strengths, signed=False))
    rest = constants(_arguments.RESAMPLING[look.interpolation], *look.fill)
    if name == "Rotate":
        return operation("rotate", _number(strengths), rest[0], constant(0), *rest[1:])
    shear = name in ("ShearX", "ShearY")
    number = _number(tuple(map(_sheared if shear else math.trunc, strengths)))
    none = constant(0.0)
    moved, still = (number, none) if name[-1] == "X" else (none, number)
    if shear:
        numbers = (none, none, none, constant(1.0), moved, still, *rest, none, none)
    else:
        numbers = (none, moved, still, constant(1.0), none, none, *rest)
    return sized("affine_about", *numbers)


def _sheared(part: float) -> float:
    return math.degrees(math.atan(part))


def _number(strengths: tuple[float, ...], signed: bool = True, after: float = 0.0) -> Number:
    if len(strengths) == 1:
        return Number(a=strengths[0], either_sign=signed, after=after)
    return Number("table", values=strengths, either_sign=signed, after=after)
