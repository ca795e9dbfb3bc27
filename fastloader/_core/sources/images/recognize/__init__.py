"""Recognising datasets whose pictures the native path can read, decode and transform by itself.

Only exact types are known, because a subclass may do anything. A class is known by its module and name,
so that nothing of torchvision or timm is imported. If something is not known, `NotNative` names it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from torch.utils.data import ConcatDataset, Subset

from fastloader._core.order.loader import Loader
from fastloader._core.pictures.native_images import NativeImages
from fastloader._core.sources import collation
from fastloader._core.sources.arguments import check_batches
from fastloader._core.sources.images.recognize.mixing import checked_mixing
from fastloader._core.sources.images.recognize.ours import recognize_folder, recognize_lmdb
from fastloader._core.sources.images.recognize.timm import recognize_timm
from fastloader._core.sources.images.recognize.torchvision import recognize_torchvision
from fastloader._core.sources.images.recognize.wrappers import concatenated, subset
from fastloader.errors import NotNative

# What makes `NativeImages` of a dataset, by the module and the name of the dataset's class. A kind of
# dataset in this table is an image dataset: `warn_if_pictures` warns if Python makes its batches.
RECOGNIZERS: dict[tuple[str, str], Callable[[Any], NativeImages]] = {
    ("fastloader.datasets.image_folder", "ImageFolder"): recognize_folder,
    ("fastloader.datasets.lmdb_dataset", "LMDBDataset"): recognize_lmdb,
    ("torchvision.datasets.folder", "ImageFolder"): recognize_torchvision,
    ("timm.data.dataset", "ImageDataset"): recognize_timm,
    ("fastloader.compat.timm.dataset", "ImageDataset"): recognize_timm,
}


def first_part(dataset: Any) -> Any:
    """The first of the datasets of which ``dataset`` is a selection: itself, unless it is a Subset or a
    ConcatDataset."""
    while type(dataset) in (Subset, ConcatDataset):
        if type(dataset) is Subset:
            dataset = dataset.dataset
        elif not dataset.datasets:
            break
        else:
            dataset = dataset.datasets[0]
    return dataset


def holds_images(dataset: Any) -> bool:
    """Whether `recognize_images` knows the kind of the dataset, or of its first part: a ConcatDataset
    may have thousands of parts, of which the first one that is not known decides. Only exact types
    count, because a subclass may do anything."""
    return _name(first_part(dataset)) in RECOGNIZERS


def _name(dataset: Any) -> tuple[str, str]:
    return type(dataset).__module__, type(dataset).__qualname__


def recognize_images(loader: Loader) -> NativeImages:
    """Returns the pictures that the loader's dataset holds.

    Raises:
        NotNative: with the reason in words, if the native path cannot make the batches.
    """
    check_batches(loader)
    container = collation.container(loader.collate_fn)
    mixing = collation.mixing_of(loader.collate_fn)
    found = _recognize(loader.dataset)
    if mixing is not None:
        mixing = checked_mixing(found, mixing)
    return dataclasses.replace(found, container=container, mixing=mixing)


def _recognize(dataset: Any) -> NativeImages:
    kind = type(dataset)
    if kind is Subset:
        return subset(dataset, _recognize(dataset.dataset))
    if kind is ConcatDataset:
        return concatenated(dataset, [_recognize(each) for each in dataset.datasets])
    name = _name(dataset)
    if name not in RECOGNIZERS:
        raise NotNative(unknown(dataset))
    return RECOGNIZERS[name](dataset)


def unknown(dataset: Any) -> str:
    """Why a dataset that is no selection is not native, if its class is not in the table."""
    return f"the dataset is a {type(dataset).__module__}.{type(dataset).__qualname__}"
