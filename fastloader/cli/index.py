"""Runs ``fastloader index``: makes the seek indices of a folder's JPEGs, and writes them beside it
(docs/seek-index.md)."""

from __future__ import annotations

import array
import contextlib
import functools
import os
import secrets
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from fastloader._core.machine import extension
from fastloader._core.machine.limits import available_threads
from fastloader._core.machine.messages import progress
from fastloader.cli.tasks import ahead, on_ray
from fastloader.datasets import ImageFolder
from fastloader.datasets._formats.mapped_file import HEADER, MAGIC, default_path, header
from fastloader.datasets._formats.paths import files_once
from fastloader.transforms._pillow import regular_file, rest_of

# ---- Writes a file of seek indices (docs/seek-index.md).


_HASH = slice(16, 24)  # of a picture, in its index
_COLUMNS = 3  # hash, begin, size
_ROWS_AT_ONCE = 1 << 16


class WritingError(Exception):
    """The file cannot be written, for the reason that the message gives."""


class SeekWriter:
    """Writes indices as they come, into a file beside ``path`` that takes its name in `finish`. Without
    that, nothing is left. In memory it keeps 32 bytes a picture.

    Attributes:
        count: how many indices the file has.
    """

    def __init__(self, path: str) -> None:
        path = os.path.realpath(path)  # of a link, what it points to is written
        _check_place(path)
        self.path = path
        self._unfinished = f"{path}.{secrets.token_hex(4)}.part"
        self._file: BinaryIO | None = None
        self._rows = array.array("Q")
        self._hashes = _Hashes()

    def __enter__(self) -> SeekWriter:
        try:
            self._file = open(self._unfinished, "xb", buffering=1 << 20)
            self._file.write(bytes(HEADER.size))
            return self
        except OSError as error:
            raise self._failed(error) from error
        except BaseException:  # Ctrl-C
            self._clear()
            raise

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._clear()

    def _clear(self) -> None:
        """Removes the file that was not finished."""
        with contextlib.suppress(OSError):  # closing writes what a full disk did not take
            if self._file is not None:
                self._file.close()
        with contextlib.suppress(OSError):
            os.unlink(self._unfinished)

    @property
    def count(self) -> int:
        return len(self._rows) // _COLUMNS

    def add(self, index: bytes) -> None:
        """Adds the index of a picture, unless an equal picture's is there."""
        picture = int.from_bytes(index[_HASH], "little")
        if not self._hashes.add(picture):
            return
        assert self._file is not None
        try:
            self._rows.extend((picture, self._file.tell(), len(index)))
            self._file.write(index)
        except OSError as error:
            raise self._failed(error) from error

    def finish(self) -> None:
        """Finishes the file: it is whole and on the disk afterwards."""
        assert self._file is not None
        rows = np.frombuffer(self._rows, np.uint64).reshape(-1, _COLUMNS)
        order = np.argsort(rows[:, 0])
        try:
            table = self._file.tell()
            for first in range(0, len(order), _ROWS_AT_ONCE):
                some = rows[order[first : first + _ROWS_AT_ONCE]]
                self._file.write(some.astype("<u8").tobytes())
            self._file.seek(0)
            self._file.write(header(self.count, table))
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()
            os.replace(self._unfinished, self.path)
            _keep_name(self.path)
        except OSError as error:
            raise self._failed(error) from error

    def _failed(self, error: OSError) -> WritingError:
        return WritingError(f"{self.path} cannot be written: {error.strerror or error}")


class _Hashes:
    """The numbers of 64 bits that were seen; a million take eight megabytes."""

    _MOST_RECENT = 1 << 16

    def __init__(self) -> None:
        self._sorted: Any = np.empty(0, np.uint64)
        self._recent: set[int] = set()

    def add(self, number: int) -> bool:
        """Adds a number, and returns whether it was not there."""
        if number in self._recent:
            return False
        place = int(np.searchsorted(self._sorted, np.uint64(number)))
        if place < len(self._sorted) and int(self._sorted[place]) == number:
            return False
        self._recent.add(number)
        if len(self._recent) == self._MOST_RECENT:
            recent = np.fromiter(self._recent, np.uint64, len(self._recent))
            self._sorted = np.concatenate([self._sorted, recent])
            self._sorted.sort()
            self._recent.clear()
        return True


def _keep_name(path: str) -> None:
    """Makes the system write down that the file has its name now."""
    folder = os.open(os.path.dirname(os.path.abspath(path)), os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _check_place(path: str) -> None:
    """Refuses to write over a file of another kind."""
    if os.path.isdir(path):
        raise WritingError(f"{path} is a folder, and no file can be written there")
    try:
        with open(path, "rb") as file:
            begin = file.read(len(MAGIC))
    except FileNotFoundError:
        return
    except OSError as error:
        raise WritingError(f"{path} cannot be written: {error.strerror or error}") from error
    if begin and begin != MAGIC:
        raise WritingError(
            f"{path} exists, and is not a file of `fastloader index`: name another file, or delete it"
        )


# ---- ``fastloader index``: the seek indices of a folder's JPEGs.


_BEGIN_OF_JPEG = b"\xff\xd8"
_EXTENSIONS = (".jpg", ".jpeg", ".jpe", ".jfif")


class IndexingError(Exception):
    """Ends the command with a message and no traceback."""


class _Indexed(NamedTuple):
    """The result for one picture. ``record``: the seek index. It is None for a picture that needs none,
    or can have none."""

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
    """Makes the function that makes the indices, in a task."""
    found, prepare = _preparation(folder)
    if found != count:
        raise IndexingError(f"{folder} has {found} pictures, and {count} where the command runs")
    return prepare


def _preparation(folder: str) -> tuple[int, Callable[[int], _Indexed]]:
    """Returns how many pictures a folder has, and what makes the index of each."""
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
    """Writes the file. ``named``: whether the user has named the file."""
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
    """Returns how many pictures a folder has, and the path of each: those that an ImageFolder takes or,
    if there are no class folders, all JPEGs by their names."""
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
