"""Arguments of a loader that a source may have to refuse, so that Python makes the batches.

Each function raises NotNative, with the reason in words.
"""

from __future__ import annotations

from torch.utils.data._utils.fetch import _MapDatasetFetcher

from fastloader._core.machine import extension
from fastloader._core.machine.identity import function_change, said
from fastloader._core.order.loader import Loader
from fastloader._core.sources.names import named
from fastloader._core.sources.seeding import only_seeds
from fastloader.errors import NotNative


def check_native(loader: Loader) -> None:
    """For a source that makes batches without the dataset's own code."""
    if not loader.native:
        raise NotNative("native=False")


def check_extension() -> None:
    """For a source that needs the native module."""
    if extension.load() is None:
        raise NotNative("the native module is not in use")


NO_LIBJPEG = (
    "this build has no libjpeg-turbo, which makes a picture of a JPEG that ends early. Install its "
    "headers (Debian: libjpeg62-turbo-dev, Ubuntu: libjpeg-turbo8-dev, Fedora: libjpeg-turbo-devel) "
    "and fastloader again"
)


def check_truncated(loader: Loader) -> None:
    """For a source that decodes pictures."""
    if loader.truncated != "error" and extension.lacks_libjpeg():
        raise NotNative(NO_LIBJPEG)


def check_no_image_options(loader: Loader, reason: str) -> None:
    """For a source that decodes no pictures."""
    if (loader.on_error, loader.truncated, loader.decode) != ("raise", "error", "exact"):
        raise NotNative(reason)


def check_fetch() -> None:
    """Raises NotNative if somebody has replaced what asks a dataset for the samples of a batch."""
    fetch = _MapDatasetFetcher.fetch
    if function_change(fetch, _MapDatasetFetcher.__module__, "_MapDatasetFetcher.fetch") is None:
        raise NotNative(f"torch's _MapDatasetFetcher.fetch was replaced by {said(fetch)}")


def check_batches(loader: Loader) -> None:
    """For a source that makes batches of samples by their indices, without worker processes."""
    if loader._dataset_kind != 0:
        raise NotNative("the dataset is iterable")
    check_fetch()
    if loader.batch_size is None and loader.batch_sampler is None:
        raise NotNative("batch_size=None: samples are not collated")
    init = loader.worker_init_fn
    if init is not None and loader.num_workers and not only_seeds(init):
        raise NotNative(
            f"worker_init_fn is {named(init)}, which does more than to seed Python's, numpy's and "
            "torch's generators"
        )
