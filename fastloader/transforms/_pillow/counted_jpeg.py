"""A JPEG that lies in a much larger file, such as a sparse one, or one with a video behind it."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

# A larger file is read as far as its picture goes. Only then is the work counted in several pieces.
LARGE = 64 << 20
_FIRST = 1 << 20


class CountedJpeg(io.BufferedIOBase):
    """The bytes of a file, which are read when they are wanted, twice as many each time. Before anybody
    gets them, ``check`` gets all that were read, and may raise.

    Args:
        owned: whether ``file`` is closed with this. If not, it has to stay open as long.
    """

    def __init__(
        self, file: Any, name: str, check: Callable[[bytearray], None], owned: bool
    ) -> None:
        self.name = name
        self._file, self._check, self._owned = file, check, owned
        self._data, self._at, self._ended = bytearray(), 0, False

    def __repr__(self) -> str:
        return repr(self.name) if self.name else super().__repr__()

    def _reach(self, end: int | None) -> None:
        """Reads on until there are so many bytes, or all that the file has."""
        while not self._ended and (end is None or len(self._data) < end):
            more = self._file.read(max(_FIRST, len(self._data)))
            self._data += more
            self._ended = not more
            if more:
                self._check(self._data)

    def close(self) -> None:
        super().close()
        if self._owned:
            self._file.close()

    def read(self, size: int | None = -1) -> bytes:
        end = None if size is None or size < 0 else self._at + size
        self._reach(end)
        found = bytes(self._data[self._at : end])
        self._at += len(found)
        return found

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        if whence == io.SEEK_END:
            self._reach(None)
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: len(self._data)}[whence]
        self._at = max(0, base + offset)
        return self._at

    def tell(self) -> int:
        return self._at

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True
