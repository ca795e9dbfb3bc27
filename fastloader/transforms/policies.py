"""Policies: AutoAugment, RandAugment, TrivialAugmentWide and AugMix, as torchvision has them."""

from __future__ import annotations

import enum
import functools
import math
import numbers
import operator
from typing import Any, NamedTuple

import torch

from fastloader.errors import NotNative
from fastloader.transforms import _arguments
from fastloader.transforms._recipe.operations import Size
from fastloader.transforms._recipe.recipe import (
    MOST_VALUES,
    Number,
    Step,
    apply,
    check_alpha,
    choice,
    constant,
    constants,
    first,
    mix,
    operation,
    sized,
    together,
)
from fastloader.transforms.transform import RecipeTransform

__all__ = [
    "AutoAugment",
    "AutoAugmentPolicy",
    "RandAugment",
    "TrivialAugmentWide",
    "AugMix",
]

# ---- The operations that policies draw from, by torchvision's names, and their strengths.


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
    """The options that all operations of a policy share."""

    interpolation: str
    fill: tuple[int, int, int]
    scaled_thresholds: bool  # see `magnitudes`


def magnitudes(
    name: str, ends: Ends, bins: int, reach: float, scaled_thresholds: bool
) -> tuple[float, ...]:
    """Returns torchvision's magnitudes of an operation, to the last bit.

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
    """Returns how far RandAugment and AutoAugment translate by a part of the picture's size, in pixels.

    Raises:
        NotNative: if the size is not known.
    """
    return 150.0 / 331.0 * edge(name, size, policy)


def edge(name: str, size: Size | None, policy: str) -> int:
    """Returns the picture's edge along which an operation translates, in pixels, or 0 for other
    operations.

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
    """Makes the step of an operation with one of the strengths, each as likely, and a random sign if it
    has one."""
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


# ---- The policies that a search found.


# An operation, its probability, and the number of its magnitude, of 10.
Part = tuple[str, float, int | None]
Policies = list[tuple[Part, Part]]
_BINS = 10


class AutoAugmentPolicy(enum.Enum):
    """The data set that a policy was found for."""

    IMAGENET = "imagenet"
    CIFAR10 = "cifar10"
    SVHN = "svhn"


class AutoAugment(RecipeTransform):
    """Applies one pair of operations, drawn from 25 that were found for a data set, each operation with
    a probability and a strength of its own: https://arxiv.org/abs/1805.09501.

    Args:
        policy: One of AutoAugmentPolicy, ours or torchvision's; default IMAGENET.
        interpolation: "nearest" (default), "bilinear" or "bicubic", also as torchvision's
            InterpolationMode or Pillow's constant, for the operations that warp.
        fill: The colour of what comes from outside, a number for all channels or (red, green, blue),
            each in 0..255; default None, which is black.

    CIFAR10 and SVHN translate by a part of the picture's size. They are native where all pictures
    have one size, for instance behind RandomResizedCrop.

    Raises:
        TypeError: for a fill that is no number.
        ValueError: for another policy or interpolation.
    """

    # Torchvision's v2 computes thresholds another way; see `space.magnitudes`.
    _scaled_thresholds = False

    def __init__(
        self,
        policy: AutoAugmentPolicy = AutoAugmentPolicy.IMAGENET,
        interpolation: Any = "nearest",
        fill: Any = None,
    ) -> None:
        self.policy = _our_policy(policy)
        self.interpolation = _arguments.warp_interpolation(interpolation)
        self.fill = _arguments.fill(fill)

    def step(self, size: Size | None) -> Step:
        look = Look(self.interpolation, self.fill, self._scaled_thresholds)
        return _tree(self.policy, look, size)


@functools.lru_cache(maxsize=64)
def _tree(policy: AutoAugmentPolicy, look: Look, size: Size | None) -> Step:
    def step(part: Part) -> Step:
        name, probability, number = part
        if number is None:
            return apply(probability, PLAIN[name])
        reach = relative_reach(name, size, f"AutoAugment({policy})")
        found = magnitudes(name, MODERATE, _BINS, reach, look.scaled_thresholds)
        return apply(probability, strong_step(name, (found[number],), look))

    return choice(*[together(*map(step, pair)) for pair in POLICIES[policy]])


def _our_policy(policy: Any) -> AutoAugmentPolicy:
    """Returns our member for torchvision's."""
    for each in AutoAugmentPolicy:
        if isinstance(policy, enum.Enum) and policy.value == each.value:
            return each
    raise ValueError(f"The provided policy {policy} is not recognized.")


POLICIES: dict[AutoAugmentPolicy, Policies] = {
    AutoAugmentPolicy.IMAGENET: [
        (("Posterize", 0.4, 8), ("Rotate", 0.6, 9)),
        (("Solarize", 0.6, 5), ("AutoContrast", 0.6, None)),
        (("Equalize", 0.8, None), ("Equalize", 0.6, None)),
        (("Posterize", 0.6, 7), ("Posterize", 0.6, 6)),
        (("Equalize", 0.4, None), ("Solarize", 0.2, 4)),
        (("Equalize", 0.4, None), ("Rotate", 0.8, 8)),
        (("Solarize", 0.6, 3), ("Equalize", 0.6, None)),
        (("Posterize", 0.8, 5), ("Equalize", 1.0, None)),
        (("Rotate", 0.2, 3), ("Solarize", 0.6, 8)),
        (("Equalize", 0.6, None), ("Posterize", 0.4, 6)),
        (("Rotate", 0.8, 8), ("Color", 0.4, 0)),
        (("Rotate", 0.4, 9), ("Equalize", 0.6, None)),
        (("Equalize", 0.0, None), ("Equalize", 0.8, None)),
        (("Invert", 0.6, None), ("Equalize", 1.0, None)),
        (("Color", 0.6, 4), ("Contrast", 1.0, 8)),
        (("Rotate", 0.8, 8), ("Color", 1.0, 2)),
        (("Color", 0.8, 8), ("Solarize", 0.8, 7)),
        (("Sharpness", 0.4, 7), ("Invert", 0.6, None)),
        (("ShearX", 0.6, 5), ("Equalize", 1.0, None)),
        (("Color", 0.4, 0), ("Equalize", 0.6, None)),
        (("Equalize", 0.4, None), ("Solarize", 0.2, 4)),
        (("Solarize", 0.6, 5), ("AutoContrast", 0.6, None)),
        (("Invert", 0.6, None), ("Equalize", 1.0, None)),
        (("Color", 0.6, 4), ("Contrast", 1.0, 8)),
        (("Equalize", 0.8, None), ("Equalize", 0.6, None)),
    ],
    AutoAugmentPolicy.CIFAR10: [
        (("Invert", 0.1, None), ("Contrast", 0.2, 6)),
        (("Rotate", 0.7, 2), ("TranslateX", 0.3, 9)),
        (("Sharpness", 0.8, 1), ("Sharpness", 0.9, 3)),
        (("ShearY", 0.5, 8), ("TranslateY", 0.7, 9)),
        (("AutoContrast", 0.5, None), ("Equalize", 0.9, None)),
        (("ShearY", 0.2, 7), ("Posterize", 0.3, 7)),
        (("Color", 0.4, 3), ("Brightness", 0.6, 7)),
        (("Sharpness", 0.3, 9), ("Brightness", 0.7, 9)),
        (("Equalize", 0.6, None), ("Equalize", 0.5, None)),
        (("Contrast", 0.6, 7), ("Sharpness", 0.6, 5)),
        (("Color", 0.7, 7), ("TranslateX", 0.5, 8)),
        (("Equalize", 0.3, None), ("AutoContrast", 0.4, None)),
        (("TranslateY", 0.4, 3), ("Sharpness", 0.2, 6)),
        (("Brightness", 0.9, 6), ("Color", 0.2, 8)),
        (("Solarize", 0.5, 2), ("Invert", 0.0, None)),
        (("Equalize", 0.2, None), ("AutoContrast", 0.6, None)),
        (("Equalize", 0.2, None), ("Equalize", 0.6, None)),
        (("Color", 0.9, 9), ("Equalize", 0.6, None)),
        (("AutoContrast", 0.8, None), ("Solarize", 0.2, 8)),
        (("Brightness", 0.1, 3), ("Color", 0.7, 0)),
        (("Solarize", 0.4, 5), ("AutoContrast", 0.9, None)),
        (("TranslateY", 0.9, 9), ("TranslateY", 0.7, 9)),
        (("AutoContrast", 0.9, None), ("Solarize", 0.8, 3)),
        (("Equalize", 0.8, None), ("Invert", 0.1, None)),
        (("TranslateY", 0.7, 9), ("AutoContrast", 0.9, None)),
    ],
    AutoAugmentPolicy.SVHN: [
        (("ShearX", 0.9, 4), ("Invert", 0.2, None)),
        (("ShearY", 0.9, 8), ("Invert", 0.7, None)),
        (("Equalize", 0.6, None), ("Solarize", 0.6, 6)),
        (("Invert", 0.9, None), ("Equalize", 0.6, None)),
        (("Equalize", 0.6, None), ("Rotate", 0.9, 3)),
        (("ShearX", 0.9, 4), ("AutoContrast", 0.8, None)),
        (("ShearY", 0.9, 8), ("Invert", 0.4, None)),
        (("ShearY", 0.9, 5), ("Solarize", 0.2, 6)),
        (("Invert", 0.9, None), ("AutoContrast", 0.8, None)),
        (("Equalize", 0.6, None), ("Rotate", 0.9, 3)),
        (("ShearX", 0.9, 4), ("Solarize", 0.3, 3)),
        (("ShearY", 0.8, 8), ("Invert", 0.7, None)),
        (("Equalize", 0.9, None), ("TranslateY", 0.6, 6)),
        (("Invert", 0.9, None), ("Equalize", 0.6, None)),
        (("Contrast", 0.3, 3), ("Rotate", 0.8, 4)),
        (("Invert", 0.8, None), ("TranslateY", 0.0, 2)),
        (("ShearY", 0.7, 6), ("Solarize", 0.4, 8)),
        (("Invert", 0.6, None), ("Rotate", 0.8, 4)),
        (("ShearY", 0.3, 7), ("TranslateX", 0.9, 3)),
        (("ShearX", 0.1, 6), ("Invert", 0.6, None)),
        (("Solarize", 0.7, 2), ("TranslateY", 0.6, 7)),
        (("ShearY", 0.8, 4), ("Invert", 0.8, None)),
        (("ShearX", 0.7, 9), ("TranslateY", 0.8, 3)),
        (("ShearY", 0.8, 5), ("AutoContrast", 0.7, None)),
        (("ShearX", 0.7, 2), ("Invert", 0.1, None)),
    ],
}


# ---- The policy that mixes a picture with what chains of operations make of it.


_DRAWN_DEPTH = 3  # the most that is drawn


class AugMix(RecipeTransform):
    """Mixes the picture with what chains of operations make of it, with weights that are drawn:
    https://arxiv.org/abs/1912.02781.

    The operations are those of a Pillow picture. Torchvision does them to tensors even for a Pillow
    picture, which gives other pixels where a picture is warped, for instance. The mix itself is
    torchvision's.

    Args:
        severity: How strong an operation may be, from 1 to 10; default 3.
        mixture_width: The number of chains; default 3.
        chain_depth: The number of operations of a chain; default -1, which draws 1 to 3 for each chain,
            as every number below 1 does.
        alpha: The parameter of the distributions that the weights are drawn from; default 1.0, with
            which all weights are as likely. A small one gives one chain almost all of the weight, a
            large one gives all chains the same.
        all_ops: Whether brightness, colour, contrast and sharpness are among the operations; default
            True.
        interpolation: "bilinear" (default), "nearest" or "bicubic", also as torchvision's
            InterpolationMode or Pillow's constant, for the operations that warp.
        fill: The colour of what comes from outside, a number for all channels or (red, green, blue),
            each in 0..255; default None, which is black.

    It translates by a part of the picture's size. It is native where all pictures have one size, for
    instance behind RandomResizedCrop.

    Raises:
        TypeError: for a severity, mixture_width or chain_depth that is no int, and an alpha or a fill
            that is no number.
        ValueError: for a severity beyond 1..10, no chains, more than 256 operations in all chains, an
            alpha that is not from 1e-9 to 1e9, and another interpolation.
    """

    # Torchvision's v2 computes thresholds another way; see `space.magnitudes`.
    _scaled_thresholds = False

    def __init__(
        self,
        severity: int = 3,
        mixture_width: int = 3,
        chain_depth: int = -1,
        alpha: float = 1.0,
        all_ops: bool = True,
        interpolation: Any = "bilinear",
        fill: Any = None,
    ) -> None:
        self.severity = _whole("severity", severity)
        if not 1 <= severity <= _BINS:
            raise ValueError(f"The severity must be between [1, {_BINS}]. Got {severity} instead.")
        self.mixture_width = _whole("mixture_width", mixture_width)
        self.chain_depth = _whole("chain_depth", chain_depth)
        depth = chain_depth if chain_depth > 0 else _DRAWN_DEPTH
        if not 0 < mixture_width * depth <= 256:
            raise ValueError(
                f"mixture_width={mixture_width}, chain_depth={chain_depth}: use one chain or more, "
                "and 256 operations at most in all of them"
            )
        self.alpha = _arguments.finite("alpha", alpha)
        check_alpha(self.alpha)
        self.all_ops = bool(all_ops)
        self.interpolation = _arguments.warp_interpolation(interpolation)
        self.fill = _arguments.fill(fill)

    def step(self, size: Size | None) -> Step:
        look = Look(self.interpolation, self.fill, self._scaled_thresholds)
        drawn = _any_operation(self.severity, self.all_ops, look, size)
        if self.chain_depth > 0:
            chain = together(*[drawn] * self.chain_depth)
        else:
            chain = first(*[drawn] * _DRAWN_DEPTH)
        return mix("sum", self.alpha, *[chain] * self.mixture_width)


@functools.lru_cache(maxsize=64)
def _any_operation(severity: int, all_ops: bool, look: Look, size: Size | None) -> Step:
    def step(name: str) -> Step:
        reach = edge(name, size, "AugMix") / 3.0
        found = magnitudes(name, MIXED, _BINS, reach, look.scaled_thresholds)
        return strong_step(name, found[:severity], look)

    names = MIXED_NAMES if all_ops else MIXED_NAMES[:-4]
    return choice(*[step(name) for name in names])


def _whole(name: str, value: Any) -> int:
    if not isinstance(value, numbers.Integral):
        raise TypeError(f"{name} should be an int. Got {type(value)}")
    return int(value)


# ---- Policies that take any operation, each as likely.


class RandAugment(RecipeTransform):
    """Applies some operations of one strength, each drawn from 14: https://arxiv.org/abs/1909.13719.

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
        look = Look(self.interpolation, self.fill, self._scaled_thresholds)
        drawn = _one_strength(self.magnitude, self.num_magnitude_bins, look, size)
        return together(*[drawn] * self.num_ops)


class TrivialAugmentWide(RecipeTransform):
    """Applies one operation, drawn from 14, of a strength that is drawn:
    https://arxiv.org/abs/2103.10158.

    Args:
        num_magnitude_bins: The number of strengths, of which one is drawn; default 31.
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
        look = Look(self.interpolation, self.fill, self._scaled_thresholds)
        return _any_strength(self.num_magnitude_bins, look)


@functools.lru_cache(maxsize=64)
def _one_strength(magnitude: int, bins: int, look: Look, size: Size | None) -> Step:
    def step(name: str) -> Step:
        if name in PLAIN:
            return PLAIN[name]
        reach = relative_reach(name, size, "RandAugment")
        found = magnitudes(name, MODERATE, bins, reach, look.scaled_thresholds)
        return strong_step(name, (found[magnitude],), look)

    return choice(*map(step, NAMES))


@functools.lru_cache(maxsize=64)
def _any_strength(bins: int, look: Look) -> Step:
    def step(name: str) -> Step:
        if name in PLAIN:
            return PLAIN[name]
        found = magnitudes(name, WIDE, bins, 32.0, look.scaled_thresholds)
        return strong_step(name, found, look)

    return choice(*map(step, NAMES))


def _bins(count: int) -> int:
    found = operator.index(count)
    if not 2 <= found <= MOST_VALUES:
        raise ValueError(f"num_magnitude_bins={count}: 2 to {MOST_VALUES} are allowed")
    return found
