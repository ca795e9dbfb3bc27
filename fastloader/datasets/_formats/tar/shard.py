"""One shard, mapped into memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from fastloader.datasets._formats.files.mapped_file import MappedFile
from fastloader.datasets._formats.tar.index import TarIndex, index_of
from fastloader.datasets._formats.tar.members import DamagedTar

_COMPRESSED = {b"\x1f\x8b": "gzip", b"BZh": "bzip2", b"\xfd7zXZ": "xz", b"\x28\xb5\x2f\xfd": "zstd"}


class TarShard(MappedFile):
    """A tar that is mapped into memory, and where its samples are.

    Raises:
        OSError: if the file cannot be read.
        DamagedTar: a ValueError, if it is no whole tar.
    """

    damaged = DamagedTar
    local_file = True  # a shard of a store need not be one
    ending = ".tar"

    def __init__(self, path: str, index_dir: str | None) -> None:
        super().__init__(path)
        for magic, kind in _COMPRESSED.items():
            if self.mapping[: len(magic)] == magic:
                raise DamagedTar(
                    f"{path} is compressed ({kind}): unpack it, since only what is not can be read in "
                    "any order"
                )
        self.index: TarIndex = index_of(self.mapping, path, self.status, index_dir)

    @property
    def mapped_file(self) -> TarShard | None:
        """What may change while it is read; None: it is not mapped."""
        return self

    def begin_read(
        self, places: Sequence[tuple[int, int]], pool: ThreadPoolExecutor
    ) -> Callable[[], list[bytes]]:
        """What gives the bytes of these (offset, size), for which no other thread is needed. Whoever
        asks looks at the shard afterwards."""
        return lambda: [self.read_bytes(offset, size) for offset, size in places]
