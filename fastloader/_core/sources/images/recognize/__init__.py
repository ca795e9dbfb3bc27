"""Recognising datasets whose pictures the native path can read, decode and transform by itself.

Only exact types are known, because a subclass may do anything. A class is known by its module and name,
so that nothing of torchvision or timm is imported. If something is not known, `NotNative` names it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

from torch.utils.data import ConcatDataset, Subset

from fastloader._core.order.loader import Loader
from fastloader._core.pictures.native_images import NativeImages
from fastloader._core.sources import collation
from fastloader._core.sources.arguments import check_batches
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


def parts(dataset: Any) -> Iterator[Any]:
    """The datasets of which ``dataset`` is a selection, in their order: itself, unless it is a Subset or
    a ConcatDataset."""
    if type(dataset) is Subset:
        yield from parts(dataset.dataset)
    elif type(dataset) is ConcatDataset:
        for each in dataset.datasets:
            yield from parts(each)
    else:
        yield dataset


def holds_images(dataset: Any) -> bool:
    """Whether the dataset is of a kind that `recognize_images` knows, or partly so. Only exact types
    count, because a subclass may do anything."""
    return any(_name(part) in RECOGNIZERS for part in parts(dataset))


def _name(dataset: Any) -> tuple[str, str]:
    return type(dataset).__module__, type(dataset).__qualname__


def recognize_images(loader: Loader) -> NativeImages:
    """Returns the pictures that the loader's dataset holds.

    Raises:
        NotNative: with the reason in words, if the native path cannot make the batches.
    """
    check_batches(loader)
    container = collation.container(loader.collate_fn)
    return dataclasses.replace(_recognize(loader.dataset), container=container)


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
    return "the dataset is a " + ".".join(_name(dataset))
