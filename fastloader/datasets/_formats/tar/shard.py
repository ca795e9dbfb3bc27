"""One shard, mapped into memory."""

from __future__ import annotations

import errno
import mmap
import os
import sys
from typing import Any

from fastloader.datasets._formats.tar.index import TarIndex, index_of
from fastloader.datasets._formats.tar.members import DamagedTar

_COMPRESSED = {b"\x1f\x8b": "gzip", b"BZh": "bzip2", b"\xfd7zXZ": "xz", b"\x28\xb5\x2f\xfd": "zstd"}


class TarShard:
    """A tar on a local disk or a network file system, mapped read-only, and where its samples are.

    A process that gets this object by pickle maps the file anew. A shard that was written over or cut
    off meanwhile is refused; one that was replaced by another file (``mv``) goes on being read.

    Raises:
        OSError: if the file cannot be read.
        DamagedTar: a ValueError, if it is no whole tar.
    """

    def __init__(self, path: str, index_dir: str | None) -> None:
        self.path = path
        self.mapping, status = _mapped(path)
        self._file = status.st_dev, status.st_ino
        self._whose = status.st_size, status.st_mtime_ns
        self.index: TarIndex = index_of(self.mapping, path, status, index_dir)

    def check(self) -> None:
        """Raises DamagedTar if the shard has changed. To read where a mapped file has been cut off would
        end the process."""
        try:
            status = os.stat(self.path)
        except OSError:
            return  # it was removed, and what is mapped stays
        replaced = self._file != (status.st_dev, status.st_ino)
        if not replaced and self._whose != (status.st_size, status.st_mtime_ns):
            raise DamagedTar(
                f"{self.path} was written over or cut off since its dataset was made. Make the dataset "
                "anew, and replace shards by renaming others (mv)"
            )

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
        self._file = status.st_dev, status.st_ino


def _mapped(path: str) -> tuple[Any, os.stat_result]:
    """The bytes of the shard, and what the system says of it."""
    if os.path.isdir(path):
        raise IsADirectoryError(f"{path} is a folder: name the shards in it, such as {path}/*.tar")
    # A mapping need not keep a descriptor, of which a process may have a thousand, as a rule.
    without = {"trackfd": False} if sys.version_info >= (3, 13) else {}
    try:
        with open(path, "rb") as file:
            status = os.fstat(file.fileno())
            if status.st_size == 0:
                raise DamagedTar(f"{path} is empty")
            beginning = file.read(8)
            mapping = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ, **without)
    except OSError as error:
        if error.errno != errno.EMFILE:
            raise
        raise OSError(
            errno.EMFILE,
            "this process may not map so many shards: raise the limit (ulimit -n)",
            path,
        ) from None
    for magic, kind in _COMPRESSED.items():
        if beginning.startswith(magic):
            raise DamagedTar(
                f"{path} is compressed ({kind}): unpack it, since only what is not can be read in any "
                "order"
            )
    return mapping, status
