"""Tells which step a step is: one of torchvision's, of timm's or of ours, or none that is known."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from fastloader import transforms
from fastloader._core.machine import identity
from fastloader.errors import NotNative
from fastloader.transforms._reader import timm, torchvision
from fastloader.transforms._recipe import operations
from fastloader.transforms.timm import AugmentOp
from fastloader.transforms.transform import RecipeTransform, shown

KNOWN: dict[tuple[str, str], Callable[[Any], RecipeTransform]] = {
    **torchvision.KNOWN,
    **timm.KNOWN,
}
# The steps that hold others.
HOLDERS = {
    (home, name): name
    for home in ("torchvision.transforms.transforms", "torchvision.transforms.v2._container")
    for name in ("Compose", "RandomApply", "RandomChoice", "RandomOrder")
}
_V1, _V2, _TIMM = "torchvision.transforms.transforms", torchvision.V2, "timm.data.transforms"
# The steps that convert to tensors, and those that stand behind these, with the names that they get
# here: some of timm's do something else than torchvision's of the same name.
CONVERSIONS = {
    (_V1, "ConvertImageDtype"): "ConvertImageDtype",
    (_V1, "Normalize"): "Normalize",
    (_V1, "PILToTensor"): "PILToTensor",
    (_V1, "RandomErasing"): "RandomErasing",
    (_V1, "ToTensor"): "ToTensor",
    (_V2 + "_augment", "RandomErasing"): "RandomErasing",
    (_V2 + "_color", "RGB"): "RGB",
    (_V2 + "_deprecated", "ToTensor"): "ToTensor",
    (_V2 + "_misc", "ConvertImageDtype"): "ConvertImageDtype",
    (_V2 + "_misc", "Normalize"): "Normalize",
    (_V2 + "_misc", "ToDtype"): "ToDtype",
    (_V2 + "_type_conversion", "PILToTensor"): "PILToTensor",
    (_V2 + "_type_conversion", "ToImage"): "ToImage",
    (_V2 + "_type_conversion", "ToPureTensor"): "ToPureTensor",
    (_TIMM, "MaybePILToTensor"): "timm MaybePILToTensor",
    (_TIMM, "MaybeToTensor"): "timm MaybeToTensor",
    (_TIMM, "ToTensor"): "timm ToTensor",
}
_OURS = {**vars(transforms), **{f"timm {kind.__qualname__}": kind for kind in timm.OURS}}
OURS = {
    (kind.__module__, kind.__qualname__): name
    for name, kind in _OURS.items()
    if isinstance(kind, type)
}
_STEPS = identity.Rows[Any]({**KNOWN, **HOLDERS, **CONVERSIONS, **OURS})


def known_class(step: Any) -> type | None:
    """Returns the known class that a step is of, or derives from."""
    return _STEPS.known(type(step))


def is_read(value: Any) -> bool:
    """Returns whether a part of a transform is one whose attributes are read."""
    inner = ("timm.data.auto_augment", "AugmentOp"), ("torch.nn.modules.container", "ModuleList")
    return (
        known_class(value) is not None or type(value) is AugmentOp or identity.is_a(value, *inner)
    )


def own_classes(step: Any) -> list[type]:
    """Lists the classes of a step that are not those of the known class that it derives from."""
    known = known_class(step)
    bases = () if known is None else known.__mro__
    return [] if known is type(step) else [each for each in type(step).__mro__ if each not in bases]


def home_of(step: Any) -> tuple[str, str]:
    """Returns the module and the name of a step's known class; ("", "") for none."""
    known = known_class(step)
    return ("", "") if known is None else (known.__module__, known.__qualname__)


def kind_of(step: Any) -> str:
    """Returns the name of a step that converts or stands behind the conversion, of RGB and of Compose.
    It is empty for any other step, and for one that does something else than the source of its class."""
    try:
        _check_class(step)
    except NotNative:
        return ""
    return kind_of_class(step)


def kind_of_class(step: Any) -> str:
    """Returns the same name by the class alone, whatever is done to the class or the step."""
    home = home_of(step)
    return CONVERSIONS.get(home) or HOLDERS.get(home) or OURS.get(home) or ""


def is_ours(step: Any) -> bool:
    """Returns whether a step is one of fastloader.transforms."""
    if home_of(step) not in OURS:
        return False
    known = known_class(step)
    return known is type(step) or known is None or not identity.change(type(step), known)


def check_unchanged(step: Any) -> None:
    """Raises NotNative for an object that does something else to a picture than the source of its class
    says."""
    _check_class(step)
    # A step of ours does what Pillow does.
    if is_ours(step) and (changed := identity.modules_change(operations.__name__)):
        raise NotNative(f"{shown(step)}: {changed}")


def _check_class(step: Any) -> None:
    """Raises NotNative for an object with methods that are not those of the source of its class."""
    known = known_class(step)
    if known is not None and (changed := identity.change(type(step), known)):
        raise NotNative(f"{shown(step)}: {changed}")
    _check_object(step)


def _check_object(step: Any) -> None:
    """Raises NotNative for an object with hooks, or with methods of its own."""
    check_hooks(step)
    if known_class(step) is None:
        return
    for name in getattr(step, "__dict__", ()):
        # What the class has, such as a method or v2's _AUGMENTATION_SPACE. Torch's modules may set
        # values of theirs on any object.
        inherited = getattr(type(step), name, None)
        if inherited is not None and (callable(inherited) or not hasattr(torch.nn.Module, name)):
            raise NotNative(f"{shown(step)} has a {name} of its own")


def flat_steps(transform: Any) -> list[Any]:
    """Lists the steps of a transform, with those of chains within chains, whether classes were patched
    or not: for the Python path, which calls the patched classes itself."""
    known: Any = known_class(transform)
    if home_of(transform)[1] != "Compose" or type(transform) is not known:
        return [transform]
    try:
        _check_object(transform)
    except NotNative:
        return [transform]
    return [step for each in transform.transforms for step in flat_steps(each)]


_MODULE = "torch.nn.modules.module"
_GLOBAL_HOOKS = ("_global_forward_hooks", "_global_forward_pre_hooks")


def global_hooks() -> tuple[Any, ...]:
    """Returns the numbers of the hooks that all modules of torch have."""
    hooks = (identity.found(_MODULE, name) for name in _GLOBAL_HOOKS)
    return tuple(tuple(each or ()) for each in hooks)


def check_hooks(step: Any) -> None:
    """Raises NotNative for a module of torch that runs functions of the user's as well."""
    if not isinstance(step, torch.nn.Module):
        return
    if step._forward_hooks or step._forward_pre_hooks or step._compiled_call_impl is not None:
        raise NotNative(f"{shown(step)} has hooks")
    if any(identity.found(_MODULE, name) for name in _GLOBAL_HOOKS):
        raise NotNative(f"{shown(step)}: all modules of torch have hooks")
