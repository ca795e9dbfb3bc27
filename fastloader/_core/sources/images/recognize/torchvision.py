"""torchvision's ImageFolder."""

from __future__ import annotations

from typing import Any

from fastloader._core.pictures.native_images import NativeImages
from fastloader._core.sources.images.recognize.samples import flat
from fastloader._core.sources.names import named
from fastloader.errors import NotNative
from fastloader.transforms._reader.chain import read_chain


def recognize_torchvision(dataset: Any) -> NativeImages:
    if dataset.target_transform is not None:
        raise NotNative("the dataset has a target_transform")
    loader = dataset.loader
    if (getattr(loader, "__module__", ""), getattr(loader, "__qualname__", "")) != (
        "torchvision.datasets.folder",
        "default_loader",
    ):
        raise NotNative(f"the dataset's loader is {named(loader)}")
    # DatasetFolder keeps the transform twice. A user who replaces one means the one of __getitem__.
    chain = read_chain(dataset.transform, ours_ends_in_tensor=False)
    store, targets = flat(dataset, dataset.samples)
    return NativeImages(store, targets, None, chain, "torchvision ImageFolder")
