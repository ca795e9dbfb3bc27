"""Recognising datasets whose pictures the native path can read, decode and transform by itself.

Only exact types are known, because a subclass may do anything. A class is known by its module and name,
so that nothing of torchvision or timm is imported. If something is not known, `NotNative` names it.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from torch.utils.data import ConcatDataset, Subset

from fastloader._core.order.loader import Loader
from fastloader._core.pictures.native_images import NativeImages
from fastloader._core.sources import collation
from fastloader._core.sources.images.recognize.ours import recognize_folder, recognize_lmdb
from fastloader._core.sources.images.recognize.timm import recognize_timm
from fastloader._core.sources.images.recognize.torchvision import recognize_torchvision
from fastloader._core.sources.images.recognize.wrappers import concatenated, subset
from fastloader._core.sources.names import is_class
from fastloader.datasets.image_folder import ImageFolder
from fastloader.datasets.lmdb_dataset import LMDBDataset
from fastloader.errors import NotNative


def recognize_images(loader: Loader) -> NativeImages:
    """Returns the pictures that the loader's dataset holds.

    Raises:
        NotNative: with the reason in words, if the native path cannot make the batches.
    """
    collation.check_batches(loader)
    container = collation.container(loader.collate_fn)
    return dataclasses.replace(_recognize(loader.dataset), container=container)


def _recognize(dataset: Any) -> NativeImages:
    kind = type(dataset)
    if kind is Subset:
        return subset(dataset, _recognize(dataset.dataset))
    if kind is ConcatDataset:
        return concatenated(dataset, [_recognize(each) for each in dataset.datasets])
    if kind is ImageFolder:
        return recognize_folder(dataset)
    if kind is LMDBDataset:
        return recognize_lmdb(dataset)
    if is_class(kind, "torchvision.datasets.folder", "ImageFolder"):
        return recognize_torchvision(dataset)
    for package in ("timm.data", "fastloader.compat.timm"):
        if is_class(kind, f"{package}.dataset", "ImageDataset"):
            return recognize_timm(dataset, f"{package.partition('.')[0]} ImageDataset")
    raise NotNative(f"the dataset is a {kind.__module__}.{kind.__qualname__}")
