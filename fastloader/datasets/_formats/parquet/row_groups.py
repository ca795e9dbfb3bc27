"""Row groups that pyarrow has read."""

from __future__ import annotations

import collections
from typing import Any

from fastloader._core.machine.process import ProcessLock
from fastloader.datasets._formats.parquet.file import ParquetFile

_MOST_BYTES = 256 << 20  # of row groups that are kept


class RowGroups:
    """Reads pictures that do not lie in their file as they are, a row group at a time. The row groups
    that were used last are kept, the last one however large it is: pictures that are asked for in the
    order of the file cost a reading each group."""

    def __init__(self) -> None:
        self._reading = ProcessLock()  # guards what is kept; two threads would read one group twice
        self._kept: collections.OrderedDict[tuple[str, int], Any] = collections.OrderedDict()

    def __reduce__(self) -> Any:
        return RowGroups, ()  # another process reads for itself

    def picture(self, file: ParquetFile, row: int) -> bytes | None:
        """The encoded picture of a row; None: it is null there."""
        group, number = file.group_of(row)
        found: bytes | None = self._group(file, group)[number].as_py()
        return found

    def _group(self, file: ParquetFile, group: int) -> Any:
        key = file.path, group
        with self._reading.lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key]
            found = self._kept[key] = file.read_group(group)
            while len(self._kept) > 1 and sum(map(_size, self._kept.values())) > _MOST_BYTES:
                self._kept.popitem(last=False)
        return found


def _size(group: Any) -> int:
    return int(group.nbytes)
