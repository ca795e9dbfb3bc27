"""The arguments that `FastLoader` has and DataLoader does not."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.utils.data import IterDataPipe, MapDataPipe

from fastloader._core.delivery.path import DeliverySpec
from fastloader._core.machine.identity import said
from fastloader._core.machine.limits import own_threads
from fastloader._core.order.loader import AutoWorkers, Loader
from fastloader._core.runtime.python_path_warning import why_no_source
from fastloader._core.sources.arrays import holds_arrays
from fastloader._core.sources.recognize import holds_images
from fastloader._core.sources.remote.cluster import check_ray_options

# torch's names for our worker_backend (pytorch#161044).
_METHODS = {"process": "multiprocessing", "thread": "thread", "ray": "ray"}
_BACKENDS = {method: backend for backend, method in _METHODS.items()}

# The constructor has used these; later values would have no effect.
_OF_DELIVERY = ("device", "mean", "std", "dtype", "channels_last", "image_key", "depth")
FIXED = frozenset([*_OF_DELIVERY, "on_error", "max_errors", "distributed"])


@dataclasses.dataclass
class LoaderOptions:
    """The arguments as given; only ``worker_backend`` and ``worker_method``, two names of one thing,
    agree. Raises TypeError and ValueError for what cannot work; `delivery_spec` and the runtime check
    the rest."""

    device: str | int | torch.device | None
    mean: Sequence[float] | None
    std: Sequence[float] | None
    dtype: torch.dtype | None
    channels_last: bool
    image_key: int | str | None
    depth: int | str | None
    native: bool
    decode: str
    truncated: str
    on_error: str
    max_errors: int | float | None
    distributed: str | None
    worker_backend: str
    worker_method: str | None
    ray_options: Mapping[str, Any] | None

    def __post_init__(self) -> None:
        backend, method = self.worker_backend, self.worker_method
        if backend not in _METHODS:
            raise ValueError(f"worker_backend={backend!r}: use 'process' or 'thread', or 'ray'")
        if method is not None:
            if method not in _BACKENDS:
                raise ValueError(f"worker_method={method!r}: use 'multiprocessing' or 'thread'")
            if backend != "process" and method != _METHODS[backend]:
                raise ValueError(
                    f"worker_backend={backend!r} and worker_method={method!r}: give one of the two"
                )
        self.worker_method = method or _METHODS[backend]
        self.worker_backend = _BACKENDS[self.worker_method]
        if not isinstance(self.native, bool):
            raise TypeError(f"native must be a bool, got {self.native!r}")
        if self.decode not in ("exact", "whole", "fast"):
            raise ValueError(f"decode={self.decode!r}: use 'exact', 'whole' or 'fast'")
        if self.truncated not in ("error", "pad"):
            raise ValueError(f"truncated={self.truncated!r}: use 'error' or 'pad'")

    @staticmethod
    def check_generator(generator: Any) -> None:
        """Raises TypeError for what draws nothing: DataLoader fails at the first epoch, elsewhere."""
        if generator is not None and not isinstance(generator, torch.Generator):
            raise TypeError(
                f"generator={generator!r}: use a torch.Generator, such as "
                "torch.Generator().manual_seed(42)"
            )

    def check_workers(self, dataset: Any, workers: Any, multiprocessing_context: Any) -> None:
        """Raises ValueError for what worker threads or actors cannot serve, and TypeError for a number
        of workers that is no whole number."""
        if workers != "auto" and not hasattr(workers, "__index__"):
            raise TypeError(f"num_workers={workers!r}: use a whole number or 'auto'")
        if self.worker_backend == "ray":
            self._check_actors(workers)
        elif self.ray_options is not None:
            raise ValueError("ray_options are for worker_backend='ray'")
        if self.worker_backend == "process":
            return
        if multiprocessing_context is not None:
            raise ValueError("multiprocessing_context is for worker_backend='process'")
        if isinstance(dataset, IterDataPipe | MapDataPipe):
            why = "threads would share the state of a DataPipe"
            if self.worker_backend == "ray":
                why = "a DataPipe is for worker processes"
            raise ValueError(f"worker_backend={self.worker_backend!r}: {why}")

    def _check_actors(self, workers: Any) -> None:
        if workers == "auto" or isinstance(workers, AutoWorkers):
            raise ValueError(
                "worker_backend='ray' and num_workers='auto', which is the number of this machine's "
                "processors: say how many actors there are to be"
            )
        if workers == 0:
            raise ValueError(
                "worker_backend='ray' and num_workers=0: say how many actors there are to be"
            )
        check_ray_options(self.ray_options)

    def delivery_spec(self) -> DeliverySpec:
        return DeliverySpec(*(getattr(self, name) for name in _OF_DELIVERY))


def workers_to_begin_with(asked: Any) -> Any:
    """The argument ``num_workers``, where "auto" has become an `AutoWorkers`."""
    auto = asked == "auto" or isinstance(asked, AutoWorkers)
    return AutoWorkers(own_threads()) if auto else asked


def assignments(loader: Loader, name: str, value: Any) -> dict[str, Any]:
    """The attributes that ``setattr(loader, name, value)`` sets. Raises ValueError for one that is
    fixed when the loader is made."""
    made = "_iterator" in vars(loader)  # torch's constructor sets it last
    if made and name in FIXED and not _is_free(loader, name):
        raise ValueError(
            f"{name} attribute should not be set after {type(loader).__name__} is initialized"
        )
    if made and name == "num_workers":
        value = workers_to_begin_with(value)
        if isinstance(value, str):
            raise TypeError(f"num_workers={value!r}: use a whole number or 'auto'")
    assigned = {name: value}
    if name == "worker_backend" and value in _METHODS:
        assigned["worker_method"] = _METHODS[value]
    if name == "worker_method" and value in _BACKENDS:
        assigned["worker_backend"] = _BACKENDS[value]
    return assigned


def _is_free(loader: Loader, name: str) -> bool:
    """Whether an attribute of this name may be the subclass's own: a loader that delivers nothing is a
    plain DataLoader. It may not where frameworks, which make the loader again of its attributes, would
    take it for the argument of FastLoader's constructor."""
    own = not said(type(loader).__init__).startswith("fastloader.")
    return own and loader._runtime.delivery.is_plain and name in _OF_DELIVERY


def refused_options(loader: Loader, reason: str) -> str:
    """The arguments that only pictures for the decode threads know, and why there are none; empty if
        there are no such arguments. A dataset that nobody knows may give `EncodedImage`s, which its
    batches show.
        Raises:
            ValueError: for the arguments, if the dataset is known.
    """
    asked = [
        f"{name}={value!r}"
        for name, value, usual in (
            ("decode", loader.decode, "exact"),
            ("truncated", loader.truncated, "error"),
            ("on_error", loader.on_error, "raise"),
        )
        if value != usual
    ]
    if not asked:
        return ""
    text = (
        f"{' and '.join(asked)}: for pictures on the native path, and this dataset takes the Python "
        f"path: {reason}"
    )
    known = holds_images(loader.dataset) or holds_arrays(loader.dataset)
    if known or reason != why_no_source(loader):  # by a source that knows the dataset
        raise ValueError(text)
    return text
