"""What a loader's collate_fn makes of samples, if it is known."""

from __future__ import annotations

import functools
from typing import Any

from torch.utils.data import default_collate

from fastloader._core.order.loader import Loader
from fastloader._core.sources.names import is_class, named
from fastloader.errors import NotNative


def check_collation(loader: Loader) -> None:
    """Raises NotNative unless default_collate makes the batches and the user's own code does not run in
    workers."""
    check_batches(loader)
    if loader.collate_fn is not default_collate:
        raise NotNative(f"collate_fn is {named(loader.collate_fn)}")


def check_batches(loader: Loader) -> None:
    if loader._dataset_kind != 0:
        raise NotNative("the dataset is iterable")
    if loader.batch_size is None and loader.batch_sampler is None:
        raise NotNative("batch_size=None: samples are not collated")
    init = loader.worker_init_fn
    if init is not None and not _only_seeds(init):
        raise NotNative(f"worker_init_fn is {named(init)}")


# The worker_init_fn of Lightning, under the names of both its packages, and of transformers' Trainer.
_SEEDING = (
    ("lightning.fabric.utilities.seed", "pl_worker_init_function"),
    ("lightning_fabric.utilities.seed", "pl_worker_init_function"),
    ("transformers.trainer_utils", "seed_worker"),
)


def _only_seeds(init: Any) -> bool:
    """Whether a worker_init_fn seeds the generators of a worker process and does nothing else. Without
    worker processes such a function has nothing to do."""
    if is_class(type(init), "fastloader.compat.timm.collate", "WorkerSeeding"):
        return bool(init.usual)
    while type(init) is functools.partial:
        init = init.func
    return (getattr(init, "__module__", ""), getattr(init, "__qualname__", "")) in _SEEDING


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
