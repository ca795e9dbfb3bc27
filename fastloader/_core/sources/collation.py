"""What a loader's collate_fn makes of samples, if it is known."""

from __future__ import annotations

from typing import Any

from torch.utils.data import default_collate

from fastloader._core.order.loader import Loader
from fastloader._core.sources.arguments import check_batches
from fastloader._core.sources.names import is_class, named
from fastloader.errors import NotNative


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
    if is_class(type(collate_fn), "fastloader.compat.timm.mixup", "FastCollateMixup"):
        if collate_fn.in_kernel:
            return tuple
        raise NotNative("collate_fn is a FastCollateMixup outside of a PrefetchLoader")
    raise NotNative(f"collate_fn is {named(collate_fn)}")


_FAST_COLLATES = (
    ("fastloader.compat.timm.collate", "fast_collate"),
    ("timm.data.loader", "fast_collate"),
)
