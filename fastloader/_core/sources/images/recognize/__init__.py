"""Recognising datasets whose pictures the native path can read, decode and transform by itself.

A class is known by its module and name, so that nothing of torchvision or timm is imported. A subclass
is known as long as it has nothing of its own that matters. If something is not known, `NotNative` names
it.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from torch.utils.data import ConcatDataset, Subset

from fastloader._core.order.loader import Loader
from fastloader._core.pictures.native_images import NativeImages
from fastloader._core.sources import collation
from fastloader._core.sources.arguments import check_batches
from fastloader._core.sources.images.recognize.hugging_face import (
    has_our_transform,
    recognize_hugging_face,
)
from fastloader._core.sources.images.recognize.known import Known
from fastloader._core.sources.images.recognize.mixing import checked_mixing
from fastloader._core.sources.images.recognize.ours import (
    is_here,
    is_mapped,
    recognize_files,
    recognize_lmdb,
    recognize_mapped,
)
from fastloader._core.sources.images.recognize.reading import (
    KnownBeginning,
    Reading,
    WholeTransform,
)
from fastloader._core.sources.images.recognize.timm import recognize_timm
from fastloader._core.sources.images.recognize.torchvision.datasets import DATASETS
from fastloader._core.sources.images.recognize.wrappers import concatenated, subset
from fastloader.datasets._formats.files.file_list import FileList
from fastloader.datasets.tar_images import TarImages
from fastloader.errors import NotNative

# What a dataset says of pictures that lie in memory.
_MAPPED = ("form", "image_bytes", "open_rgb", "places", "upright")

# What makes `NativeImages` of a dataset, by the module and the name of the dataset's class. A kind of
# dataset in this table is an image dataset: `warn_if_pictures` warns if Python makes its batches.
RECOGNIZERS: dict[tuple[str, str], Known] = {
    ("fastloader.datasets.image_folder", "ImageFolder"): Known(recognize_files, only=is_here),
    ("fastloader.datasets.list_images", "ListImages"): Known(recognize_files, ("form",)),
    ("fastloader.datasets.lmdb_dataset", "LMDBDataset"): Known(recognize_lmdb),
    ("fastloader.datasets.tar_images", "TarImages"): Known(recognize_mapped, _MAPPED, only=is_here),
    ("fastloader.datasets.hf_images", "HFImages"): Known(recognize_mapped, _MAPPED),
    ("fastloader.datasets.parquet_images", "ParquetImages"): Known(
        recognize_mapped, _MAPPED, only=is_mapped
    ),
    ("datasets.arrow_dataset", "Dataset"): Known(recognize_hugging_face, only=has_our_transform),
    ("timm.data.dataset", "ImageDataset"): Known(recognize_timm),
    ("fastloader.compat.timm.dataset", "ImageDataset"): Known(recognize_timm),
    **DATASETS,
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
    may have thousands of parts, of which the first one that is not known decides."""
    return _known_class(first_part(dataset)) is not None


def _known_class(dataset: Any) -> type | None:
    """The class in `RECOGNIZERS` that the dataset is of, or derives from."""
    for kind in type(dataset).__mro__:
        known = RECOGNIZERS.get(_name(kind))
        if known is not None:
            return kind if known.only is None or known.only(dataset) else None
    return None


def _name(kind: type) -> tuple[str, str]:
    return kind.__module__, kind.__qualname__


# What a subclass may not have of its own: it says which samples there are, or what they are.
_WHAT_MATTERS = (
    "__getattr__", "__getattribute__", "__getitem__", "__getitems__", "__len__", "ends", "imgs",
    "loader", "path", "paths", "reader", "samples", "target_transform", "targets", "transform",
    "transforms",
)  # fmt: skip


def own_part(dataset: Any) -> str:
    """What a subclass of a known dataset has of its own, so that its samples may be anything; empty if
    there is nothing that matters."""
    kind, known = type(dataset), _known_class(dataset)
    assert known is not None  # the caller has asked holds_images
    reads = RECOGNIZERS[_name(known)].reads
    for own in kind.__mro__[: kind.__mro__.index(known)]:
        for name in (*_WHAT_MATTERS, *reads):
            if name in vars(own):
                return f"{own.__qualname__} has a {name} of its own"
    return ""


def recognize_images(loader: Loader) -> NativeImages:
    """Returns the pictures that the loader's dataset holds.

    Raises:
        NotNative: with the reason in words, if the native path cannot make the batches.
    """
    check_batches(loader)
    container = collation.container(loader.collate_fn)
    mixing = collation.mixing_of(loader.collate_fn)
    found = _recognize(loader.dataset, WholeTransform())
    if container is tuple and not found.form.plain:
        raise NotNative("collate_fn is of pictures and labels, and the samples have another form")
    if mixing is not None:
        mixing = checked_mixing(found, mixing)
    return dataclasses.replace(found, container=container, mixing=mixing)


def recognize_beginning(dataset: Any) -> tuple[NativeImages, KnownBeginning]:
    """Returns the pictures of a dataset, as far as the beginning of its transform makes them.

    Raises:
        NotNative: if there is no such beginning.
    """
    reading = KnownBeginning()
    return _recognize(dataset, reading), reading


def _recognize(dataset: Any, reading: Reading) -> NativeImages:
    kind = type(dataset)
    if kind is Subset:
        return subset(dataset, _recognize(dataset.dataset, reading))
    if kind is ConcatDataset:
        return concatenated(dataset, [_recognize(each, reading) for each in dataset.datasets])
    known = _known_class(dataset)
    if known is None:
        raise NotNative(unknown(dataset))
    if own := own_part(dataset):
        raise NotNative(own)
    images = RECOGNIZERS[_name(known)].recognize(dataset, reading)
    if kind is known:
        return images
    return dataclasses.replace(images, name=f"{kind.__qualname__}, {images.name}")


def unknown(dataset: Any) -> str:
    """Why a dataset that is no selection is not native, if its class is not in the table."""
    if isinstance(dataset, FileList) and dataset.cache is not None:
        return "the pictures are objects in a store"
    if isinstance(dataset, TarImages):
        return "the shards are in an object store, and more than their cache has room for"
    return f"the dataset is a {type(dataset).__module__}.{type(dataset).__qualname__}"
