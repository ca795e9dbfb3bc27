"""Writes a file of seek indices (docs/seek-index.md)."""

from __future__ import annotations

import array
import contextlib
import os
import secrets
from types import TracebackType
from typing import Any, BinaryIO

import numpy as np

from fastloader.datasets._formats.mapped_file import HEADER, MAGIC, header

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
        """The file is whole and on the disk afterwards."""
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
    """Numbers of 64 bits that were seen, of which a million take eight megabytes."""

    _MOST_RECENT = 1 << 16

    def __init__(self) -> None:
        self._sorted: Any = np.empty(0, np.uint64)
        self._recent: set[int] = set()

    def add(self, number: int) -> bool:
        """Whether the number was not there."""
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
    """Has the system write down that the file has its name now."""
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
