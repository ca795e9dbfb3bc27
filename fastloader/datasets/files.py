"""``ImageFolder`` and ``ListImages``: pictures in files of their own, on a disk or in an object
store."""

from __future__ import annotations

import array
import csv
import json
import logging
import os
import posixpath
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Protocol

import numpy as np

from fastloader._core.machine import extension
from fastloader._core.machine.messages import SILENT, progress
from fastloader.datasets._formats.mapped_file import SeekFile, found_beside
from fastloader.datasets._formats.paths import is_url, walk
from fastloader.datasets._formats.sample_form import (
    NoColumn,
    SampleForm,
    checked_columns,
    shown_dataset,
)
from fastloader.datasets._remote.shard_cache import ShardCache
from fastloader.datasets.picture_source import PictureSource
from fastloader.datasets.pictures import Pictures, checked_index
from fastloader.transforms._pillow import open_rgb, regular_file

# ---- Files that are objects in a store.


class WholeObjects(Protocol):
    """Reads objects whole, by their URLs, and counts what it did."""

    def whole(self, urls: Sequence[str]) -> list[Any]: ...

    def counts(self) -> dict[str, int]: ...


# ---- Pictures in files, one each, in flat arrays.


class FileList(Pictures):
    """Pictures that are files of their own. The path of file i is the bytes of ``paths`` from
    ``ends[i - 1]`` (0 for the first) to ``ends[i]``, uint8 and uint64 arrays, and its label is
    ``targets[i]``. ``form``: what else is in a sample. ``seek_file``: where seek indices of its JPEGs
    are, or None. ``cache``: how to reach the store, if the paths are URLs; None: they are files of this
    machine."""

    paths: Any
    ends: Any
    seek_file: SeekFile | None = None
    cache: WholeObjects | None = None

    @property
    def samples(self) -> Samples:
        return Samples(self)

    imgs = samples

    def path(self, index: int) -> str:
        """Returns the path of sample ``index``."""
        begin = int(self.ends[index - 1]) if index else 0
        return os.fsdecode(self.paths[begin : int(self.ends[index])].tobytes())

    def __len__(self) -> int:
        return len(self.ends)

    def __repr__(self) -> str:
        root = getattr(self, "root", None)
        return shown_dataset(self, {"Root location": root} if root else {})

    def name(self, index: int) -> str:
        """Returns the path or URL of the picture."""
        return self.path(checked_index(index, len(self)))

    def image_bytes(self, index: int) -> bytes:
        """Reads the encoded picture, as it is in its file."""
        path = self.path(checked_index(index, len(self)))
        if self.cache is not None:
            return bytes(self.cache.whole([path])[0])
        with regular_file(path) as file:
            return bytes(file.read())

    # A subclass may call anything of its own `name` or `image_bytes`, as torchvision's may: a sample
    # needs neither of them.

    def open_rgb(self, index: int) -> Any:
        """Opens a picture through Pillow, in RGB, and upright if ``upright`` says so."""
        index = checked_index(index, len(self))
        if self.cache is None:
            return open_rgb(self.path(index), self.upright)
        return self.sources([index])[0].open_rgb(self.upright)

    def sources(self, indices: list[int]) -> list[PictureSource]:
        """Returns the pictures; those of a store are read at the same time."""
        paths = [self.path(index) for index in indices]
        if self.cache is None:
            return [PictureSource(path) for path in paths]
        return [PictureSource(*each) for each in zip(self.cache.whole(paths), paths, strict=True)]

    def _own_files(self) -> tuple[Any, Any, Sequence[SeekFile]]:
        return self.paths, self.ends, () if self.seek_file is None else (self.seek_file,)

    def _elsewhere(self) -> str | None:
        return None if self.cache is None else "the pictures are objects in a store"


class Samples(Sequence[tuple[str, int]]):
    """The (path, class number) of each sample, made when it is asked for."""

    def __init__(self, folder: FileList) -> None:
        self._folder = folder

    def __len__(self) -> int:
        return len(self._folder)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        index = checked_index(index, len(self))
        return self._folder.path(index), int(self._folder.targets[index])

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence):
            return NotImplemented
        return len(self) == len(other) and all(a == b for a, b in zip(self, other))

    __hash__ = None  # type: ignore[assignment]


# ---- Folders of classes in an object store, by the names of the objects.


def class_files(root: str, cache: ShardCache) -> dict[str, list[str]]:
    """Lists the URLs below each folder in ``root``, by the folder's name, in the order in which a walk
    over a disk meets them: folders sorted by their whole path, names sorted in each."""
    begin = len(root.rstrip("/")) + 1
    found: dict[str, list[str]] = {}
    for each in cache.connection.below(root):
        name, slash, rest = each.url[begin:].partition("/")
        if slash and rest:
            found.setdefault(name, []).append(each.url)
    for urls in found.values():
        urls.sort(key=posixpath.split)
    return found


# ---- ``ImageFolder``: pictures in one folder per class.


_log = logging.getLogger("fastloader")

IMG_EXTENSIONS = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")


class ImageFolder(FileList, called="folders"):
    """Pictures in ``root/class/...``, with torchvision's semantics.

    Class folders are sorted by name. Within a class, files are found at any depth, with folders and
    names sorted. What a loader needs lies in three flat arrays, which take twelve bytes a picture
    besides its path. There is no Python object per sample.

    A folder in an object store (``s3://``, ``gs://``, ``az://``) is listed here, and workers read a
    batch's pictures at the same time, each by a request of its own. The decode threads decode them.
    Tar shards (`TarImages`) take far fewer requests.

    Args:
        root: The folder of class folders, or its URL.
        transform: The function that is applied to each picture: one of `fastloader.transforms`, which
            FastLoader does natively, one of torchvision's, or any function of a Pillow image. With None
            (default), samples are (Pillow image, class).
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

            def accepted() -> Iterator[tuple[str, int]]:
                for name, number in numbers.items():
                    files = (
                        _files(os.path.join(self.root, name)) if self.cache is None else found[name]
                    )
                    for path in files:
                        if take(path):
                            yield path, number
                        line.step()

            self.samples = accepted()
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
        """The (path, class number) of each sample: a sequence that makes the pairs when they are asked
        for. A list of such pairs may be assigned, and the next epoch then has these."""
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


# ---- ``ListImages``: pictures that a table names.


_WHOLE = re.compile(r"^\s*[+-]?[0-9]+(\.0*)?\s*$")
_DELIMITERS = {".csv": ",", ".tsv": "\t"}


class ListImages(FileList, called="lists of pictures"):
    """Pictures that a CSV, TSV or JSON file lists, with a label each.

    Args:
        file: The list. ``.csv`` and ``.tsv``: a line for each picture, the first of which names the
            columns. ``.json``: a list of objects, or an object of lists (columns); ``.jsonl``: an object
            a line.
        transform: The function that is applied to each picture, as in `ImageFolder`; default None.
        target_transform: A function of the label; None (default) leaves the label.
        path: The column of paths.
        label: The column of labels; None: there is none, and labels are -1. If all are whole numbers,
            they are the labels. Otherwise they are the names of classes, which are numbered in sorted
            order.
        classes: The names of classes in the order of their numbers, such as those of the training list:
            a list that lacks a class would number the others differently. Default None: the names that
            stand in the list, sorted.
        columns: Further columns of which a sample has the values: text from a ``.csv`` or ``.tsv``,
            any value from a ``.json`` or ``.jsonl``. Default: none.
        as_dict: Whether a sample is a dict with the keys "pixel_values", "labels" and the names of the
            columns. Default False: (picture, label), and then the columns.
        root: The folder to which paths are relative; default None, the folder of the list.

    Attributes:
        targets: the labels, an int64 array.
        classes: the names, sorted, or None.
        class_to_idx: name to label, or None.
        samples: sequence of (path, label).

    Files are read when their samples are asked for. One that is missing is an error then.

    Raises:
        FileNotFoundError: if there is no such list.
        KeyError: if it has no such column.
        ValueError: if a line lacks a column or has one too many, if a label is none of ``classes``, or
            if the list is of another kind or empty.
    """

    def __init__(
        self,
        file: str | os.PathLike[str],
        transform: Callable[[Any], Any] | None = None,
        target_transform: Callable[[int], Any] | None = None,
        *,
        path: str = "path",
        label: str | None = "label",
        classes: Sequence[str] | None = None,
        columns: Sequence[str] = (),
        as_dict: bool = False,
        root: str | os.PathLike[str] | None = None,
    ) -> None:
        self.file = os.path.abspath(os.path.expanduser(os.fspath(file)))
        self.transform = transform
        self.target_transform = target_transform
        self.root = (
            os.path.dirname(self.file)
            if root is None
            else os.path.abspath(os.path.expanduser(root))
        )
        self.columns = checked_columns(columns)
        self.form = SampleForm.of(self.columns, self._rest, as_dict)
        paths, labels, self._values = _read(self.file, path, label, self.columns)
        if not paths:
            raise ValueError(f"{self.file} lists no picture")
        encoded = [os.fsencode(os.path.join(self.root, each)) for each in paths]
        self.paths = np.frombuffer(b"".join(encoded), np.uint8)
        self.ends = np.cumsum([len(each) for each in encoded], dtype=np.uint64)
        self.classes, self.targets = _numbered(labels, len(paths), classes, self.file)
        self.class_to_idx = None
        if self.classes is not None:
            self.class_to_idx = {name: number for number, name in enumerate(self.classes)}

    def _rest(self, indices: list[int]) -> list[tuple[Any, ...]]:
        """Returns the further columns of these samples."""
        return [self._values[index] for index in indices]


def _read(
    file: str, path: str, label: str | None, columns: list[str]
) -> tuple[list[str], list[Any] | None, list[tuple[Any, ...]]]:
    """Reads the list: returns the paths, the labels or None, and the further columns of each row."""
    paths: list[str] = []
    labels: list[Any] = []
    values: list[tuple[Any, ...]] = []
    for where, row in _rows(file):
        for column in (path, label, *columns):
            if column is None:
                continue
            if column not in row:
                there = ", ".join(repr(each) for each in row)
                raise NoColumn(
                    f"{file}: no column {column!r}; there are {there}{_hint(row, column, path, label)}"
                )
            if column in (path, label) and row[column] in (None, ""):
                raise ValueError(f"{where}: column {column!r} is empty")
        if not isinstance(row[path], str):
            raise ValueError(f"{where}: the path is {row[path]!r}, no text")
        paths.append(row[path])
        if label is not None:
            labels.append(row[label])
        values.append(tuple(row[column] for column in columns))
    return paths, None if label is None else labels, values if columns else []


def _hint(row: dict[str, Any], missing: str, path: str, label: str | None) -> str:
    """Suggests which column a missing one could be, if the values of a row tell."""
    if missing == path:
        named = [name for name, value in row.items() if str(value).lower().endswith(IMG_EXTENSIONS)]
        return (
            f". If {named[0]!r} has the paths: ListImages(file, path={named[0]!r})" if named else ""
        )
    return ". If there are no labels: label=None" if missing == label else ""


def _rows(file: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Gives each row by its columns, and where it stands."""
    try:
        yield from _parsed(file)
    except (json.JSONDecodeError, csv.Error, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"{file}: {error}") from None


def _parsed(file: str) -> Iterator[tuple[str, dict[str, Any]]]:
    ending = os.path.splitext(file)[1].lower()
    with open(file, newline="", encoding="utf-8-sig") as lines:
        if ending == ".json":
            yield from _rows_of_json(file, json.load(lines))
        elif ending == ".jsonl":
            for number, line in enumerate(lines, 1):
                if line.strip():
                    row = json.loads(line)
                    if not isinstance(row, dict):
                        raise ValueError(f"{file}, line {number}: no object")
                    yield f"{file}, line {number}", row
        elif ending in _DELIMITERS:
            reader = csv.DictReader(lines, delimiter=_DELIMITERS[ending])
            names = reader.fieldnames or []
            if len(set(names)) < len(names):
                raise ValueError(f"{file}: two columns have one name: {', '.join(names)}")
            for row in reader:
                if None in row or None in row.values():
                    more = "more" if None in row else "fewer"
                    raise ValueError(
                        f"{file}, line {reader.line_num}: {more} values than columns; text with a "
                        "delimiter stands in quotes"
                    )
                yield f"{file}, line {reader.line_num}", row
        else:
            raise ValueError(f"{file}: lists are .csv, .tsv, .json and .jsonl files")


def _rows_of_json(file: str, content: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    if isinstance(content, dict) and all(isinstance(each, list) for each in content.values()):
        lengths = {name: len(each) for name, each in content.items()}
        if len(set(lengths.values())) > 1:
            raise ValueError(f"{file}: its columns differ in length: {lengths}")
        content = [dict(zip(content, row)) for row in zip(*content.values())]
    if not isinstance(content, list) or not all(isinstance(row, dict) for row in content):
        raise ValueError(f"{file}: neither a list of objects nor an object of lists")
    for number, row in enumerate(content):
        yield f"{file}, row {number}", row


def _numbered(
    labels: list[Any] | None, count: int, classes: Sequence[str] | None, file: str
) -> tuple[list[str] | None, Any]:
    """Numbers the labels: returns the names of the classes, or None, and the labels."""
    if labels is None:
        return None, np.full(count, -1, np.int64)
    numbers = None if classes is not None else [_whole_number(label) for label in labels]
    if numbers is not None and None not in numbers:
        return None, np.array(numbers, np.int64)
    texts = [str(label) for label in labels]
    names = sorted(set(texts)) if classes is None else list(classes)
    number_of = {name: number for number, name in enumerate(names)}
    unknown = sorted(set(texts) - set(names))
    if unknown:
        raise ValueError(f"{file}: {', '.join(unknown[:5])}: not among the classes")
    return names, np.array([number_of[text] for text in texts], np.int64)


def _whole_number(label: Any) -> int | None:
    """Returns the label as an int, or None if it is no whole number. "1.0" is one: pandas writes that
    where a column had gaps."""
    if isinstance(label, bool):
        return None
    try:
        if isinstance(label, str):
            return int(label.partition(".")[0]) if _WHOLE.match(label) else None
        return int(label) if label == int(label) else None
    except (ValueError, TypeError, OverflowError):
        return None
