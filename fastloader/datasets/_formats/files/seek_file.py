"""The file of seek indices of a folder's JPEGs, which ``fastloader index`` writes beside the folder."""

from __future__ import annotations

import mmap
import os
import struct
import warnings

from fastloader._core.machine import extension
from fastloader.transforms._pillow import regular_file

MAGIC = b"fljpseek"
VERSION = 1
HEADER = struct.Struct("<8sIIQQ")  # magic, version, zero, how many indices, where the table begins

_AGAIN = "run `fastloader index` again to make a new one"


class SeekFile:
    """A file of seek indices, mapped into memory read-only. The native module reads it.

    A process that gets this object by pickle maps the file anew. If it cannot, it goes without indices:
    pictures are the same without them.

    Attributes:
        path: absolute. mapping: the bytes. count: how many pictures have an index in the file; 0 without
            the native module, which would use them.

    Raises:
        OSError: if the file cannot be read. FileNotFoundError if it is missing.
        ValueError: if it is no file of seek indices, is cut off or of another version.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.path.abspath(os.path.expanduser(os.fspath(path)))
        self.mapping = _mapped(self.path)
        self.count = 0
        if extension.load() is None:
            return
        try:
            self.count = len(extension.native.SeekFiles([self.mapping]))
        except ValueError as error:
            raise ValueError(f"{self.path} is {error}: {_AGAIN}") from None

    def __getstate__(self) -> str:
        return self.path

    def __setstate__(self, path: str) -> None:
        try:
            self.__init__(path)  # type: ignore[misc]
        except (OSError, ValueError) as error:
            _warn(error)
            self.path, self.count = path, 0
            self.mapping = header(0, HEADER.size)


def default_path(root: str | os.PathLike[str]) -> str:
    """The path of a folder's file: beside the folder, so that nothing takes it for a picture."""
    return os.path.abspath(os.path.expanduser(os.fspath(root))) + ".fastloader-index"


def found_beside(root: str | os.PathLike[str]) -> SeekFile | None:
    """The file beside a folder; None if it is missing. Also None, with a warning, if it is damaged, and
    always without the native module."""
    path = default_path(root)
    if extension.load() is None or not os.path.isfile(path):
        return None
    try:
        return SeekFile(path)
    except (OSError, ValueError) as error:
        _warn(error)
        return None


def header(count: int, table: int) -> bytes:
    """How a file begins. ``table``: where its table begins."""
    return HEADER.pack(MAGIC, VERSION, 0, count, table)


def _mapped(path: str) -> mmap.mmap | bytes:
    with regular_file(path) as file:
        if not os.fstat(file.fileno()).st_size:  # which cannot be mapped
            return b""
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def _warn(error: Exception) -> None:
    again = "" if _AGAIN in str(error) else f": {_AGAIN}"
    warnings.warn(
        f"JPEGs are decoded without their seek indices. {error}{again}",
        RuntimeWarning,
        stacklevel=5,  # the caller of ImageFolder
    )
