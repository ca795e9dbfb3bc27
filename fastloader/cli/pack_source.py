"""The sources of ``fastloader pack``: a folder of pictures, or any dataset of pictures or arrays."""

from __future__ import annotations

import dataclasses
import hashlib
import importlib
import io
import numbers
import operator
import os
import re
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from fastloader import datasets
from fastloader._core.machine import extension
from fastloader._core.machine.identity import function_change
from fastloader._core.sources.recognize import own_samples
from fastloader.datasets.arrays import KINDS, ArrayFolder, PackedArray
from fastloader.datasets.pictures import formats
from fastloader.encoded_image import EncodedImage
from fastloader.transforms._pillow import whole_file

# ---- What ends a packing.


class SourceError(Exception):
    """Ends the packing with a message and no traceback."""


# ---- Samples of arrays, as ``fastloader pack`` packs them.


@dataclasses.dataclass(frozen=True)
class ArraySource:
    """A dataset whose samples are arrays, or tuples of arrays and numbers, of the same dtypes and
    shapes. ``folder``: what of it is packed, nothing so far. ``sample``: gives one by its
    number."""

    folder: ArrayFolder
    sample: Callable[[int], Any]

    @classmethod
    def of(cls, sample: Callable[[int], Any], count: int, identity: str, first: Any) -> ArraySource:
        """Makes the source. ``first``: the dataset's first sample, which the others have to be like."""
        arrays = [
            PackedArray(f"{number}.npy", array.dtype.str, array.shape)
            for number, array in enumerate(_arrays(first, 0))
        ]
        single = not isinstance(first, tuple | list)
        return cls(ArrayFolder(arrays, single, identity, count), sample)

    def read(self, index: int) -> list[bytes]:
        """Reads the bytes of each array of a sample.

        Raises:
            SourceError: which names the sample, if it is not like the first one.
        """
        sample = self.sample(index)
        found = _arrays(sample, index)
        wanted = self.folder.arrays
        if isinstance(sample, tuple | list) == self.folder.single or len(found) != len(wanted):
            raise SourceError(
                f"sample {index} is {_shapes(found)}, and sample 0 is {_shapes(wanted)}"
            )
        for number, (array, packed) in enumerate(zip(found, wanted, strict=True)):
            if array.dtype.str != packed.dtype or array.shape != packed.shape:
                raise SourceError(
                    f"sample {index}: array {number} is {_shapes([array])}, and that of sample 0 is "
                    f"{_shapes([packed])}: arrays of one dtype and shape can be packed"
                )
        return [array.tobytes() for array in found]

    def __str__(self) -> str:
        return _shapes(self.folder.arrays)


def holds_arrays(sample: Any) -> bool:
    """Returns whether a sample is an array, or a tuple of arrays and numbers."""
    parts = list(sample) if isinstance(sample, tuple | list) else [sample]
    return any(map(_is_array, parts)) and all(_is_array(each) or _is_number(each) for each in parts)


def _is_array(value: Any) -> bool:
    import torch

    return isinstance(value, torch.Tensor | np.ndarray) and value.ndim > 0


def _is_number(value: Any) -> bool:
    if isinstance(value, numbers.Number | np.generic):
        return True
    return hasattr(value, "ndim") and value.ndim == 0


def _arrays(sample: Any, index: int) -> list[Any]:
    parts = sample if isinstance(sample, tuple | list) else [sample]
    return [_array(each, f"sample {index}: array {number}") for number, each in enumerate(parts)]


def _array(value: Any, where: str) -> Any:
    """Returns the array in the machine's byte order, of a dtype that torch has."""
    import torch

    try:
        if isinstance(value, torch.Tensor):
            value = value.detach().cpu().numpy()
        array = np.asarray(value)
        if array.dtype.kind not in KINDS:
            raise TypeError(f"arrays of {array.dtype}")
        array = array.astype(array.dtype.newbyteorder("="), copy=False)
        torch.from_numpy(np.empty(0, array.dtype))
    except (TypeError, ValueError, RuntimeError) as error:
        raise SourceError(
            f"{where} is a {type(value).__name__}, which numpy and torch do not both have ({error}): "
            "arrays of numbers, and numbers, can be packed"
        ) from None
    return array


def _shapes(arrays: Any) -> str:
    return ", ".join(f"{np.dtype(each.dtype)} {tuple(each.shape)}" for each in arrays)


_ORIENTATION = 0x0112  # EXIF's tag
_EXPRESSION = re.compile(r"^([A-Za-z_][\w.]*):(.+)$", re.DOTALL)


@dataclasses.dataclass(frozen=True)
class Sample:
    """One sample to pack. ``image`` is an encoded file (bytes), or a Pillow image still to be
    encoded."""

    image: Any
    label: int
    name: str
    anew: bool = False
    """Whether ``image`` was a file and is another one now."""
    seek_index: bytes = b""
    """Of a file: empty if it has none."""


@dataclasses.dataclass(frozen=True)
class PackSource:
    """A dataset of pictures. ``identity`` is the same for the same samples in the same order, as far as
    their names tell."""

    count: int
    classes: list[str] | None
    identity: str
    read: Callable[[int], Sample]


def open_source(text: str) -> PackSource | ArraySource:
    """Opens a folder of class folders, or ``module:expression`` for a dataset."""
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
    """Reads the first sample; None if there is none.

    Raises:
        SourceError: if it cannot be read. What kind of samples these are is not known then.
    """
    try:
        return dataset[0] if count else None
    except Exception as error:
        raise SourceError(f"sample 0: {type(error).__name__}: {error}") from error


def _is_picture(sample: Any) -> bool:
    """Returns whether a sample of arrays is a picture, or a picture and a number."""
    image, label = _parts(sample)
    try:
        _as_image(image, 0)
    except SourceError:
        return False
    return not holds_arrays(label)


def _parts(sample: Any) -> tuple[Any, Any]:
    """Splits a sample into (picture, label), if it is of pictures."""
    if isinstance(sample, list | tuple) and len(sample) == 2:
        return sample[0], sample[1]
    return sample, -1


def _as_sample(item: Any, index: int) -> Sample:
    image, label = _parts(item)
    return Sample(_as_image(image, index), _as_label(label, index), str(index))


def _gives_files(dataset: Any) -> bool:
    """Returns whether the dataset is one of our own or of a format, whose samples are encoded pictures
    and labels as they lie there."""
    kind = type(dataset)
    ours = [getattr(datasets, name) for name in datasets.__all__]
    known = kind in ours or (kind in formats() and not own_samples(kind))
    if not known or not isinstance(dataset, datasets.Pictures) or getattr(dataset, "legacy", False):
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
    """Reads the encoded picture. One that its dataset turns as EXIF says is given upright, to be encoded
    anew: a packed file does not turn pictures."""
    from fastloader.transforms._pillow import opened

    encoded = dataset.image_bytes(index)
    if getattr(dataset, "upright", False):
        with opened(io.BytesIO(encoded), dataset.name(index)) as picture:
            if picture.getexif().get(_ORIENTATION, 1) != 1:
                return dataset.open_rgb(index)
    return encoded


def _is_folder(dataset: Any) -> bool:
    """Returns whether it is an ImageFolder, torchvision's or ours, whose samples are the pictures in its
    files, so that these can be packed as they are. A subclass or a loader of the user's own may make
    anything of them."""
    from fastloader.datasets.files import FileList

    get = getattr(type(dataset), "__getitem__", None)
    if not isinstance(dataset, FileList) or get is not FileList.__getitem__:
        home = "torchvision.datasets.folder"
        read = {
            "DatasetFolder.__getitem__": get,
            "default_loader": getattr(dataset, "loader", None),
        }
        if any(function_change(each, home, name) != "" for name, each in read.items()):
            return False
    return dataset.transform is None and dataset.target_transform is None


def _class_names(dataset: Any) -> list[str] | None:
    """Returns the names of the classes. The synonyms that torchvision's ImageNet gives for a class
    become one name."""
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
    """Reads the bytes of a picture that is still encoded."""
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


# ---- How ``fastloader pack`` stores pictures.


@dataclasses.dataclass(frozen=True)
class Encoding:
    """The way in which pictures are stored: as they are unless ``max_side`` or ``quality`` ask for less.
    Pictures that come without a file are stored as PNG, which loses nothing, unless ``quality`` is
    given. ``recode``: "baseline" writes progressive JPEGs anew as sequential ones of the same pixels.
    ``index``: whether JPEGs get a seek index; None: that is still to be decided, by `decided`."""

    max_side: int | None = None
    quality: int | None = None
    recode: str | None = None
    index: bool | None = None

    def __post_init__(self) -> None:
        if self.recode is not None and self.quality is not None:
            raise SourceError("--quality writes every picture anew: leave --recode out")
        if self.recode is not None and (extension.load() is None or extension.lacks_libjpeg()):
            raise SourceError(
                "--recode is done by the native module with libjpeg-turbo, which this installation "
                "lacks: `fastloader doctor` says why"
            )
        if self.index and extension.load() is None:
            raise SourceError(
                "--index is done by the native module, which this installation lacks: "
                "`fastloader doctor` says why"
            )

    def decided(self, kept: dict[str, Any] | None) -> Encoding:
        """Decides ``index``: as in the options of the file that is gone on with, or for a new file,
        None, wherever the native module can make one."""
        if self.index is not None:
            return self
        able = extension.load() is not None
        return dataclasses.replace(self, index=able if kept is None else bool(kept.get("index")))

    def options(self) -> dict[str, Any]:
        """Returns the options as the file keeps them. What is not used is left out, as in files from
        before it came."""
        kept: dict[str, Any] = {"max_side": self.max_side, "quality": self.quality}
        if self.recode is not None:
            kept["recode"] = self.recode
        if self.index:
            kept["index"] = True
        return kept

    def seek_index(self, file: bytes) -> bytes:
        """Makes the seek index of a file as it will be stored."""
        if not self.index:
            return b""
        return extension.native.jpeg_seek_index(file) or b""

    def encode(self, image: Any) -> bytes:
        """Makes the bytes of a file, from those of a file or from a Pillow image."""
        from fastloader.transforms._pillow import image_module, opened

        module = image_module()
        if isinstance(image, bytes):
            if self.max_side is None and self.quality is None:
                return self._sequential(image)
            with opened(io.BytesIO(image)) as encoded:
                if self.quality is None and max(encoded.size) <= (self.max_side or 0):
                    return self._sequential(image)
                picture = encoded.convert("RGB")
        else:
            picture = image
        longest = max(picture.size)
        if self.max_side is not None and longest > self.max_side:
            size = tuple(max(1, round(edge * self.max_side / longest)) for edge in picture.size)
            picture = picture.resize(size, module.Resampling.LANCZOS)
        out = io.BytesIO()
        if self.quality is None and not isinstance(image, bytes):
            picture.save(out, "PNG")
        else:
            picture.convert("RGB").save(out, "JPEG", quality=self.quality or 90)
        return out.getvalue()

    def _sequential(self, file: bytes) -> bytes:
        if self.recode is None:
            return file
        sequential = extension.native.jpeg_as_sequential(file)
        return file if sequential is None else sequential
