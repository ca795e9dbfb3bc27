"""timm's own transforms as ours, which the native path knows. timm is not imported: `kinds.py` says
which class a step is of."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

from fastloader._core.machine import identity
from fastloader.errors import NotNative
from fastloader.transforms import RandomResizedCrop
from fastloader.transforms._arguments import interpolation_name
from fastloader.transforms.timm import (
    AUGMENT_KINDS,
    LEVELS,
    AugmentOp,
    AugMixAugment,
    AutoAugment,
    CenterCropOrPad,
    Magnitude,
    RandAugment,
    RandomCropOrPad,
    RandomPad,
    ResizeKeepRatio,
    TrimBorder,
    colour,
    filters,
)
from fastloader.transforms.transform import RecipeTransform

# What timm's transforms become, that `fastloader.transforms` has not.
OURS = (
    AugMixAugment,
    AutoAugment,
    CenterCropOrPad,
    RandAugment,
    RandomCropOrPad,
    RandomPad,
    ResizeKeepRatio,
    TrimBorder,
)
_POLICIES = "timm.data.auto_augment"
_TRANSFORMS = "timm.data.transforms"


def _rand_augment(step: Any) -> RandAugment:
    weights = step.choice_weights
    if weights is not None:
        weights = [float(weight) for weight in weights]
        if abs(math.fsum(weights) - 1.0) > 1e-8:
            raise NotNative(f"RandAugment with weights that do not sum to 1: {weights}")
    return RandAugment([_augment_op(op) for op in step.ops], step.num_layers, weights)


def _auto_augment(step: Any) -> AutoAugment:
    return AutoAugment([[_augment_op(op) for op in ops] for ops in step.policy])


def _aug_mix(step: Any) -> AugMixAugment:
    ops = [_augment_op(op) for op in step.ops]
    return AugMixAugment(ops, step.alpha, step.width, step.depth, bool(step.blended))


def _augment_op(op: Any) -> AugmentOp:
    if not identity.is_a(op, (_POLICIES, "AugmentOp")) or "__call__" in vars(op):
        raise NotNative(f"{type(op).__name__} in a policy is no AugmentOp of timm")
    if changed := identity.change(type(op), type(op)):
        raise NotNative(changed)
    name = op.name
    wanted = AUGMENT_KINDS.get(name)
    found = _function(op.aug_fn), _function(op.level_fn)
    if wanted is None or found != ((wanted.function,), wanted.level):
        raise NotNative(f"the operation {name!r} does not do what timm's does")
    if set(op.kwargs) != {"fillcolor", "resample"}:
        raise NotNative(f"the operation {name!r} has the arguments {sorted(op.kwargs)}")
    return AugmentOp(
        name,
        float(op.prob),
        Magnitude(float(op.magnitude), float(op.magnitude_std), float(op.magnitude_max or LEVELS)),
        colour(op.kwargs["fillcolor"]),
        filters(op.kwargs["resample"]),
        op.hparams.get("translate_const"),
        op.hparams.get("translate_pct", 0.45),
    )


def _function(function: Any) -> Any:
    """Names a function of timm's policies, with the arguments that are bound to it. For any other
    function, returns its true name.

    Raises:
        NotNative: for one that does something else than its source says.
    """
    if function is None:
        return None
    inner, bound = function, {}
    if type(function) is functools.partial:
        inner, bound = function.func, function.keywords
    name = str(getattr(inner, "__name__", ""))
    changed = identity.function_change(inner, _POLICIES, name)
    if changed:
        raise NotNative(changed)
    return identity.true_name(inner) if changed is None else (name, *sorted(bound.items()))


def _interpolation(step: Any) -> Any:
    """Returns the interpolation of a step. "random" is a tuple of the two."""
    if not isinstance(step.interpolation, tuple | list):
        return step.interpolation
    names = [interpolation_name(each) for each in step.interpolation]
    if names != ["bilinear", "bicubic"]:
        raise NotNative(f"{type(step).__name__} with one of the interpolations {names}")
    return "random"


def _random_resized_crop(step: Any) -> RandomResizedCrop:
    return RandomResizedCrop(step.size, step.scale, step.ratio, _interpolation(step))


def _resize_keep_ratio(step: Any) -> ResizeKeepRatio:
    return ResizeKeepRatio(
        step.size,
        step.longest,
        _interpolation(step),
        step.random_scale_prob,
        step.random_scale_range,
        step.random_scale_area,
        step.random_aspect_prob,
        step.random_aspect_range,
    )


def _center_crop_or_pad(step: Any) -> CenterCropOrPad:
    return _checked(CenterCropOrPad(step.size, step.fill, step.padding_mode))


def _random_crop_or_pad(step: Any) -> RandomCropOrPad:
    return _checked(RandomCropOrPad(step.size, step.fill, step.padding_mode))


def _checked(step: Any) -> Any:
    step.step(None)  # which looks at the colour
    return step


KNOWN: dict[tuple[str, str], Callable[[Any], RecipeTransform]] = {
    (_POLICIES, "RandAugment"): _rand_augment,
    (_POLICIES, "AutoAugment"): _auto_augment,
    (_POLICIES, "AugMixAugment"): _aug_mix,
    (_TRANSFORMS, "RandomResizedCropAndInterpolation"): _random_resized_crop,
    (_TRANSFORMS, "ResizeKeepRatio"): _resize_keep_ratio,
    (_TRANSFORMS, "CenterCropOrPad"): _center_crop_or_pad,
    (_TRANSFORMS, "RandomCropOrPad"): _random_crop_or_pad,
    (_TRANSFORMS, "RandomPad"): lambda step: _checked(RandomPad(step.input_size, step.fill)),
    (_TRANSFORMS, "TrimBorder"): lambda step: TrimBorder(step.border_size),
}
