"""torchvision's datasets that hold their pictures in an array."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from fastloader._core.pictures.native_images import NativeImages
from fastloader._core.sources.images.last_time import last_time
from fastloader._core.sources.images.recognize.reading import KnownBeginning, Reading
from fastloader._core.sources.images.stores.pixels import Pixels, PixelStore
from fastloader._core.sources.sequences import by_place
from fastloader.errors import NotNative
from fastloader.transforms._chain import Chain

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
    """SVHN and STL10."""
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
    """The targets as they are now, as int64."""
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
