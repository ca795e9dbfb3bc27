"""Arguments of a loader that a source may have to refuse, so that Python makes the batches.

Each function raises NotNative, with the reason in words.
"""

from __future__ import annotations

from fastloader._core.machine import extension
from fastloader._core.machine.identity import methods_change
from fastloader._core.order.loader import Loader
from fastloader._core.sources.names import named
from fastloader._core.sources.seeding import only_seeds
from fastloader.errors import NotNative


def check_native(loader: Loader) -> None:
    """Raises NotNative with native=False, for a source that makes batches without the dataset's own
    code."""
    if not loader.native:
        raise NotNative("native=False")


REQUIRE = "require"  # the value of `native` with which Python's batches are an error


def requires_native(loader: Loader) -> bool:
    """Returns whether batches that Python makes are an error."""
    return loader.native == REQUIRE


def check_extension() -> None:
    """Raises NotNative without the native module, for a source that needs it."""
    if extension.load() is None:
        raise NotNative("the native module is not in use")


NO_LIBJPEG = (
    "this build has no libjpeg-turbo, which makes a picture of a JPEG that ends early. Install its "
    "headers (Debian: libjpeg62-turbo-dev, Ubuntu: libjpeg-turbo8-dev, Fedora: libjpeg-turbo-devel) "
    "and fastloader again"
)


def check_truncated(loader: Loader) -> None:
    """Raises NotNative for a ``truncated`` that needs libjpeg, for a source that decodes pictures."""
    if loader.truncated != "error" and extension.lacks_libjpeg():
        raise NotNative(NO_LIBJPEG)


# What asks nothing of the threads that decode pictures.
_USUAL = {"decode": "exact", "truncated": "error", "on_error": "raise"}


def asked_of_pictures(loader: Loader) -> list[str]:
    """Returns, as ``name=value``, what the loader asks of the threads that decode pictures."""
    given = {name: getattr(loader, name) for name in _USUAL}
    return [f"{name}={value!r}" for name, value in given.items() if value != _USUAL[name]]


def check_no_image_options(loader: Loader, reason: str) -> None:
    """Raises NotNative if the loader has options for decoding, for a source that decodes no pictures."""
    if asked_of_pictures(loader):
        raise NotNative(reason)


# What asks a dataset for the samples of a batch: classes of torch's, and those of their methods that say
# which samples these are.
_LOADER = "torch.utils.data.dataloader"
_FETCHING = (
    ("torch.utils.data._utils.fetch", "_MapDatasetFetcher", "__init__", "fetch"),
    (_LOADER, "_DatasetKind", "create_fetcher"),
    (_LOADER, "_SingleProcessDataLoaderIter", "__iter__", "__next__", "_next_data", "_next_index"),
    (
        _LOADER,
        "_MultiProcessingDataLoaderIter",
        "__iter__",
        "__next__",
        "_next_data",
        "_next_index",
    ),
)


def check_fetch() -> None:
    """Raises NotNative if somebody has replaced what asks a dataset for the samples of a batch."""
    for fetching in _FETCHING:
        if changed := methods_change(*fetching):
            raise NotNative(changed)


def check_batches(loader: Loader) -> None:
    """Raises NotNative unless batches are made of samples by their indices, for a source without worker
    processes."""
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
