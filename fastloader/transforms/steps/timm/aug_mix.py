"""timm's AugMix."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from fastloader.transforms._recipe.operations import Size
from fastloader.transforms._recipe.recipe import Step, choice, first, mix, together
from fastloader.transforms.steps.timm.augment_op import HPARAMS, AugmentOp
from fastloader.transforms.steps.timm.config import sections
from fastloader.transforms.steps.transform import RecipeTransform

_NAMES = (
    "AutoContrast", "ColorIncreasing", "ContrastIncreasing", "BrightnessIncreasing",
    "SharpnessIncreasing", "Equalize", "Rotate", "PosterizeIncreasing", "SolarizeIncreasing",
    "ShearX", "ShearY", "TranslateXRel", "TranslateYRel",
)  # fmt: skip
_PARTS = {"mstd": float, "m": int, "w": int, "d": int, "a": float, "b": int}
_DRAWN_DEPTH = 3  # the most that is drawn


class AugMixAugment(RecipeTransform):
    """Mixes the picture with what ``width`` chains of operations make of it, by weights that are drawn.

    A chain has ``depth`` operations, or 1 to 3 if that is below 1. ``blended`` mixes by one blend of two
    pictures after the other, each of which rounds to bytes, where timm otherwise adds up in floats.

    Raises:
        TypeError: for a width or depth that is no int.
        ValueError: for no operations or no chains, more of them than a recipe holds, and an ``alpha``
            that is not from 1e-9 to 1e9.
    """

    def __init__(
        self,
        ops: Sequence[AugmentOp],
        alpha: float = 1.0,
        width: int = 3,
        depth: int = -1,
        blended: bool = False,
    ) -> None:
        self.ops = list(ops)
        self.alpha = float(alpha)
        self.width = width
        self.depth = depth
        self.blended = blended
        drawn = choice(*(op.step for op in self.ops))
        if not 0 < width * max(depth, 1) <= 4096:
            raise ValueError(
                f"width={width}, depth={depth}: use one chain or more, and no more than 4096"
            )
        chain = together(*[drawn] * depth) if depth > 0 else first(*[drawn] * _DRAWN_DEPTH)
        self._step = mix("blends" if blended else "blend", self.alpha, *[chain] * width)

    def step(self, size: Size | None) -> Step:
        return self._step

    def __repr__(self) -> str:
        return (
            f"AugMixAugment(alpha={self.alpha:g}, width={self.width}, depth={self.depth}, "
            f"ops={self.ops}{', blended=True' if self.blended else ''})"
        )


def augment_and_mix_transform(
    config_str: str, hparams: Mapping[str, Any] | None = None
) -> AugMixAugment:
    """Makes an `AugMixAugment` from a string such as "augmix-m5-w4-d2", as timm's function does.

    Args:
        config_str: "augmix" and, in any order, "m" (level, 3 by default), "w" (chains, 3), "d"
            (operations of each, 1 to 3 by default), "a" (alpha, 1), "b1" (blended) and "mstd" (standard
            deviation of the level, which is uniform from 0 to "m" by default).
        hparams: timm's: translate_const, translate_pct, img_mean, interpolation, magnitude_std and
            magnitude_max. They win over the string.

    Raises:
        ValueError: for a string that timm does not know either.
    """
    if config_str.split("-")[0] != "augmix":
        raise ValueError(f"{config_str!r} does not begin with 'augmix'")
    options = dict(hparams or HPARAMS)
    found: dict[str, float] = {"m": 3, "w": 3, "d": -1, "a": 1.0, "b": 0}
    for name, value in sections(config_str, _PARTS):
        if name == "mstd":
            options.setdefault("magnitude_std", value)
        else:
            found[name] = value
    options.setdefault("magnitude_std", math.inf)
    ops = [AugmentOp.of(name, 1.0, found["m"], options) for name in _NAMES]
    return AugMixAugment(
        ops, found["a"], int(found["w"]), int(found["d"]), blended=bool(found["b"])
    )
