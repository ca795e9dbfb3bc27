"""Recognises a loader's collate_fn: what it makes of samples, if it is known."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch.utils.data import default_collate
from torch.utils.data._utils import collate as torch_collate
from torch.utils.data._utils.collate import default_collate_fn_map

from fastloader._core.batch.augmentation import Mixing
from fastloader._core.batch.layout import Layout
from fastloader._core.machine import identity
from fastloader._core.order.loader import Loader, collation_of
from fastloader._core.sources.arguments import check_batches
from fastloader._core.sources.names import named
from fastloader.errors import NotNative
from fastloader.transforms import CutMix, MixUp, RandomChoice
from fastloader.transforms.tensors import Rolled


def check_collation(loader: Loader) -> None:
    """Raises NotNative unless default_collate makes the batches and the user's own code does not run in
    workers."""
    check_batches(loader)
    collate_fn = collation_of(loader)
    if collate_fn is not default_collate:
        raise NotNative(_refusal(collate_fn))
    check_default_collate()


def container(collate_fn: Any) -> type:
    """Returns the type of the container that ``collate_fn`` puts a batch of pictures and classes into.

    Raises:
        NotNative: if ``collate_fn`` is not known.
    """
    check_default_collate()  # which the others call
    if collate_fn is default_collate:
        return list
    for home in _FAST_COLLATES:
        changed = identity.function_change(collate_fn, home, "fast_collate")
        if changed:
            raise NotNative(changed)
        if changed is not None:
            return tuple
    if _is_timms(collate_fn) or mixing_of(collate_fn) is not None:
        return tuple
    raise NotNative(_refusal(collate_fn))


def check_default_collate() -> None:
    """Raises NotNative unless default_collate does what torch's source says to tensors, arrays, numbers
    and text: its map may have been changed, or extended by kinds that these are of."""
    for name in ("default_collate", "collate"):
        if changed := _not_torchs(identity.found(_COLLATE, name), name):
            raise NotNative(f"default_collate was replaced by {changed}")
    for kinds, name in OF_TORCH.items():
        if changed := _not_torchs(default_collate_fn_map.get(kinds), name):
            raise NotNative(f"default_collate_fn_map has {changed} for {_names(kinds)}")
    for kinds, function in default_collate_fn_map.items():
        if kinds not in OF_TORCH and any(_may_be(each) for each in _kinds_in(kinds)):
            raise NotNative(
                f"default_collate_fn_map was extended by {_names(kinds)}: {identity.true_name(function)}"
            )


def default_collate_change() -> str:
    """Explains why default_collate does not do what torch's source says; empty if it does. This is asked
    for every batch, so an answer is kept for as long as its functions are the same ones with the same
    code."""
    global _answer
    home = vars(torch_collate)
    functions = [home.get("default_collate"), home.get("collate"), *default_collate_fn_map.values()]
    looked_at = [*functions, *default_collate_fn_map]
    looked_at += [getattr(each, name, None) for name in _IN_FUNCTIONS for each in functions]
    before, change = _answer
    if len(before) == len(looked_at) and all(map(operator.is_, before, looked_at)):
        return change
    try:
        check_default_collate()
        change = ""
    except NotNative as refusal:
        change = str(refusal)
    _answer = looked_at, change
    return change


_IN_FUNCTIONS = ("__code__", "__defaults__", "__kwdefaults__")
# What `default_collate_change` has looked at last, and its answer.
_answer: tuple[list[Any], str] = [], ""


def other_kinds() -> list[Any]:
    """Lists the kinds for which torch's map of functions has one that is not torch's own."""
    return [kinds for kinds in default_collate_fn_map if kinds not in OF_TORCH]


def _not_torchs(function: Any, name: str) -> str:
    """Returns the true name of a function that is neither torch's of this name nor ours that does the
    same; empty for these."""
    changed = identity.function_change(function, _COLLATE, name)
    if changed is None and name == "collate_tensor_fn":
        found = (identity.function_change(function, *each) for each in _IN_WORKERS)
        changed = next((each for each in found if each is not None), None)
    return identity.true_name(function) if changed is None else changed


def _kinds_in(kinds: Any) -> tuple[type, ...]:
    return kinds if isinstance(kinds, tuple) else (kinds,)


def _names(kinds: Any) -> str:
    return " and ".join(each.__qualname__ for each in _kinds_in(kinds))


def _may_be(kind: type) -> bool:
    """Returns whether something in a sample may be of this kind."""
    return any(issubclass(kind, each) or issubclass(each, kind) for each in _IN_SAMPLES)


def _refusal(collate_fn: Any) -> str:
    return str(collate_fn) if type(collate_fn) is Layout else f"collate_fn is {named(collate_fn)}"


_COLLATE = "torch.utils.data._utils.collate"
# What stacks tensors in the place of torch's function, in a worker process and in an actor.
_IN_WORKERS = (
    ("fastloader._core.sources.python.shared_slots", "_collate_tensors"),
    ("fastloader._core.sources.remote.actor", "_stacked"),
)
# Which of torch's functions collates what.
OF_TORCH: dict[Any, str] = {
    torch.Tensor: "collate_tensor_fn",
    np.ndarray: "collate_numpy_array_fn",
    (np.bool_, np.number, np.object_): "collate_numpy_scalar_fn",
    float: "collate_float_fn",
    int: "collate_int_fn",
    str: "collate_str_fn",
    bytes: "collate_str_fn",
}
_IN_SAMPLES = (torch.Tensor, np.ndarray, np.generic, float, int, str, bytes, tuple, list, dict)
_FAST_COLLATES = ("fastloader.compat.timm.mixup", "timm.data.loader")


def mixing_of(collate_fn: Any) -> Mixing | Rolled | None:
    """Returns the mixing that ``collate_fn`` does to the batches that it collates; None for nothing.

    Raises:
        NotNative: for one that is known and cannot be read.
    """
    if type(collate_fn) in (MixUp, CutMix):
        return _as_rolled([collate_fn], [1.0])
    if type(collate_fn) is RandomChoice:
        _check_methods(collate_fn)
        return _as_rolled(collate_fn.transforms, collate_fn.p)
    if not _is_timms(collate_fn):
        return None
    _check_methods(collate_fn)
    if isinstance(collate_fn, Mixing):  # ours, which only collates where a PrefetchLoader mixes
        return None if getattr(collate_fn, "in_kernel", False) else collate_fn
    try:
        return Mixing(
            collate_fn.mixup_alpha,
            collate_fn.cutmix_alpha,
            collate_fn.cutmix_minmax,
            collate_fn.mix_prob,
            collate_fn.switch_prob,
            collate_fn.mode,
            collate_fn.correct_lam,
            collate_fn.label_smoothing,
            collate_fn.num_classes,
            collate_fn.multi_label,
            before_normalize=True,
            enabled=bool(collate_fn.mixup_enabled),
        )
    except (AttributeError, TypeError, ValueError) as error:
        raise NotNative(f"collate_fn is a FastCollateMixup: {error}") from None


def _as_rolled(steps: Sequence[Any], weights: Sequence[float]) -> Rolled:
    if any(type(step) not in (MixUp, CutMix) for step in steps):
        raise NotNative("collate_fn is a RandomChoice of something else than MixUp and CutMix")
    for step in steps:
        _check_methods(step)
    classes = {step.num_classes for step in steps}
    if len(classes) != 1 or None in classes:
        raise NotNative(f"collate_fn mixes targets of {classes} classes; one number is native")
    kinds = tuple(step.rolled.kinds[0] for step in steps)
    return Rolled(kinds, tuple(weights), classes.pop())


def _check_methods(step: Any) -> None:
    """Raises NotNative for an object with a method of its own, or one that was replaced."""
    if changed := identity.change(type(step), type(step)):
        raise NotNative(changed)
    for name in vars(step):
        if callable(getattr(type(step), name, None)):
            raise NotNative(f"collate_fn has a {name} of its own")


def _is_timms(collate_fn: Any) -> bool:
    homes = ("fastloader.compat.timm.mixup", "timm.data.mixup")
    return identity.is_a(collate_fn, *[(home, "FastCollateMixup") for home in homes])
