"""The ``loader`` of a dataset, which opens a file."""

from __future__ import annotations

from typing import Any

from fastloader._core.machine import identity
from fastloader._core.sources.names import named
from fastloader.errors import NotNative


def check_loader(dataset: Any) -> None:
    """Raises NotNative unless the files are opened as RGB pictures."""
    if not hasattr(dataset, "loader"):  # torchvision before 0.21, whose other datasets had none
        return
    changed = identity.function_change(
        dataset.loader, "torchvision.datasets.folder", "default_loader"
    )
    if changed is None:
        raise NotNative(f"the dataset's loader is {named(dataset.loader)}")
    backend = identity.found("torchvision", "_image_backend")
    if changed or backend != "PIL":
        raise NotNative(changed or f"torchvision's image backend is {backend!r}")
