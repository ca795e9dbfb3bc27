"""What a loader's collate_fn makes of samples, if it is known."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch.utils.data import default_collate

from fastloader._core.batch.augmentation.mixing import Mixing
from fastloader._core.order.loader import Loader
from fastloader._core.sources.arguments import check_batches
from fastloader._core.sources.names import is_class, named
from fastloader.errors import NotNative
from fastloader.transforms import CutMix, MixUp, RandomChoice
from fastloader.transforms.steps.tensors.rolled import Rolled


def check_collation(loader: Loader) -> None:
    """Raises NotNative unless default_collate makes the batches and the user's own code does not run in
    workers."""
    check_batches(loader)
    if loader.collate_fn is not default_collate:
        raise NotNative(f"collate_fn is {named(loader.collate_fn)}")


def container(collate_fn: Any) -> type:
    """The type of the container that ``collate_fn`` puts a batch of pictures and classes into.

    Raises:
        NotNative: if ``collate_fn`` is not known.
    """
    if collate_fn is default_collate:
        return list
    name = (getattr(collate_fn, "__module__", ""), getattr(collate_fn, "__qualname__", ""))
    if name in _FAST_COLLATES:
        return tuple
    if _is_timms(collate_fn) or mixing_of(collate_fn) is not None:
        return tuple
    raise NotNative(f"collate_fn is {named(collate_fn)}")


def mixing_of(collate_fn: Any) -> Mixing | Rolled | None:
    """What ``collate_fn`` mixes in the batches that it collates; None for nothing.

    Raises:
        NotNative: for one that is known and cannot be read.
    """
    if type(collate_fn) in (MixUp, CutMix):
        return _as_rolled([collate_fn], [1.0])
    if type(collate_fn) is RandomChoice:
        return _as_rolled(collate_fn.transforms, collate_fn.p)
    if not _is_timms(collate_fn):
        return None
    if isinstance(collate_fn, Mixing):  # ours, which only collates where a PrefetchLoader mixes
        return None if getattr(collate_fn, "in_kernel", False) else collate_fn
    _check_methods(collate_fn)
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
    """Raises NotNative for an object with a method of its own."""
    for name in vars(step):
        if callable(getattr(type(step), name, None)):
            raise NotNative(f"collate_fn has a {name} of its own")


def _is_timms(collate_fn: Any) -> bool:
    homes = ("fastloader.compat.timm.mixup", "timm.data.mixup")
    return any(is_class(type(collate_fn), home, "FastCollateMixup") for home in homes)


_FAST_COLLATES = (
    ("fastloader.compat.timm.collate", "fast_collate"),
    ("timm.data.loader", "fast_collate"),
)
