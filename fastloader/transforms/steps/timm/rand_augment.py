"""timm's RandAugment."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fastloader.transforms._recipe.operations import Size
from fastloader.transforms._recipe.recipe import Step, choice, some, together
from fastloader.transforms.steps.timm.augment_op import HPARAMS, AugmentOp
from fastloader.transforms.steps.timm.config import sections
from fastloader.transforms.steps.timm.magnitude import LEVELS
from fastloader.transforms.steps.transform import RecipeTransform

Weights = Mapping[str, float]

_PLAIN = (
    "AutoContrast", "Equalize", "Invert", "Rotate", "Posterize", "Solarize", "SolarizeAdd", "Color",
    "Contrast", "Brightness", "Sharpness", "ShearX", "ShearY", "TranslateXRel", "TranslateYRel",
)  # fmt: skip
_WITH_INCREASING = ("Posterize", "Solarize", "Color", "Contrast", "Brightness", "Sharpness")
_INCREASING = tuple(f"{name}Increasing" if name in _WITH_INCREASING else name for name in _PLAIN)
_THREE = ("SolarizeIncreasing", "Desaturate", "GaussianBlur")
_WEIGHTED: Weights = {
    "Rotate": 3,
    "ShearX": 2,
    "ShearY": 2,
    "TranslateXRel": 1,
    "TranslateYRel": 1,
    "ColorIncreasing": 0.25,
    "SharpnessIncreasing": 0.25,
    "AutoContrast": 0.25,
    "SolarizeIncreasing": 0.05,
    "SolarizeAdd": 0.05,
    "ContrastIncreasing": 0.05,
    "BrightnessIncreasing": 0.05,
    "Equalize": 0.05,
    "PosterizeIncreasing": 0.05,
    "Invert": 0.05,
}
_WEIGHTED_THREE: Weights = {
    "SolarizeIncreasing": 6,
    "Desaturate": 6,
    "GaussianBlur": 6,
    "Rotate": 3,
    "ShearX": 2,
    "ShearY": 2,
    "PosterizeIncreasing": 1,
    "AutoContrast": 1,
    "ColorIncreasing": 1,
    "SharpnessIncreasing": 1,
    "ContrastIncreasing": 1,
    "BrightnessIncreasing": 1,
    "Equalize": 1,
    "Invert": 1,
}
_SETS: dict[str, Weights | Sequence[str]] = {
    "weights": _WEIGHTED,
    "3aw": _WEIGHTED_THREE,
    "3a": _THREE,
}
_PARTS = {"mstd": float, "mmax": int, "inc": int, "m": int, "n": int, "p": float}


class RandAugment(RecipeTransform):
    """Does ``num_layers`` of the operations, one after the other.

    Without ``choice_weights`` each is drawn from all. With them, the operations of a picture are
    different ones, drawn by their weights.

    Raises:
        ValueError: if fewer operations than ``num_layers`` have a weight above 0.
    """

    def __init__(
        self,
        ops: Sequence[AugmentOp],
        num_layers: int = 2,
        choice_weights: Sequence[float] | None = None,
    ) -> None:
        self.ops = list(ops)
        self.num_layers = num_layers
        self.choice_weights = None
        steps = [op.step for op in self.ops]
        if num_layers < 0:
            raise ValueError(f"num_layers={num_layers}: use 0 or more")
        if choice_weights is None:
            self._step = together(*(choice(*steps) for _ in range(num_layers)))
        else:
            # numpy.random.choice draws several at a time and draws again for those that came twice. That
            # is the distribution of one after the other, each by the weights of those that are left.
            self.choice_weights = tuple(float(weight) for weight in choice_weights)
            self._step = some(num_layers, *steps, weights=self.choice_weights)

    def step(self, size: Size | None) -> Step:
        return self._step

    def __repr__(self) -> str:
        weights = "" if self.choice_weights is None else f", choice_weights={self.choice_weights}"
        return f"RandAugment(n={self.num_layers}, ops={self.ops}{weights})"


def rand_augment_transform(
    config_str: str,
    hparams: Mapping[str, Any] | None = None,
    transforms: str | Weights | Sequence[str] | None = None,
) -> RandAugment:
    """Makes a `RandAugment` from a string such as "rand-m9-n3-mstd0.5", as timm's function does.

    Args:
        config_str: "rand" and, in any order, "m" (level, 10 by default), "n" (operations for each
            picture, 2), "p" (probability of each, 0.5), "mstd" (standard deviation of the level; above
            100, the level is uniform from 0 to "m"), "mmax" (highest level, 10), "inc1" (operations
            that grow with the level) and "t" (set of operations: "weights", "3a" or "3aw").
        hparams: timm's: translate_const, translate_pct, img_mean, interpolation, magnitude_std and
            magnitude_max. They win over the string.
        transforms: The operations, also as a dict with their weights, or the name of a set. It wins over
            "t".

    Raises:
        ValueError: for a string that timm does not know either.
    """
    if config_str.split("-")[0] != "rand":
        raise ValueError(f"{config_str!r} does not begin with 'rand'")
    options = dict(hparams or HPARAMS)
    found: dict[str, float] = {"m": LEVELS, "n": 2, "p": 0.5, "inc": 0}
    parts = config_str.split("-")
    names = [part[1:] for part in parts[1:] if part.startswith("t")]
    numeric = "-".join(part for part in parts if not part.startswith("t"))
    for name, value in sections(numeric, _PARTS):
        if name == "mstd":
            options.setdefault("magnitude_std", math.inf if value > 100 else value)
        elif name == "mmax":
            options.setdefault("magnitude_max", value)
        else:
            found[name] = value
    if transforms is None and names:
        transforms = names[0]
    if transforms is None or isinstance(transforms, str):
        transforms = _SETS.get(transforms or "", _INCREASING if found["inc"] else _PLAIN)
    weights = None
    if isinstance(transforms, Mapping):
        shares = np.array(list(transforms.values()))
        weights = (shares / np.sum(shares)).tolist()
    ops = [AugmentOp.of(name, found["p"], found["m"], options) for name in transforms or _PLAIN]
    return RandAugment(ops, int(found["n"]), weights)
