"""A file that is mapped into memory."""

from __future__ import annotations

import errno
import mmap
import os
import sys
from typing import Any, ClassVar

from fastloader._core.machine.mapped_memory import read_view
from fastloader.datasets._formats.files.looks import WatchedFile
from fastloader.transforms._pillow import regular_file


class MappedFile(WatchedFile):
    """A file on a local disk or a network file system, mapped read-only.

    A process that gets this object by pickle maps the file anew. A file that was written over or cut
    off meanwhile is refused; one that was replaced by another file (``mv``) goes on being read.

    Attributes: ``path``; ``mapping``, the bytes; ``status``, what the system said of the file when it
    was mapped first.

    Raises:
        OSError: if the file cannot be read.
        ValueError: of the type ``damaged``, if it is empty.
    """

    ending: ClassVar[str] = ""  # of such files, for messages

    def __init__(self, path: str) -> None:
        self.path = path
        self.mapping, self.status = self._mapped()

    def _has_changed(self) -> bool:
        try:
            status = os.stat(self.path)
        except OSError:
            return False  # it was removed, and what is mapped stays
        return _file(status) == _file(self.status) and _content(status) != _content(self.status)

    def will_need(self, offset: int, size: int) -> None:
        """Has the system read these bytes ahead. Waits for nothing."""
        if hasattr(self.mapping, "madvise") and size:
            begin = offset - offset % mmap.PAGESIZE
            self.mapping.madvise(mmap.MADV_WILLNEED, begin, offset + size - begin)

    def read_bytes(self, offset: int, size: int) -> bytes:
        """These bytes. Raises ``damaged`` if they cannot be read."""
        what = f"{self.path}: what lies at byte {offset}"
        try:
            return read_view(memoryview(self.mapping)[offset : offset + size], what)
        except OSError as error:
            self.check()
            raise self.damaged(str(error)) from None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "mapping": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        content = _content(self.status)
        self.mapping, self.status = self._mapped()
        if content != _content(self.status):
            raise self.damaged(f"{self.path} has changed since its dataset was made: make it anew")

    def _mapped(self) -> tuple[Any, os.stat_result]:
        if os.path.isdir(self.path):
            raise IsADirectoryError(
                f"{self.path} is a folder: name the files in it, such as {self.path}/*{self.ending}"
            )
        # A mapping need not keep a descriptor, of which a process may have a thousand, as a rule.
        without = {"trackfd": False} if sys.version_info >= (3, 13) else {}
        try:
            with regular_file(self.path) as file:
                status = os.fstat(file.fileno())
                if status.st_size == 0:
                    raise self.damaged(f"{self.path} is empty")
                return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ, **without), status
        except OSError as error:
            if error.errno != errno.EMFILE:
                raise
            raise OSError(
                errno.EMFILE,
                "this process may not map so many files: raise the limit (ulimit -n)",
                self.path,
            ) from None


def _file(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def _content(status: os.stat_result) -> tuple[int, int]:
    return status.st_size, status.st_mtime_ns
