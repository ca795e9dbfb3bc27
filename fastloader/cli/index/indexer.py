"""Makes the seek indices of a folder's pictures."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator
from typing import NamedTuple

from fastloader._core.machine import extension
from fastloader._core.machine.limits import available_threads
from fastloader._core.machine.messages.progress import progress
from fastloader.cli.ahead import ahead
from fastloader.cli.index.writer import SeekWriter, WritingError
from fastloader.cli.ray_tasks import on_ray
from fastloader.datasets import ImageFolder
from fastloader.datasets._formats.mapped_file import default_path
from fastloader.datasets._formats.paths import files_once
from fastloader.transforms._pillow import regular_file, rest_of

_BEGIN_OF_JPEG = b"\xff\xd8"
_EXTENSIONS = (".jpg", ".jpeg", ".jpe", ".jfif")


class IndexingError(Exception):
    """Ends the command with a message and no traceback."""


class _Indexed(NamedTuple):
    """``record``: the seek index. It is None for a picture that needs none, or can have none."""

    record: bytes | None
    picture_bytes: int


def index(folder: str, out: str | None, workers: int | None, ray: str | None = None) -> None:
    """Writes the file of seek indices of a folder, and prints what it did. ``ray``: the address of a
    cluster whose tasks read and parse; None for threads of this process."""
    path = out or default_path(folder)
    folder = os.path.abspath(folder) if ray is not None else folder  # tasks run in other folders
    count, prepare = _preparation(folder)
    indices = range(count)
    if ray is None:
        prepared = ahead(prepare, indices, workers or available_threads())
    else:
        prepared = on_ray(ray, functools.partial(_preparer, folder, count), indices, IndexingError)
    _write(prepared, count, path, named=bool(out))


def _preparer(folder: str, count: int) -> Callable[[int], _Indexed]:
    """What makes the indices, in a task."""
    found, prepare = _preparation(folder)
    if found != count:
        raise IndexingError(f"{folder} has {found} pictures, and {count} where the command runs")
    return prepare


def _preparation(folder: str) -> tuple[int, Callable[[int], _Indexed]]:
    """How many pictures a folder has, and what makes the index of each."""
    if extension.load() is None:
        raise IndexingError(
            "seek indices are made and used by the native module, which this installation lacks: "
            "`fastloader doctor` says why"
        )
    count, path_of = _pictures(folder)

    def prepare(number: int) -> _Indexed:
        picture = path_of(number)
        try:
            with regular_file(picture) as file:
                begin = file.read(len(_BEGIN_OF_JPEG))
                if begin != _BEGIN_OF_JPEG:
                    return _Indexed(None, os.fstat(file.fileno()).st_size)
                content = begin + rest_of(file, picture)
        except OSError as error:
            raise IndexingError(f"{picture} cannot be read: {error.strerror or error}") from error
        return _Indexed(extension.native.jpeg_seek_index(content), len(content))

    return count, prepare


def _write(prepared: Iterator[_Indexed], count: int, path: str, named: bool) -> None:
    """``named``: whether the user has named the file."""
    have = picture_bytes = 0
    try:
        with SeekWriter(path) as writer, progress("indexing", count) as line:
            for indexed in prepared:
                picture_bytes += indexed.picture_bytes
                if indexed.record is not None:
                    writer.add(indexed.record)
                    have += 1
                line.step()
            writer.finish()
    except WritingError as error:
        advice = (
            "" if named else ". --out FILE writes it elsewhere, for ImageFolder(DIR, index=FILE)"
        )
        raise IndexingError(f"{error}{advice}") from error
    equal = f" ({have - writer.count} of them equal others)" if have > writer.count else ""
    print(f"{path}: {have} of {count} pictures have a seek index{equal}")
    if have < count:
        others = "progressive, with restarts, small, damaged, or no JPEG"
        print(f"{path}: {count - have} of {count} pictures have none ({others})")
    size = os.path.getsize(path)
    share = 100 * size / max(1, picture_bytes)
    print(f"{path}: {_amount(size)}, {share:.2f} % of the pictures' {_amount(picture_bytes)}")


def _amount(size: int) -> str:
    return f"{size / 1e6:.1f} MB" if size >= 1e6 else f"{size / 1e3:.1f} kB"


def _pictures(folder: str) -> tuple[int, Callable[[int], str]]:
    """How many pictures a folder has, and the path of each: those that an ImageFolder takes or, if there
    are no class folders, all JPEGs by their names."""
    if not os.path.isdir(folder):
        raise IndexingError(f"there is no folder {folder}")
    try:
        classes = ImageFolder(folder, allow_empty=True, index=None)
    except FileNotFoundError:
        pass
    else:
        if len(classes):
            return len(classes), classes.path
    loose = [
        path
        for path in files_once(folder, lambda error: None)
        if path.lower().endswith(_EXTENSIONS)
    ]
    if not loose:
        raise IndexingError(f"{folder} has no pictures")
    return len(loose), loose.__getitem__
