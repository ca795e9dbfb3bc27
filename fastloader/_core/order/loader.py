"""The loader as the layers below it see it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import torch
from torch.utils.data import DataLoader

from fastloader._core.batch.augmentation import Augmentation
from fastloader._core.batch.layout import Layout
from fastloader._core.machine.limits import decode_threads, own_threads
from fastloader.transforms._normalization import Normalization


class AutoWorkers(int):
    """The number that ``num_workers="auto"`` began with. Frameworks make a loader again from its
    attributes, and from this type the constructor knows that the user asked for "auto"."""


def auto_workers(loader: Loader) -> AutoWorkers | None:
    """Returns the number that ``num_workers="auto"`` began with; None if the loader has another number.
    The runtime keeps it, because a subclass's property of the name may give a plain number."""
    begun: AutoWorkers | None = loader._runtime.auto_workers
    return begun if begun == loader.num_workers else None


class Services(Protocol):
    """The runtime's services to the layers below the loader."""

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
    def layout(self) -> Layout | None: ...

    @property
    def delivers_as_made(self) -> bool: ...

    def drop_ended_workers(self, loader: Loader) -> None: ...


class WorkerMethod(str):
    """The ``worker_method`` that follows from a loader's ``worker_backend``. Frameworks make a loader
    again from its attributes, and from this type the constructor knows that no user wrote it."""


class OwnArguments:
    """Lists the arguments that `FastLoader` has and DataLoader does not. A loader has each as an
    attribute of the same name, because frameworks rebuild loaders from constructor arguments.

    A new one also stands in the signature of `FastLoader` and its docstring, and in docs/reference.md.
    `LoaderOptions` checks it, or what uses it does, and it is either read off the loader when an epoch
    begins or one of `options.FIXED` (tests/python/project/test_own_arguments.py).
    """

    device: str | int | torch.device | None
    mean: Sequence[float] | None
    std: Sequence[float] | None
    dtype: torch.dtype | None
    channels_last: bool
    image_key: int | str | Sequence[int | str] | None
    batch: str
    pad_to: int
    pad_value: float
    depth: int | str | None
    native: bool | str
    decode: str
    truncated: str
    on_error: str
    max_errors: int | float | None
    distributed: str | None
    worker_backend: str
    worker_method: str
    ray_options: Mapping[str, Any] | None


class Loader(DataLoader[Any], OwnArguments):
    """The base class of `FastLoader`, which the layers below import in its place."""

    _runtime: Services

    def _torch_iterator(self) -> Iterator[Any]:
        self._runtime.drop_ended_workers(self)
        return super().__iter__()


def collation_of(loader: Loader) -> Callable[[Any], Any]:
    """Returns what collates the loader's samples: its collate_fn, or the layout that it asks for."""
    collate_fn: Callable[[Any], Any] = loader.collate_fn
    return loader._runtime.layout or collate_fn


def decode_threads_beside(loader: Loader) -> int:
    """Returns how many threads decode in each process that makes the loader's samples: its share of the
    processors in a worker process, one for each of its processors in a Ray actor, and as many as there
    are workers where these are threads."""
    workers, backend = loader.num_workers, loader.worker_backend
    if workers and backend == "process":
        return max(1, own_threads() // workers)
    if workers and backend == "ray":
        return max(1, int((loader.ray_options or {}).get("num_cpus") or 1))
    return decode_threads(workers)
