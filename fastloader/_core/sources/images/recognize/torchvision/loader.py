"""The ``loader`` of a dataset, which opens a file."""

from __future__ import annotations

from typing import Any

from fastloader._core.sources.names import named
from fastloader.errors import NotNative


def check_loader(dataset: Any) -> None:
    """Raises NotNative unless the files are opened as RGB pictures."""
    if not hasattr(dataset, "loader"):  # torchvision before 0.21, whose other datasets had none
        return
    loader = dataset.loader
    if (getattr(loader, "__module__", ""), getattr(loader, "__qualname__", "")) != (
        "torchvision.datasets.folder",
        "default_loader",
    ):
        raise NotNative(f"the dataset's loader is {named(loader)}")
