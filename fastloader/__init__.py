"""fastloader: the drop-in ``torch.utils.data.DataLoader`` for training on pictures.

    from fastloader import FastLoader
    loader = FastLoader(dataset, batch_size=64, num_workers=8, device="cuda",
                        mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225))

Importing this package imports neither torch nor numpy; the names below load on first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from fastloader._core.machine import extension, moved
from fastloader.errors import BackendError, Error, PythonPathWarning

if TYPE_CHECKING:
    from fastloader import compat as compat
    from fastloader import datasets as datasets
    from fastloader import transforms as transforms
    from fastloader._core.batch.layout import Packed, Padded
    from fastloader._core.machine.build_info import build_info
    from fastloader.datasets.decode_image import decode_image
    from fastloader.datasets.joint import transformed
    from fastloader.encoded_image import Companion, EncodedClip, EncodedImage, EncodedMask
    from fastloader.loader import FastLoader
    from fastloader.loader_audit import audit
    from fastloader.loader_check import check
    from fastloader.prefetcher import DevicePrefetcher

    __version__: str

__all__ = [
    "BackendError",
    "Companion",
    "DevicePrefetcher",
    "EncodedClip",
    "EncodedImage",
    "EncodedMask",
    "Error",
    "FastLoader",
    "Packed",
    "Padded",
    "PythonPathWarning",
    "audit",
    "build_info",
    "check",
    "decode_image",
    "transformed",
]

_HOME = {
    "FastLoader": "fastloader.loader",
    "DevicePrefetcher": "fastloader.prefetcher",
    "Companion": "fastloader.encoded_image",
    "EncodedClip": "fastloader.encoded_image",
    "EncodedImage": "fastloader.encoded_image",
    "EncodedMask": "fastloader.encoded_image",
    "Packed": "fastloader._core.batch.layout",
    "Padded": "fastloader._core.batch.layout",
    "audit": "fastloader.loader_audit",
    "build_info": "fastloader._core.machine.build_info",
    "check": "fastloader.loader_check",
    "decode_image": "fastloader.datasets.decode_image",
    "transformed": "fastloader.datasets.joint",
}

_PARTS = ("compat", "datasets", "transforms")

extension.load_or_warn()
moved.find_by_old_names()

if not TYPE_CHECKING:  # a type checker that sees this function takes every name for one of ours

    def __getattr__(name: str) -> Any:
        if name == "__version__":
            from fastloader._core.machine.build_info import installed_version

            return installed_version()
        if name in _HOME:
            return getattr(importlib.import_module(_HOME[name]), name)
        if name in _PARTS:
            return importlib.import_module(f"fastloader.{name}")
        raise AttributeError(f"module 'fastloader' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, *_PARTS, "__version__"])
