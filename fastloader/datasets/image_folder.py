"""``ImageFolder``: pictures in one folder per class."""

from __future__ import annotations

import array
import logging
import os
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from fastloader._core.machine import extension
from fastloader._core.machine.messages.progress import SILENT, progress
from fastloader.datasets._formats.files.file_list import FileList, Samples
from fastloader.datasets._formats.files.seek_file import SeekFile, found_beside
from fastloader.datasets._formats.files.walk import walk
from fastloader.datasets._formats.urls import is_url
from fastloader.datasets._remote.cache.shard_cache import ShardCache
from fastloader.datasets._remote.class_files import class_files

_log = logging.getLogger("fastloader")

IMG_EXTENSIONS = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")


class ImageFolder(FileList):
    """Pictures in ``root/class/...``, with torchvision's semantics.

    Class folders are sorted by name. Within a class, files are found at any depth, with folders and
    names sorted. What a loader needs lies in three flat arrays, which take twelve bytes a picture
    besides its path. There is no Python object per sample.

    A folder in an object store (``s3://``, ``gs://``, ``az://``) is listed here, and workers read a
    batch's pictures at the same time, each by a request of its own. The decode threads decode them.
    Tar shards (`TarImages`) take far fewer requests.

    Args:
        root: The folder of class folders, or its URL.
        transform: What becomes of a picture: `fastloader.transforms` (which FastLoader does natively),
            torchvision's, or any function of a Pillow image. With None (default), samples are (Pillow
            image, class).
        target_transform: A function of the class number; None (default) leaves the number.
        is_valid_file: Tells whether to take a path; None (default) takes the extensions of
            ``IMG_EXTENSIONS``.
        allow_empty: Whether to accept classes without a picture; default False.
        index: The file of seek indices that ``fastloader index`` made, with which decoding a crop of a
            JPEG takes less time. "auto" (default) uses ``<root>.fastloader-index`` if it exists, and
            warns if that is damaged. None uses none. A path uses that file. Pixels are the same in each
            case. Without the native module, the argument is ignored, and for a URL there is none.
            docs/seek-index.md has the rest.
        cache: How to reach the store of a URL; nothing is kept in it. Default None: a `ShardCache` with
            its defaults. Not used for a path.

    Attributes:
        classes: names, sorted.
        class_to_idx: name to number.
        samples: sequence of (path, class number). ``imgs`` is the same.
        targets: class numbers, an int32 array.
        extensions: those that were taken, None with ``is_valid_file``.

    A chain of `fastloader.transforms` that does not end in a tensor gets PILToTensor at its end. A
    sample is then (uint8 tensor of shape (3, height, width), class).

    Raises:
        FileNotFoundError: if there is no class folder or, unless ``allow_empty``, a class without
            picture. Also if ``index`` is the path of no file.
        ValueError: if ``index`` is the path of a file that is damaged or of another version, or is given
            for a URL. Also for the URL of a web server, which has no lists of files.
        ImportError: for a URL, if obstore is missing.
        fastloader.errors.Error: for a URL, if the store cannot be read.
    """

    seek_file: SeekFile | None = None

    def __init__(
        self,
        root: str | os.PathLike[str],
        transform: Callable[[Any], Any] | None = None,
        target_transform: Callable[[int], Any] | None = None,
        *,  # torchvision's fourth is ``loader``, which does not exist here
        is_valid_file: Callable[[str], bool] | None = None,
        allow_empty: bool = False,
        index: str | os.PathLike[str] | None = "auto",
        cache: ShardCache | None = None,
    ) -> None:
        self.root = os.path.expanduser(os.fspath(root))
        self.transform = transform
        self.target_transform = target_transform
        self.extensions = None if is_valid_file else IMG_EXTENSIONS
        if is_url(self.root):
            if index not in ("auto", None):
                raise ValueError(
                    f"index={index!r}: pictures that come from a URL have no seek indices"
                )
            kept, index = cache or ShardCache(), None
            found = class_files(self.root, kept)
            self.cache = kept
            self.classes = sorted(found)
        else:
            self.classes = sorted(entry.name for entry in os.scandir(self.root) if entry.is_dir())
        if not self.classes:
            raise FileNotFoundError(f"Couldn't find any class folder in {self.root}.")
        self.class_to_idx = {name: number for number, name in enumerate(self.classes)}

        numbers = self.class_to_idx
        take = is_valid_file or _has_extension
        begun = time.monotonic()
        with progress(f"scanning {self.root}", None, "files", SILENT) as line:

            def taken() -> Iterator[tuple[str, int]]:
                for name, number in numbers.items():
                    files = (
                        _files(os.path.join(self.root, name)) if self.cache is None else found[name]
                    )
                    for path in files:
                        if take(path):
                            yield path, number
                        line.step()

            self.samples = taken()
        seconds = time.monotonic() - begun
        _log.info("fastloader: %s: %d pictures, in %.2f s", self.root, len(self), seconds)
        counts = np.bincount(self.targets, minlength=len(numbers))
        empty = [name for name, number in numbers.items() if not counts[number]]
        if empty and not allow_empty:
            text = f"Found no valid file for the classes {', '.join(empty)}. "
            if is_valid_file is None:
                text += f"Supported extensions are: {', '.join(IMG_EXTENSIONS)}"
            raise FileNotFoundError(text)
        self.seek_file = _seek_file(self.root, index)

    @property
    def samples(self) -> Samples:
        """The (path, class number) of each sample: a sequence that makes them when they are asked for.
        A list of such pairs may be assigned. The next epoch has these."""
        return Samples(self)

    @samples.setter
    def samples(self, pairs: Iterable[tuple[str | os.PathLike[str], int]]) -> None:
        paths = bytearray()
        ends, targets = array.array("Q"), array.array("i")
        for path, target in pairs:
            paths += os.fsencode(path)
            ends.append(len(paths))
            targets.append(target)
        self.paths = np.frombuffer(bytes(paths), dtype=np.uint8)
        self.ends = np.frombuffer(ends.tobytes(), dtype=np.uint64)
        self.targets = np.frombuffer(targets.tobytes(), dtype=np.int32)

    imgs = samples


def _seek_file(root: str, index: str | os.PathLike[str] | None) -> SeekFile | None:
    if index is None or extension.load() is None:
        return None
    return found_beside(root) if index == "auto" else SeekFile(index)


def _has_extension(path: str) -> bool:
    return path.lower().endswith(IMG_EXTENSIONS)


def _files(folder: str) -> Iterator[str]:
    """Gives files in torchvision's order: folders sorted by their whole path, names sorted in each,
    links followed."""
    for parent, _folders, names in sorted(walk(folder)):
        for name in sorted(names):
            yield os.path.join(parent, name)
