"""fastloader: the drop-in ``torch.utils.data.DataLoader`` that keeps the GPU fed.

    from fastloader import FastLoader
    loader = FastLoader(dataset, batch_size=64, num_workers=8, device="cuda",
                        mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225))

Importing this package imports neither torch nor numpy; the names below load on first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from fastloader import _extension
from fastloader.errors import BackendError, Error

if TYPE_CHECKING:
    from fastloader._build_info import build_info
    from fastloader.loader import FastLoader
    from fastloader.prefetch import DevicePrefetcher

__all__ = ["BackendError", "DevicePrefetcher", "Error", "FastLoader", "build_info"]

_HOME = {
    "FastLoader": "fastloader.loader",
    "DevicePrefetcher": "fastloader.prefetch",
    "build_info": "fastloader._build_info",
}

_extension.load_or_warn()


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("fastloader")
    if name in _HOME:
        return getattr(importlib.import_module(_HOME[name]), name)
    raise AttributeError(f"module 'fastloader' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME, "__version__"])
