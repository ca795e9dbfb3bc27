"""``ImageDataset`` and its readers, as timm has them, with timm's rule for files that cannot be read."""

from __future__ import annotations

import logging
import os
import pickle
import re
from collections.abc import Callable, Sequence
from typing import Any

from torch.utils.data import Dataset

from fastloader.compat.timm.transforms import import_timm
from fastloader.transforms._pillow import naming, opened

# ---- The readers by which `ImageDataset` finds its pictures: for folders, and all those of
# timm.


IMG_EXTENSIONS = (".png", ".jpg", ".jpeg")

# The prefixes of ``reader=`` for which timm has other readers than the folder's.
_TIMMS = ("hfds", "hfids", "tfds", "wds")


def create_reader(name: str, root: Any, split: str = "train", **options: Any) -> Any:
    """Makes a reader as timm's function does. Folders are read here; timm reads .tar files and has the
    named readers ("tfds/...", "wds/...").

    Raises:
        ImportError: if timm is needed and is not installed; the error names the argument.
        FileNotFoundError: for a ``root`` that does not exist.
    """
    prefix = name.partition("/")[0].lower() if "/" in name else ""
    if prefix in _TIMMS:
        needed = f"reader={name!r}"
    elif root is None or not os.path.exists(root):
        raise FileNotFoundError(f"root={root!r}: no such file or folder")
    elif os.path.isfile(root):
        needed = f"root={os.fspath(root)!r}, which is a file,"
    else:
        given = {key: value for key, value in options.items() if value is not None}
        given.pop("additional_features", None)
        return ReaderImageFolder(os.fspath(root), **given)
    return import_timm(needed).create_reader(name, root=root, split=split, **options)


class ReaderImageFolder:
    """Finds pictures in folders at any depth, as timm does. The class of a picture is the name of its
    folder, and names are sorted naturally, "x9" before "x10".

    Args:
        root: The folder.
        class_map: The number of each class name, as a dict or as a file: .txt (a name a line) or .pkl (a
            pickled dict). Pictures of other classes are left out. "" (default) takes all classes,
            numbered in order.
        input_key: Extensions, separated by semicolons; None (default) takes .png, .jpg and .jpeg.

    Attributes: ``samples``: list of (path, class number); ``class_to_idx``.
    """

    def __init__(self, root: str, class_map: Any = "", input_key: str | None = None) -> None:
        self.root = root
        types = IMG_EXTENSIONS if not input_key else tuple(input_key.split(";"))
        found = list(_pictures(root, types))
        if class_map:
            self.class_to_idx = load_class_map(class_map, root)
        else:
            names = sorted({name for _path, name in found}, key=natural_key)
            self.class_to_idx = {name: number for number, name in enumerate(names)}
        self.samples = [
            (path, self.class_to_idx[name]) for path, name in found if name in self.class_to_idx
        ]
        self.samples.sort(key=lambda sample: natural_key(sample[0]))
        if not self.samples:
            raise RuntimeError(
                f"Found 0 images in subfolders of {root}. "
                f"Supported image extensions are {', '.join(types)}"
            )

    def __getitem__(self, index: int) -> tuple[Any, int]:
        path, target = self.samples[index]
        return open(path, "rb"), target  # closed by the dataset

    def __len__(self) -> int:
        return len(self.samples)

    def filename(self, index: int, basename: bool = False, absolute: bool = False) -> str:
        path = self.samples[index][0]
        if basename:
            return os.path.basename(path)
        return path if absolute else os.path.relpath(path, self.root)

    def filenames(self, basename: bool = False, absolute: bool = False) -> list[str]:
        return [self.filename(index, basename, absolute) for index in range(len(self))]


def _pictures(root: str, types: Sequence[str]) -> Any:
    """Gives (path, name of the folder); pictures in ``root`` itself have the name ""."""
    for folder, _inner, names in os.walk(root, topdown=False, followlinks=True):
        label = "" if folder == root else os.path.basename(os.path.relpath(folder, root))
        for name in names:
            if os.path.splitext(name)[1].lower() in types:
                yield os.path.join(folder, name), label


def natural_key(text: str) -> list[Any]:
    """Returns the key that sorts digits as numbers and ignores case."""
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", text.lower())]


def load_class_map(map_or_file: Any, root: str = "") -> dict[str, int]:
    """Loads a class map; see `ReaderImageFolder`.

    Raises:
        FileNotFoundError, ValueError: if the file does not exist, or is no class map.
    """
    if isinstance(map_or_file, dict):
        return map_or_file
    path = os.fspath(map_or_file)
    if not os.path.exists(path):
        path = os.path.join(root, path)
    if not os.path.exists(path):
        raise FileNotFoundError(f"class_map={map_or_file!r}: no such file, in {root} neither")
    extension = os.path.splitext(path)[1].lower()
    if extension == ".txt":
        with open(path, encoding="utf-8") as file:
            return {line.strip(): number for number, line in enumerate(file)}
    if extension != ".pkl":
        raise ValueError(f"class_map={map_or_file!r}: use a dict, a .txt or a .pkl file")
    with open(path, "rb") as file:
        loaded = _PlainUnpickler(file).load()
    if not isinstance(loaded, dict):
        raise ValueError(f"class_map={map_or_file!r} holds a {type(loaded).__name__}, no dict")
    return loaded


class _PlainUnpickler(pickle.Unpickler):
    """Refuses every import: a class map is made of built-in types, and only a crafted file needs one."""

    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(
            f"a class map holds names and numbers only, not {module}.{name}"
        )


# ---- ``ImageDataset``, which is timm's, with timm's rule for files that cannot be read.


_log = logging.getLogger("fastloader")


class ImageDataset(Dataset[Any]):
    """Gives samples ``(picture, target)``.

    Args:
        root: A folder of pictures, or what else timm's readers take.
        reader: With None (default), ``root`` is a folder; see `ReaderImageFolder`. A name such as
            "tfds/..." is one of timm's readers, which needs timm. An object gives (file, target) for an
            index.
        split, class_map: Passed to the reader.
        load_bytes: Whether samples hold the file's bytes instead of a picture; default False.
        input_img_mode: Pillow's mode of pictures; default "RGB". "" or None leaves the file's mode.
        transform, target_transform: Functions of the picture and of the target; default None.
        additional_features: Unless None (default), samples also hold what the reader gives after the
            target.
        kwargs: Passed to the reader.

    A file that cannot be read (OSError) is skipped with a warning, and the next one is taken in its
    place. After ``TIMM_DATASET_MAX_RETRIES`` (environment; default 10) such files in a row, a
    RuntimeError is raised. ``skipped`` counts them in this process, and FastLoader's native path counts
    them in ``stats()["images"]["bad"]``. A target of None is -1.
    """

    def __init__(
        self,
        root: Any,
        reader: Any = None,
        split: str = "train",
        class_map: Any = None,
        load_bytes: bool = False,
        input_img_mode: str | None = "RGB",
        transform: Callable[[Any], Any] | None = None,
        target_transform: Callable[[Any], Any] | None = None,
        additional_features: Any = None,
        **kwargs: Any,
    ) -> None:
        if reader is None or isinstance(reader, str):
            reader = create_reader(
                reader or "",
                root=root,
                split=split,
                class_map=class_map,
                additional_features=additional_features,
                **kwargs,
            )
        self.reader = reader
        self.load_bytes = load_bytes
        self.input_img_mode = input_img_mode
        self.transform = transform
        self.target_transform = target_transform
        self.additional_features = additional_features
        self.skipped = 0
        self._max_retries = int(os.environ.get("TIMM_DATASET_MAX_RETRIES") or 10)
        if self._max_retries < 1:
            raise ValueError(f"TIMM_DATASET_MAX_RETRIES={self._max_retries}: at least one try")

    def __getitem__(self, index: int) -> Any:
        image, target, features = self._read(index)
        if self.transform is not None:
            image = self.transform(image)
        if target is None:
            target = -1
        elif self.target_transform is not None:
            target = self.target_transform(target)
        if self.additional_features is None:
            return image, target
        return image, target, *features

    def _read(self, index: int) -> tuple[Any, Any, list[Any]]:
        last: OSError | None = None
        for _ in range(self._max_retries):
            try:
                file, target, *features = self.reader[index]
                return self._open(file), target, features
            except OSError as error:
                _log.warning("Skipped sample (index %s). %s", index, error)
                self.skipped += 1
                last = error
                index = (index + 1) % len(self.reader)
        raise RuntimeError(f"Failed to load {self._max_retries} consecutive samples") from last

    def _open(self, file: Any) -> Any:
        if self.load_bytes:
            with file:
                return file.read()
        with naming(str(getattr(file, "name", "")), repr(file)):
            image = opened(file)
            if not self.input_img_mode:
                if image.fp is not file and hasattr(file, "close"):
                    file.close()  # because a JPEG is in memory
                return image  # not decoded, and with its file open, as in timm
            with image:
                converted = image.convert(self.input_img_mode)
        if hasattr(file, "close"):  # Pillow closes only what it has opened itself
            file.close()
        return converted

    def __len__(self) -> int:
        return len(self.reader)

    def filename(self, index: int, basename: bool = False, absolute: bool = False) -> Any:
        """Returns the name of a sample's file, relative to the root."""
        return self.reader.filename(index, basename, absolute)

    def filenames(self, basename: bool = False, absolute: bool = False) -> Any:
        return self.reader.filenames(basename, absolute)
