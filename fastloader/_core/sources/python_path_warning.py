"""The warning that pictures take the Python path, for users who may expect the native one."""

from __future__ import annotations

import warnings
from typing import Any

from torch.utils.data import ConcatDataset, Subset

import fastloader
from fastloader._core.machine.callers import callers
from fastloader.errors import PythonPathWarning

_PACKAGE = fastloader.__path__[0]

# Classes by module and name, so that neither torchvision nor timm is imported.
_PICTURES = {
    ("fastloader.datasets.image_folder", "ImageFolder"),
    ("fastloader.datasets.lmdb_dataset", "LMDBDataset"),
    ("fastloader.compat.timm.dataset", "ImageDataset"),
    ("torchvision.datasets.folder", "ImageFolder"),
    ("timm.data.dataset", "ImageDataset"),
}


def holds_pictures(dataset: Any) -> bool:
    """Whether another transform, or another setting of the loader, could make the dataset native. That
    is so for a known kind, a subclass of one, and a selection of these."""
    if type(dataset) is Subset:
        return holds_pictures(dataset.dataset)
    if type(dataset) is ConcatDataset:
        return all(holds_pictures(each) for each in dataset.datasets)
    kinds = {(kind.__module__, kind.__qualname__) for kind in type(dataset).__mro__}
    if not kinds & _PICTURES or getattr(dataset, "legacy", False) is True:
        return False
    # timm's ImageDataset may read from something else than a folder.
    reader = getattr(dataset, "reader", None)
    return reader is None or type(reader).__qualname__ == "ReaderImageFolder"


def warn_of_python_path(reason: str) -> None:
    """Warns at the line of the user's code that asked for the iterator, even through code of ours."""
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
