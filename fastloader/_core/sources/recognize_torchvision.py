"""Recognises torchvision's datasets: lists of files with a class each, folders, and arrays."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from fastloader._core.machine import identity
from fastloader._core.pictures.images import NativeImages
from fastloader._core.pictures.store import Pixels, PixelStore
from fastloader._core.sources.names import named
from fastloader._core.sources.reading import (
    Known,
    KnownBeginning,
    Reading,
    Samples,
    copied,
    flat,
    last_time,
    read_samples,
)
from fastloader._core.sources.sequences import by_place
from fastloader.errors import NotNative
from fastloader.transforms._chain import Chain
from fastloader.transforms._reader.chain import begins_with_rgb

# ---- The ``loader`` of a dataset, which opens a file.


def check_loader(dataset: Any) -> None:
    """Raises NotNative unless the files are opened as RGB pictures."""
    if not hasattr(dataset, "loader"):  # torchvision before 0.21, whose other datasets had none
        return
    changed = identity.function_change(
        dataset.loader, "torchvision.datasets.folder", "default_loader"
    )
    if changed is None:
        raise NotNative(f"the dataset's loader is {named(dataset.loader)}")
    backend = identity.found("torchvision", "_image_backend")
    if changed or backend != "PIL":
        raise NotNative(changed or f"torchvision's image backend is {backend!r}")


def opens_otherwise(dataset: Any) -> bool:
    """Returns whether the user's own function opens the dataset's files: it may give anything."""
    if not hasattr(dataset, "loader"):
        return False
    return (
        identity.function_change(dataset.loader, "torchvision.datasets.folder", "default_loader")
        is None
    )


# ---- torchvision's datasets that are a list of files, with a class for each.


STANDARD = ("torchvision.datasets.vision", "StandardTransform")


def recognize_two_lists(dataset: Any, reading: Reading) -> NativeImages:
    """Recognises Food101, Flowers102 and DTD."""
    reading.target_transform(dataset.target_transform)
    check_loader(dataset)
    chain = reading.chain(dataset.transform)
    samples = _together(dataset._image_files, dataset._labels)
    store, targets = flat(dataset, samples)
    return NativeImages(store, targets, None, chain)


def recognize_imagenette(dataset: Any, reading: Reading) -> NativeImages:
    reading.target_transform(dataset.target_transform)
    check_loader(dataset)
    chain = reading.chain(dataset.transform)
    store, targets = flat(dataset, copied(dataset._samples))
    return NativeImages(store, targets, None, chain)


def recognize_places(dataset: Any, reading: Reading) -> NativeImages:
    transform, of_target = _pair_of(dataset)
    reading.target_transform(of_target)
    check_loader(dataset)
    chain = reading.chain(transform)
    store, targets = flat(dataset, copied(dataset.imgs))
    return NativeImages(store, targets, None, chain)


def recognize_pets(dataset: Any, reading: Reading) -> NativeImages:
    classes = {("category",): "_labels", ("binary-category",): "_bin_labels"}
    labels = classes.get(tuple(dataset._target_types))
    if labels is None:
        raise NotNative(
            f"the dataset has target_types={dataset._target_types}; one class is native"
        )
    transform, of_target = _pair_of(dataset)
    reading.target_transform(of_target)
    chain = reading.chain(transform)
    samples = _together(dataset._images, getattr(dataset, labels))
    store, targets = flat(dataset, samples)
    return NativeImages(store, targets, None, chain)


def recognize_caltech101(dataset: Any, reading: Reading) -> NativeImages:
    if list(dataset.target_type) != ["category"]:
        raise NotNative(f"the dataset has target_type={dataset.target_type}; 'category' is native")
    return _caltech(
        dataset, reading, "101_ObjectCategories", lambda number, of_class: f"image_{number:04d}.jpg"
    )


def recognize_caltech256(dataset: Any, reading: Reading) -> NativeImages:
    return _caltech(
        dataset,
        reading,
        "256_ObjectCategories",
        lambda number, of_class: f"{of_class + 1:03d}_{number:04d}.jpg",
    )


def _caltech(
    dataset: Any, reading: Reading, folder: str, name: Callable[[int, int], str]
) -> NativeImages:
    reading.target_transform(dataset.target_transform)
    chain = reading.chain(dataset.transform)
    # A file is opened as it is. Which of them are grey is not known before each was opened.
    if not begins_with_rgb(dataset.transform):
        raise NotNative(
            "the dataset gives grey pictures one channel and others three: a transform that begins with "
            "torchvision.transforms.v2.RGB() is native"
        )
    numbers, classes, categories = dataset.index, dataset.y, dataset.categories

    def samples() -> Samples:
        root = os.path.join(dataset.root, folder)
        return [
            (os.path.join(root, categories[of_class], name(number, of_class)), of_class)
            for number, of_class in _together(numbers, classes)
        ]

    known_by = (dataset.root, *map(_list, (numbers, classes, categories)))
    store, targets = read_samples(dataset, known_by, samples)
    return NativeImages(store, targets, None, chain)


def _pair_of(dataset: Any) -> tuple[Any, Any]:
    """Returns what is done to pictures and to targets, of a dataset that applies its ``transforms``."""
    both = dataset.transforms
    if both is None:
        return None, None
    if not identity.is_a(both, STANDARD):
        raise NotNative("the dataset's transforms take a picture and its target together")
    if changed := identity.change(type(both), type(both)):
        raise NotNative(changed)
    return both.transform, both.target_transform


def _together(files: Any, classes: Any) -> list[tuple[Any, Any]]:
    if len(files) != len(classes):
        raise NotNative(f"the dataset has {len(files)} files and {len(classes)} classes")
    return list(zip(_list(files), _list(classes), strict=True))


def _list(values: Any) -> list[Any]:
    return list(by_place(values, "the dataset's samples"))


# ---- torchvision's datasets that hold their pictures in an array.


_TARGETS = "the dataset's targets"


def recognize_cifar(dataset: Any, reading: Reading) -> NativeImages:
    pixels = _of_numpy(dataset.data, channels_first=False)
    targets = by_place(dataset.targets, _TARGETS)
    if isinstance(targets, list | tuple):
        kinds = {int} if isinstance(reading, KnownBeginning) else {int, np.int64}
        if not {type(each) for each in targets} <= kinds:
            raise NotNative("the dataset's targets are not whole numbers")
    elif getattr(targets, "dtype", None) not in (np.int64, torch.int64):
        raise NotNative("the dataset's targets are no list")
    elif isinstance(reading, KnownBeginning):
        raise NotNative("a sample's target is an element of an array")
    return _images(dataset, reading, pixels, targets)


def recognize_mnist(dataset: Any, reading: Reading) -> NativeImages:
    return _images(dataset, reading, _of_torch(dataset.data), dataset.targets)


def recognize_qmnist(dataset: Any, reading: Reading) -> NativeImages:
    if not dataset.compat:
        raise NotNative("the dataset has compat=False: its targets are no classes")
    targets = by_place(dataset.targets, _TARGETS)
    if not isinstance(targets, torch.Tensor) or targets.ndim != 2 or not targets.shape[1]:
        raise NotNative("the dataset's targets are no table")
    return _images(dataset, reading, _of_torch(dataset.data), targets[:, 0])


def recognize_labelled(dataset: Any, reading: Reading) -> NativeImages:
    """Recognises SVHN and STL10."""
    if dataset.labels is None:
        raise NotNative("the dataset has no labels")
    pixels = _of_numpy(dataset.data, channels_first=True)
    return _images(dataset, reading, pixels, dataset.labels)


def _images(dataset: Any, reading: Reading, pixels: Pixels, targets: Any) -> NativeImages:
    reading.target_transform(dataset.target_transform)
    count, height, width, *channels = pixels.seen().shape
    if not height or not width:
        raise NotNative("the dataset's pictures have no pixels")
    chain = reading.chain(dataset.transform, of=Chain(size=(height, width), grey=not channels))
    made = PixelStore([pixels]), _whole_numbers(targets, count)
    kept = last_time.get(dataset)
    if kept is None or not kept[0].same(made[0]) or not np.array_equal(kept[1], made[1]):
        last_time[dataset] = kept = made
    store, numbers = kept
    return NativeImages(store, numbers, None, chain)


def _of_numpy(data: Any, channels_first: bool) -> Pixels:
    at = 1 if channels_first else 3
    known = type(data) in (np.ndarray, np.memmap) and data.dtype == np.uint8
    if not known or data.ndim != 4 or data.shape[at] != 3:
        raise NotNative("the dataset's data is no array of RGB pictures")
    return Pixels(data, channels_first)


def _of_torch(data: Any) -> Pixels:
    known = type(data) is torch.Tensor and data.dtype == torch.uint8 and data.device.type == "cpu"
    if not known or data.ndim != 3 or data.layout != torch.strided:
        raise NotNative("the dataset's data is no tensor of grey pictures")
    return Pixels(data)


def _whole_numbers(targets: Any, count: int) -> Any:
    """Returns the targets as they are now, as int64."""
    targets = by_place(targets, _TARGETS)
    try:
        numbers = targets.numpy() if isinstance(targets, torch.Tensor) else np.asarray(targets)
    except (TypeError, ValueError, RuntimeError):  # ragged, or on another device
        numbers = np.array(None)
    if numbers.shape != (count,):
        raise NotNative("the dataset's targets are not one for each picture")
    if count and (numbers.dtype.kind not in "iu" or numbers.dtype == np.uint64):
        raise NotNative("the dataset's targets are not whole numbers of 64 bits")
    return numbers.astype(np.int64)


# ---- torchvision's ImageFolder, and the datasets that are one: ImageNet and EuroSAT.


def recognize_folders(dataset: Any, reading: Reading) -> NativeImages:
    reading.target_transform(dataset.target_transform)
    check_loader(dataset)
    # DatasetFolder keeps the transform twice. A user who replaces one means the one of __getitem__.
    chain = reading.chain(dataset.transform)
    store, targets = flat(dataset, copied(dataset.samples), _class_folders_of(dataset))
    return NativeImages(store, targets, None, chain)


def _class_folders_of(dataset: Any) -> str | None:
    """Returns the folder of class folders, as far as the dataset tells. ImageNet and EuroSAT make it of
    their root."""
    for name in ("split_folder", "_data_folder", "root"):
        folder = getattr(dataset, name, None)
        if isinstance(folder, str | os.PathLike):
            return os.fspath(folder)
    return None


# ---- Which of torchvision's datasets are known.


_TWO_LISTS = Known(recognize_two_lists, ("_image_files", "_labels"))
_MNIST = Known(recognize_mnist, ("data",))
_CIFAR = Known(recognize_cifar, ("data",))
_LABELLED = Known(recognize_labelled, ("data", "labels"))
_FOLDERS = Known(recognize_folders)
_CALTECH = ("root", "categories", "index", "y", "target_type")

# By the module in torchvision.datasets, and the class.
_KNOWN = {
    ("folder", "ImageFolder"): _FOLDERS,
    ("imagenet", "ImageNet"): _FOLDERS,
    ("eurosat", "EuroSAT"): _FOLDERS,
    ("imagenette", "Imagenette"): Known(recognize_imagenette, ("_samples",)),
    ("places365", "Places365"): Known(recognize_places),
    ("food101", "Food101"): _TWO_LISTS,
    ("flowers102", "Flowers102"): _TWO_LISTS,
    ("dtd", "DTD"): _TWO_LISTS,
    ("oxford_iiit_pet", "OxfordIIITPet"): Known(
        recognize_pets, ("_images", "_labels", "_bin_labels", "_target_types")
    ),
    ("caltech", "Caltech101"): Known(recognize_caltech101, _CALTECH),
    ("caltech", "Caltech256"): Known(recognize_caltech256, _CALTECH),
    ("cifar", "CIFAR10"): _CIFAR,
    ("cifar", "CIFAR100"): _CIFAR,
    ("mnist", "MNIST"): _MNIST,
    ("mnist", "FashionMNIST"): _MNIST,
    ("mnist", "KMNIST"): _MNIST,
    ("mnist", "EMNIST"): _MNIST,
    ("mnist", "QMNIST"): Known(recognize_qmnist, ("data", "compat")),
    ("svhn", "SVHN"): _LABELLED,
    ("stl10", "STL10"): _LABELLED,
}

DATASETS = {
    (f"torchvision.datasets.{module}", name): known for (module, name), known in _KNOWN.items()
}
