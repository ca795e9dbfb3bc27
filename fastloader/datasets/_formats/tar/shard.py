"""One shard, mapped into memory."""

from __future__ import annotations

import mmap
import os
from typing import Any

from fastloader.datasets._formats.tar.index import TarIndex, index_of
from fastloader.datasets._formats.tar.members import DamagedTar

_COMPRESSED = {b"\x1f\x8b": "gzip", b"BZh": "bzip2", b"\xfd7zXZ": "xz", b"\x28\xb5\x2f\xfd": "zstd"}


class TarShard:
    """A tar on a local disk or a network file system, mapped read-only, and where its samples are.

    A process that gets this object by pickle maps the file anew, and refuses one that has changed.

    Raises:
        OSError: if the file cannot be read.
        DamagedTar: a ValueError, if it is no whole tar.
    """

    def __init__(self, path: str, index_dir: str | None) -> None:
        self.path = path
        self.mapping, status = _mapped(path)
        self.index: TarIndex = index_of(self.mapping, path, status, index_dir)
        self._whose = status.st_size, status.st_mtime_ns

    def will_need(self, offset: int, size: int) -> None:
        """Has the system read these bytes ahead. Waits for nothing."""
        if hasattr(self.mapping, "madvise") and size:
            begin = offset - offset % mmap.PAGESIZE
            self.mapping.madvise(mmap.MADV_WILLNEED, begin, offset + size - begin)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "mapping": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.mapping, status = _mapped(self.path)
        if self._whose != (status.st_size, status.st_mtime_ns):
            raise DamagedTar(f"{self.path} has changed since its dataset was made: make it anew")


def _mapped(path: str) -> tuple[Any, os.stat_result]:
    if os.path.isdir(path):
        raise IsADirectoryError(f"{path} is a folder: name the shards in it, such as {path}/*.tar")
    with open(path, "rb") as file:
        status = os.fstat(file.fileno())
        if status.st_size == 0:
            raise DamagedTar(f"{path} is empty")
        for beginning, kind in _COMPRESSED.items():
            if file.read(len(beginning)) == beginning:
                raise DamagedTar(
                    f"{path} is compressed ({kind}): unpack it, since only what is not can be read "
                    "in any order"
                )
            file.seek(0)
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), status
