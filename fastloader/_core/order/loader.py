"""The loader as the layers below it see it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import torch

from fastloader._core.batch.augmentation import Augmentation
from fastloader.transforms._normalization import Normalization


class AutoWorkers(int):
    """The number that ``num_workers="auto"`` began with. Frameworks make a loader again from its
    attributes, and from this type the constructor knows that the user asked for "auto"."""


def auto_workers(loader: Loader) -> AutoWorkers | None:
    """The number that ``num_workers="auto"`` began with; None if the loader has another number. The
    runtime keeps it, because a subclass's property of the name may give a plain number."""
    begun = loader._runtime.auto_workers
    return begun if begun == loader.num_workers else None


class Services(Protocol):
    """What a loader's runtime gives to the layers below it."""

    @property
    def auto_workers(self) -> AutoWorkers | None: ...

    @property
    def position(self) -> Any: ...

    @property
    def statistics(self) -> Any: ...

    @property
    def normalization(self) -> Normalization | None: ...

    @property
    def augmentation(self) -> Augmentation | None: ...

    @property
    def delivers_as_made(self) -> bool: ...


class Loader(Protocol):
    """The attributes of a `FastLoader` that are read: torch's of a DataLoader, and our arguments."""

    dataset: Any
    num_workers: int
    prefetch_factor: int | None
    collate_fn: Any
    pin_memory: bool
    pin_memory_device: str
    timeout: Any
    worker_init_fn: Callable[[int], None] | None
    generator: torch.Generator | None
    persistent_workers: bool
    in_order: bool
    worker_backend: str
    worker_method: str
    ray_options: Any
    native: bool
    decode: str
    truncated: str
    on_error: str
    _dataset_kind: int
    _iterator: Any

    @property
    def _runtime(self) -> Services: ...

    @property
    def batch_size(self) -> int | None: ...

    @property
    def drop_last(self) -> bool: ...

    @property
    def multiprocessing_context(self) -> Any: ...

    @property
    def _auto_collation(self) -> bool: ...

    def __iter__(self) -> Any: ...

    def __len__(self) -> int: ...

    @property
    def sampler(self) -> Any: ...

    @property
    def batch_sampler(self) -> Any: ...

    @property
    def _index_sampler(self) -> Any: ...

    def _torch_iterator(self) -> Any: ...

    def check_worker_number_rationality(self) -> None: ...
