"""torchvision's datasets that are a list of files, with a class for each."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from fastloader._core.machine import identity
from fastloader._core.pictures.native_images import NativeImages
from fastloader._core.sources.images.recognize.reading import Reading
from fastloader._core.sources.images.recognize.samples import Samples, copied, flat, made
from fastloader._core.sources.images.recognize.torchvision.loader import check_loader
from fastloader._core.sources.sequences import by_place
from fastloader.errors import NotNative
from fastloader.transforms._reader.chain import begins_with_rgb

STANDARD = ("torchvision.datasets.vision", "StandardTransform")


def recognize_two_lists(dataset: Any, reading: Reading) -> NativeImages:
    """Food101, Flowers102 and DTD."""
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
    store, targets = made(dataset, known_by, samples)
    return NativeImages(store, targets, None, chain)


def _pair_of(dataset: Any) -> tuple[Any, Any]:
    """What is done to pictures and to targets, of a dataset that does its ``transforms``."""
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
