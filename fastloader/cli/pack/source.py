"""What ``fastloader pack`` packs: a folder of pictures, or any dataset of pictures or arrays."""

from __future__ import annotations

import dataclasses
import hashlib
import importlib
import io
import operator
import os
import re
import sys
from collections.abc import Callable
from typing import Any

from fastloader import datasets
from fastloader._core.machine.identity import function_change
from fastloader.cli.pack.array_source import ArraySource, holds_arrays
from fastloader.cli.pack.source_error import SourceError
from fastloader.encoded_image import EncodedImage
from fastloader.transforms._pillow import whole_file

_ORIENTATION = 0x0112  # EXIF's tag
_EXPRESSION = re.compile(r"^([A-Za-z_][\w.]*):(.+)$", re.DOTALL)


@dataclasses.dataclass(frozen=True)
class Sample:
    """``image`` is an encoded file (bytes), or a Pillow image still to be encoded."""

    image: Any
    label: int
    name: str
    anew: bool = False
    """Whether ``image`` was a file and is another one now."""
    seek_index: bytes = b""
    """Of a file: empty if it has none."""


@dataclasses.dataclass(frozen=True)
class PackSource:
    """``identity`` is the same for the same samples in the same order, as far as their names tell."""

    count: int
    classes: list[str] | None
    identity: str
    read: Callable[[int], Sample]


def open_source(text: str) -> PackSource | ArraySource:
    """A folder of class folders, or ``module:expression`` for a dataset."""
    if os.path.isdir(text):
        return _folder(text)
    match = _EXPRESSION.match(text)
    if match is None:
        raise SourceError(
            f"{text} is neither a folder nor module:expression (such as my_data:train_set)"
        )
    return _dataset(text, *match.groups())


def _folder(root: str) -> PackSource:
    from fastloader.datasets import ImageFolder

    try:
        folder = ImageFolder(root)
    except FileNotFoundError as error:
        raise SourceError(str(error)) from None
    return _files(folder.samples, folder.classes, os.path.abspath(root))


def _files(samples: Any, classes: list[str] | None, root: str) -> PackSource:
    names = hashlib.sha256()
    for path, label in samples:
        names.update(os.fsencode(os.path.relpath(path, root)) + b"\0%d\0" % label)

    def read(index: int) -> Sample:
        path, label = samples[index]
        return Sample(whole_file(path), int(label), os.path.relpath(path, root))

    return PackSource(len(samples), list(classes or []) or None, names.hexdigest(), read)


def _dataset(text: str, module: str, expression: str) -> PackSource | ArraySource:
    sys.path.insert(0, os.getcwd())  # as `python -m` does
    try:
        names = vars(importlib.import_module(module))
        dataset = eval(expression, dict(names))
    except Exception as error:
        raise SourceError(f"{text}: {type(error).__name__}: {error}") from error
    if callable(dataset) and not hasattr(dataset, "__getitem__"):
        dataset = dataset()
    try:
        count = len(dataset)
    except TypeError:
        raise SourceError(
            f"{text} is a {type(dataset).__name__} without a length: only datasets that are indexed "
            "from 0 can be packed and resumed"
        ) from None
    classes = _class_names(dataset)
    if _is_folder(dataset):
        return _files(dataset.samples, classes, os.fspath(dataset.root))

    if _gives_files(dataset):
        return _encoded(dataset, count, classes, text)

    identity = f"{text} {count}"
    first = _first(dataset, count)
    if holds_arrays(first) and not _is_picture(first):
        return ArraySource.of(dataset.__getitem__, count, identity, first)

    def read(index: int) -> Sample:
        return _as_sample(dataset[index], index)

    return PackSource(count, classes, identity, read)


def _first(dataset: Any, count: int) -> Any:
    """The first sample; None if there is none.

    Raises:
        SourceError: if it cannot be read. What kind of samples these are is not known then.
    """
    try:
        return dataset[0] if count else None
    except Exception as error:
        raise SourceError(f"sample 0: {type(error).__name__}: {error}") from error


def _is_picture(sample: Any) -> bool:
    """Whether a sample of arrays is a picture, or a picture and a number."""
    image, label = _parts(sample)
    try:
        _as_image(image, 0)
    except SourceError:
        return False
    return not holds_arrays(label)


def _parts(sample: Any) -> tuple[Any, Any]:
    """(picture, label), if it is of pictures."""
    if isinstance(sample, list | tuple) and len(sample) == 2:
        return sample[0], sample[1]
    return sample, -1


def _as_sample(item: Any, index: int) -> Sample:
    image, label = _parts(item)
    return Sample(_as_image(image, index), _as_label(label, index), str(index))


def _gives_files(dataset: Any) -> bool:
    """One of our own, whose samples are encoded pictures and labels as they lie there."""
    ours = [getattr(datasets, name) for name in datasets.__all__]
    if (
        type(dataset) not in ours
        or not hasattr(dataset, "image_bytes")
        or getattr(dataset, "legacy", False)
    ):
        return False
    # Of another mode, a sample is not the picture in the file.
    as_it_lies = getattr(dataset, "mode", "RGB") == "RGB"
    return as_it_lies and dataset.transform is None and dataset.target_transform is None


def _encoded(dataset: Any, count: int, classes: list[str] | None, text: str) -> PackSource:
    def read(index: int) -> Sample:
        targets = dataset.targets
        label = dataset[index][1] if targets is None else targets[index]
        return Sample(_file_of(dataset, index), _as_label(label, index), dataset.name(index))

    return PackSource(count, classes, f"{text} {count}", read)


def _file_of(dataset: Any, index: int) -> Any:
    """The encoded picture. One that its dataset turns as EXIF says is given upright, to be encoded anew:
    a packed file does not turn pictures."""
    from fastloader.transforms._pillow import opened

    encoded = dataset.image_bytes(index)
    if getattr(dataset, "upright", False):
        with opened(io.BytesIO(encoded), dataset.name(index)) as picture:
            if picture.getexif().get(_ORIENTATION, 1) != 1:
                return dataset.open_rgb(index)
    return encoded


def _is_folder(dataset: Any) -> bool:
    """An ImageFolder, torchvision's or ours, whose samples are the pictures in its files, so that these
    can be packed as they are. A subclass or a loader of the user's own may make anything of them."""
    from fastloader.datasets import ImageFolder

    get = getattr(type(dataset), "__getitem__", None)
    if get is not ImageFolder.__getitem__:
        home = "torchvision.datasets.folder"
        read = {
            "DatasetFolder.__getitem__": get,
            "default_loader": getattr(dataset, "loader", None),
        }
        if any(function_change(each, home, name) != "" for name, each in read.items()):
            return False
    return dataset.transform is None and dataset.target_transform is None


def _class_names(dataset: Any) -> list[str] | None:
    """The synonyms that torchvision's ImageNet gives for a class become one name."""
    classes = getattr(dataset, "classes", None)
    if not isinstance(classes, list | tuple) or not classes:
        return None
    names = [", ".join(each) if _are_names(each) else each for each in classes]
    return names if _are_names(names) else None


def _are_names(values: Any) -> bool:
    return isinstance(values, list | tuple) and all(isinstance(each, str) for each in values)


def _as_label(label: Any, index: int) -> int:
    if label is None:
        return -1
    try:
        number = operator.index(label.item() if hasattr(label, "item") else label)
    except (TypeError, ValueError, RuntimeError):
        raise SourceError(
            f"sample {index}: the label is a {type(label).__name__}; records hold whole numbers"
        ) from None
    if not -(2**63) <= number < 2**63:
        raise SourceError(f"sample {index}: the label {number} does not fit into 64 bits")
    return number


def _as_image(image: Any, index: int) -> Any:
    import numpy as np
    import torch

    from fastloader.transforms._pillow import image_module

    module = image_module()
    if isinstance(image, EncodedImage):
        image = _as_file(image, index)
    if isinstance(image, bytes | bytearray | memoryview):
        return bytes(image)
    if isinstance(image, module.Image):
        return image
    if isinstance(image, torch.Tensor):
        if image.dtype is torch.uint8 and image.dim() == 3 and image.shape[0] in (1, 3):
            image = image.permute(1, 2, 0)
        image = image.numpy()
    if isinstance(image, np.ndarray) and image.dtype == np.uint8:
        if image.ndim == 3 and image.shape[2] == 1:
            image = image[:, :, 0]
        if image.ndim == 2 or (image.ndim == 3 and image.shape[2] == 3):
            return module.fromarray(np.ascontiguousarray(image))
    shape = f" of {image.dtype} {tuple(image.shape)}" if hasattr(image, "shape") else ""
    raise SourceError(
        f"sample {index}: the picture is a {type(image).__name__}{shape}; encoded bytes, Pillow images "
        "and uint8 arrays (height, width, 3) or tensors (3, height, width) can be packed"
    )


def _as_file(image: EncodedImage, index: int) -> bytes:
    """The bytes of a picture that is still encoded."""
    source = image.encoded
    if source.problem is not None:
        raise SourceError(f"sample {index}: {source.problem}")
    if image.transform is not None:
        raise SourceError(
            f"sample {index}: the picture has a transform, which would be lost: pack a dataset without "
            "one"
        )
    if source.path is None:
        return bytes(source.data)
    return whole_file(os.fsdecode(source.path))
