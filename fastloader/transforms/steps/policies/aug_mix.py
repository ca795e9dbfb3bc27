"""The policy that mixes a picture with what chains of operations make of it."""

from __future__ import annotations

import functools
import numbers
from typing import Any

from fastloader.transforms import _arguments
from fastloader.transforms._recipe.number import check_alpha
from fastloader.transforms._recipe.operations import Size
from fastloader.transforms._recipe.recipe import Step, choice, first, mix, together
from fastloader.transforms.steps.policies import space
from fastloader.transforms.steps.transform import RecipeTransform

_BINS = 10
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
        look = space.Look(self.interpolation, self.fill, self._scaled_thresholds)
        drawn = _any_operation(self.severity, self.all_ops, look, size)
        if self.chain_depth > 0:
            chain = together(*[drawn] * self.chain_depth)
        else:
            chain = first(*[drawn] * _DRAWN_DEPTH)
        return mix("sum", self.alpha, *[chain] * self.mixture_width)


@functools.lru_cache(maxsize=64)
def _any_operation(severity: int, all_ops: bool, look: space.Look, size: Size | None) -> Step:
    def step(name: str) -> Step:
        reach = space.edge(name, size, "AugMix") / 3.0
        found = space.magnitudes(name, space.MIXED, _BINS, reach, look.scaled_thresholds)
        return space.strong_step(name, found[:severity], look)

    names = space.MIXED_NAMES if all_ops else space.MIXED_NAMES[:-4]
    return choice(*[step(name) for name in names])


def _whole(name: str, value: Any) -> int:
    if not isinstance(value, numbers.Integral):
        raise TypeError(f"{name} should be an int. Got {type(value)}")
    return int(value)
