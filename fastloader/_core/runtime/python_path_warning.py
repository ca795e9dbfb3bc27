"""Why Python makes the batches, and the warning for users who may expect the native path."""

from __future__ import annotations

import warnings
from typing import Any

from torch.utils.data import ConcatDataset, Subset

import fastloader
from fastloader._core.machine.messages.callers import callers
from fastloader._core.order.loader import Loader
from fastloader._core.sources.arguments import check_batches, check_extension, check_native
from fastloader._core.sources.collation import container
from fastloader._core.sources.images.recognize import first_part, holds_images, unknown
from fastloader.errors import NotNative, PythonPathWarning

_PACKAGE = fastloader.__path__[0]


def why_no_source(loader: Loader) -> str:
    """Why no source but Python's makes the batches, if none of them knows the dataset."""
    try:
        check_native(loader)
        check_extension()
        check_batches(loader)
        container(loader.collate_fn)
    except NotNative as refusal:
        return str(refusal)
    return unknown(first_part(loader.dataset))


def holds_pictures(dataset: Any) -> bool:
    """Whether another transform, or another setting of the loader, could make the dataset native. That
    is so for a known kind, a subclass of one, and a selection of these."""
    if type(dataset) is Subset:
        return holds_pictures(dataset.dataset)
    if type(dataset) is ConcatDataset:
        return all(holds_pictures(each) for each in dataset.datasets)
    if not holds_images(dataset) or getattr(dataset, "legacy", False) is True:
        return False
    # timm's ImageDataset may read from something else than a folder.
    reader = getattr(dataset, "reader", None)
    return reader is None or type(reader).__qualname__ == "ReaderImageFolder"


def warn_if_pictures(dataset: Any, reason: str) -> None:
    """Warns if the dataset `holds_pictures`: at the line of the user's code that asked for the iterator,
    even through code of ours."""
    if not holds_pictures(dataset):
        return
    level = 0
    for frame in callers():
        if not frame.f_code.co_filename.startswith(_PACKAGE):
            break
        level += 1
    warnings.warn(
        f"these pictures take the Python path, which is slower than the native one: {reason}. The table "
        "of what is native is in docs/native.md; native=False says that Python is wanted, and silences "
        "this.",
        PythonPathWarning,
        stacklevel=level + 1,
    )
