"""torchvision's ImageFolder, and the datasets that are one: ImageNet and EuroSAT."""

from __future__ import annotations

import os
from typing import Any

from fastloader._core.pictures.native_images import NativeImages
from fastloader._core.sources.images.recognize.reading import Reading
from fastloader._core.sources.images.recognize.samples import copied, flat
from fastloader._core.sources.images.recognize.torchvision.loader import check_loader


def recognize_folders(dataset: Any, reading: Reading) -> NativeImages:
    reading.target_transform(dataset.target_transform)
    check_loader(dataset)
    # DatasetFolder keeps the transform twice. A user who replaces one means the one of __getitem__.
    chain = reading.chain(dataset.transform)
    store, targets = flat(dataset, copied(dataset.samples), _class_folders_of(dataset))
    return NativeImages(store, targets, None, chain)


def _class_folders_of(dataset: Any) -> str | None:
    """The folder of class folders, as far as the dataset tells. ImageNet and EuroSAT make it of their
    root."""
    for name in ("split_folder", "_data_folder", "root"):
        folder = getattr(dataset, name, None)
        if isinstance(folder, str | os.PathLike):
            return os.fspath(folder)
    return None
