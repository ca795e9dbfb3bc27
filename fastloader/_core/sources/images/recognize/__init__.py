"""Recognising datasets whose pictures the native path can read, decode and transform by itself.

`machine/identity.py` says what a class is, and nothing of torchvision or timm is imported. A subclass is
known as long as it has nothing of its own that matters. If something is not known, `NotNative` names it.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from torch.utils.data import ConcatDataset, Subset

from fastloader._core.machine import identity
from fastloader._core.machine.identity import Rows
from fastloader._core.machine.torch_datasets import kind_of
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
from fastloader._core.sources.images.recognize.plugins import other_plugin
from fastloader._core.sources.images.recognize.reading import (
    KnownBeginning,
    OnlyLookedAt,
    Reading,
    Refusals,
    WholeTransform,
)
from fastloader._core.sources.images.recognize.timm import recognize_timm
from fastloader._core.sources.images.recognize.torchvision.datasets import DATASETS
from fastloader._core.sources.images.recognize.wrappers import concatenated, subset
from fastloader.datasets.files import FileList, ImageFolder, ListImages
from fastloader.datasets.hugging_face import HFImages
from fastloader.datasets.lmdb import LMDBDataset
from fastloader.datasets.parquet import ParquetImages
from fastloader.datasets.tar import TarImages
from fastloader.errors import NotNative
from fastloader.transforms import _pillow

# What a dataset says of its pictures: of those in files, of records, and of those that lie in memory.
_FILES = ("ends", "form", "paths", "seek_file")
_RECORDS = ("environment", "image_bytes", "indexed", "name", "open_rgb", "record", "will_need")
_MAPPED = ("form", "image_bytes", "name", "open_rgb", "places", "upright", "will_need")

# What makes `NativeImages` of a dataset, by the dataset's class. A kind of dataset in this table is an
# image dataset: `warn_if_pictures` warns if Python makes its batches.
RECOGNIZERS = Rows[Known](
    {
        ImageFolder: Known(recognize_files, _FILES, only=is_here),
        ListImages: Known(recognize_files, _FILES),
        LMDBDataset: Known(recognize_lmdb, _RECORDS),
        TarImages: Known(recognize_mapped, _MAPPED, only=is_here),
        HFImages: Known(recognize_mapped, ("files", *_MAPPED)),
        ParquetImages: Known(recognize_mapped, _MAPPED, only=is_mapped),
        ("datasets.arrow_dataset", "Dataset"): Known(
            recognize_hugging_face, only=has_our_transform
        ),
        ("timm.data.dataset", "ImageDataset"): Known(recognize_timm),
        ("fastloader.compat.timm.dataset", "ImageDataset"): Known(recognize_timm),
        **DATASETS,
    }
)


def first_part(dataset: Any) -> Any:
    """The first of the datasets of which ``dataset`` is a selection: itself, unless it is a Subset or a
    ConcatDataset."""
    while (kind := kind_of(dataset)) in (Subset, ConcatDataset):
        if kind is Subset:
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
    kind = RECOGNIZERS.known(type(dataset))
    known = None if kind is None else RECOGNIZERS.get(kind)
    return kind if known is not None and (known.only is None or known.only(dataset)) else None


# Where Pillow opens pictures, as native decoders do: each file is offered to all of these plugins.
_PILLOW = (
    "PIL.BmpImagePlugin",
    "PIL.GifImagePlugin",
    "PIL.ImageFile",
    "PIL.JpegImagePlugin",
    "PIL.PngImagePlugin",
    "PIL.PpmImagePlugin",
    "PIL.WebPImagePlugin",
    _pillow.__name__,
)
# What a subclass may not have of its own, beside what the methods of a sample look at: it says which
# samples there are, or what they are.
_WHAT_MATTERS = (
    "imgs", "loader", "path", "reader", "samples", "target_transform", "targets", "transform",
    "transforms",
)  # fmt: skip


def own_part(dataset: Any) -> str:
    """What a dataset of a known kind does otherwise than the source of that kind says, so that its
    samples may be anything; empty if there is nothing that matters."""
    known = _known_class(dataset)
    assert known is not None  # the caller has asked holds_images
    row = RECOGNIZERS.get(known)
    assert row is not None
    if own := identity.own_part(dataset, known, (*_WHAT_MATTERS, *row.reads)):
        return own
    return identity.modules_change(*_PILLOW) or other_plugin()


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
    selection = kind_of(dataset)
    if selection in (Subset, ConcatDataset):
        if own := identity.own_part(dataset, selection):
            raise NotNative(own)
        if selection is Subset:
            return subset(dataset, _recognize(dataset.dataset, reading))
        return concatenated(dataset, [_recognize(each, reading) for each in dataset.datasets])
    known = _known_class(dataset)
    if known is None:
        raise NotNative(unknown(dataset))
    if own := own_part(dataset):
        raise NotNative(own)
    row = RECOGNIZERS.get(known)
    assert row is not None
    images = row.recognize(dataset, reading)
    name = images.name or f"{known.__module__.partition('.')[0]} {known.__qualname__}"
    if kind is not known:
        name = f"{kind.__qualname__}, {name}"
    return dataclasses.replace(images, name=name)


def refusals(dataset: Any) -> Refusals:
    """All that keeps a dataset that `holds_images` from the native path."""
    found = Refusals()
    try:
        _recognize(dataset, found)
    except OnlyLookedAt:
        pass
    except NotNative as refusal:
        found.found.append(str(refusal))
    return found


def unknown(dataset: Any) -> str:
    """Why a dataset that is no selection is not native, if its class is not in the table."""
    if isinstance(dataset, FileList) and dataset.cache is not None:
        return "the pictures are objects in a store"
    if isinstance(dataset, TarImages):
        return "the shards are in an object store, and more than their cache has room for"
    return f"the dataset is a {type(dataset).__module__}.{type(dataset).__qualname__}"
