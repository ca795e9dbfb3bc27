"""torchvision's ImageFolder, and the datasets that are one: ImageNet and EuroSAT."""

from __future__ import annotations

from typing import Any

from fastloader._core.pictures.native_images import NativeImages
from fastloader._core.sources.images.recognize.reading import Reading
from fastloader._core.sources.images.recognize.samples import flat
from fastloader._core.sources.images.recognize.torchvision.loader import check_loader
from fastloader._core.sources.images.recognize.torchvision.naming import name_of


def recognize_folders(dataset: Any, reading: Reading) -> NativeImages:
    reading.target_transform(dataset.target_transform)
    check_loader(dataset)
    # DatasetFolder keeps the transform twice. A user who replaces one means the one of __getitem__.
    chain = reading.chain(dataset.transform)
    store, targets = flat(dataset, list(dataset.samples), lambda: dataset.samples)
    return NativeImages(store, targets, None, chain, name_of(dataset))
