"""Our transform of the same meaning as a step of torchvision's or timm's.

Only exact types are known, because a subclass may do anything. A class is known by its module and name,
so that nothing of torchvision or timm is imported.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch

from fastloader import transforms
from fastloader.errors import NotNative
from fastloader.transforms._reader import timm, torchvision
from fastloader.transforms.steps.transform import RecipeTransform, shown, step_of

Children = list[RecipeTransform]

KNOWN: dict[tuple[str, str], Callable[[Any], RecipeTransform]] = {
    **torchvision.KNOWN,
    **timm.KNOWN,
}
# The steps that hold others, by their names in both versions of torchvision.
_HOLDERS: dict[str, Callable[[Any, Children], RecipeTransform]] = {
    "Compose": lambda step, children: transforms.Compose(children),
    "RandomApply": lambda step, children: transforms.RandomApply(children, step.p),
    "RandomChoice": lambda step, children: transforms.RandomChoice(children, step.p),
    "RandomOrder": lambda step, children: transforms.RandomOrder(children),
}
_HOLDERS_HOMES = ("torchvision.transforms.transforms", "torchvision.transforms.v2._container")
# A size to try a step with, which nothing depends on.
_SOME_SIZE = (64, 64)


def is_ours(step: Any) -> bool:
    """Whether a step is one of fastloader.transforms."""
    return type(step).__module__.startswith("fastloader.transforms.steps.")


def counterpart(step: Any) -> RecipeTransform:
    """Our transform that does the same to a Pillow picture of mode RGB as ``step``, with the same
    distribution. A transform of ours is its own, but what it holds is read.

    Raises:
        NotNative: which names the step, for a class that is not known and for attributes that mean
            something else.
    """
    kind = type(step)
    holds = kind.__module__ in _HOLDERS_HOMES and kind.__qualname__ in _HOLDERS
    if is_ours(step) and isinstance(step, RecipeTransform):
        return _with_counterparts(step)
    make = KNOWN.get((kind.__module__, kind.__qualname__))
    if make is None and not holds:
        raise NotNative(f"{shown(step)} is not a native transform")
    check_unchanged(step)
    try:
        if make is None:
            made = _HOLDERS[kind.__qualname__](step, _children(step))
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
    if type(step).__name__ not in _HOLDERS:
        return step
    made: Any = copy.copy(step)
    made.transforms = _children(step)
    return made


def _children(step: Any) -> Children:
    held = step.transforms
    if type(held) not in (list, tuple, torch.nn.ModuleList):
        raise NotNative(f"{shown(step)} holds a {type(held).__name__}, which may do anything")
    return [counterpart(each) for each in held]


def check_unchanged(step: Any) -> None:
    """Raises NotNative for an object that does something else than its class."""
    check_hooks(step)
    for name in vars(step):
        # What the class has, such as a method or v2's _AUGMENTATION_SPACE. Torch's modules may set
        # values of theirs on any object.
        inherited = getattr(type(step), name, None)
        if inherited is not None and (callable(inherited) or not hasattr(torch.nn.Module, name)):
            raise NotNative(f"{shown(step)} has a {name} of its own")


def has_more(step: Any) -> bool:
    """Whether an object does something else than its class: by hooks, or a method of its own."""
    try:
        check_unchanged(step)
    except NotNative:
        return True
    return False


def check_hooks(step: Any) -> None:
    """Raises NotNative for a module of torch that runs functions of the user's as well."""
    if isinstance(step, torch.nn.Module) and (step._forward_hooks or step._forward_pre_hooks):
        raise NotNative(f"{shown(step)} has hooks")
