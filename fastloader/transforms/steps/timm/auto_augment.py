"""timm's AutoAugment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fastloader.transforms._recipe.operations import Size
from fastloader.transforms._recipe.recipe import Step, choice, together
from fastloader.transforms.steps.timm.augment_op import HPARAMS, AugmentOp
from fastloader.transforms.steps.timm.config import sections
from fastloader.transforms.steps.timm.policies import POLICIES
from fastloader.transforms.steps.transform import RecipeTransform


class AutoAugment(RecipeTransform):
    """Takes one of the lists of operations for each picture, and does those one after the other."""

    def __init__(self, policy: Sequence[Sequence[AugmentOp]]) -> None:
        self.policy = [list(ops) for ops in policy]
        self._step = choice(*(together(*(op.step for op in ops)) for ops in self.policy))

    def step(self, size: Size | None) -> Step:
        return self._step

    def __repr__(self) -> str:
        return f"AutoAugment(policy={self.policy})"


def auto_augment_transform(
    config_str: str, hparams: Mapping[str, Any] | None = None
) -> AutoAugment:
    """Makes an `AutoAugment` from a string such as "original-mstd0.5", as timm's function does.

    Args:
        config_str: The policy, which is "original", "originalr", "v0", "v0r" or "3a". "mstd" may follow,
            the standard deviation of the levels.
        hparams: timm's: translate_const, translate_pct, img_mean, interpolation, magnitude_std and
            magnitude_max. They win over the string.

    Raises:
        ValueError: for a string that timm does not know either.
    """
    name = config_str.split("-")[0]
    if name not in POLICIES:
        raise ValueError(f"{config_str!r}: unknown policy; use one of {', '.join(POLICIES)}")
    options = dict(hparams or HPARAMS)
    for _mstd, deviation in sections(config_str, {"mstd": float}):
        options.setdefault("magnitude_std", deviation)
    return AutoAugment(
        [[AugmentOp.of(*entry, hparams=options) for entry in pair] for pair in POLICIES[name]]
    )
