"""Our transform of the same meaning as a step of torchvision's or timm's.

`kinds.py` says which class a step is of, and nothing of torchvision or timm is imported.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch

from fastloader import transforms
from fastloader.errors import NotNative
from fastloader.transforms._reader.kinds import (
    HOLDERS,
    KNOWN,
    check_unchanged,
    home_of,
    is_ours,
)
from fastloader.transforms.steps.transform import RecipeTransform, shown, step_of

Children = list[RecipeTransform]

# The steps that hold others, by their names in both versions of torchvision.
_HOLDERS: dict[str, Callable[[Any, Children], RecipeTransform]] = {
    "Compose": lambda step, children: transforms.Compose(children),
    "RandomApply": lambda step, children: transforms.RandomApply(children, step.p),
    "RandomChoice": lambda step, children: transforms.RandomChoice(children, step.p),
    "RandomOrder": lambda step, children: transforms.RandomOrder(children),
}
# A size to try a step with, which nothing depends on.
_SOME_SIZE = (64, 64)


def counterpart(step: Any) -> RecipeTransform:
    """Our transform that does the same to a Pillow picture of mode RGB as ``step``, with the same
    distribution. A transform of ours is its own, but what it holds is read.

    Raises:
        NotNative: which names the step, for a class that is not known and for attributes that mean
            something else.
    """
    check_unchanged(step)
    if is_ours(step) and isinstance(step, RecipeTransform):
        return _with_counterparts(step)
    home = home_of(step)
    make = KNOWN.get(home)
    if make is None and home not in HOLDERS:
        raise NotNative(f"{shown(step)} is not a native transform")
    try:
        if make is None:
            made = _HOLDERS[HOLDERS[home]](step, _children(step))
        else:
            made = make(step)
    except (AttributeError, KeyError, OverflowError, TypeError, ValueError) as error:
        raise NotNative(f"{shown(step)}: {error}") from None
    if isinstance(made, transforms.Grayscale):
        return made  # which may change the channels: the chain looks after that
    try:
        step_of(made, _SOME_SIZE)
    except NotNative as error:
        raise NotNative(f"{shown(step)}: {error}") from None
    return made


def _with_counterparts(step: RecipeTransform) -> RecipeTransform:
    if home_of(step)[1] not in _HOLDERS:
        return step
    made: Any = copy.copy(step)
    made.transforms = _children(step)
    return made


def _children(step: Any) -> Children:
    held = step.transforms
    if type(held) not in (list, tuple, torch.nn.ModuleList):
        raise NotNative(f"{shown(step)} holds a {type(held).__name__}, which may do anything")
    return [counterpart(each) for each in held]
