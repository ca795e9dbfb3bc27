"""What the footer of a file says of its columns.

pyarrow reads the footer, too, and knows the schema. But its ``ColumnChunkMetaData.compression`` ends the
process if a file names a compression that it does not know.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from typing import Any

from fastloader.datasets._formats.parquet.compact import CompactReader
from fastloader.datasets._formats.parquet.header import DamagedParquet

MAGIC = b"PAR1"
_TAIL = 8  # bytes: the length of the footer, and the magic
_MOST_FOOTER = 256 << 20  # bytes
CODECS = ("UNCOMPRESSED", "SNAPPY", "GZIP", "LZO", "BROTLI", "LZ4", "ZSTD", "LZ4_RAW")

# By the numbers of parquet.thrift.
_ROWS, _GROUPS = 3, 4
_COLUMNS, _GROUP_ROWS = 1, 3
_FILE, _COLUMN = 1, 3
_CODEC, _VALUES, _PLAIN_SIZE, _SIZE, _DATA, _DICTIONARY = 4, 5, 6, 7, 9, 11
_WANTED: dict[int, Any] = {
    _ROWS: None,
    _GROUPS: {
        _COLUMNS: {
            _FILE: None,
            _COLUMN: dict.fromkeys((_CODEC, _VALUES, _PLAIN_SIZE, _SIZE, _DATA, _DICTIONARY)),
        },
        _GROUP_ROWS: None,
    },
}


@dataclasses.dataclass(frozen=True)
class ColumnGroup:
    """What a row group has of a column. ``rows``: how many. ``values``: how many, nulls among them.
    ``codec``: what the values are compressed with, one of `CODECS`. ``begin`` and ``end``: where they
    lie in the file. ``plain_bytes``: how many they are, uncompressed, as the footer claims."""

    rows: int
    values: int
    codec: str
    begin: int
    end: int
    plain_bytes: int


class Footer:
    """What a file says of its row groups.

    Raises:
        DamagedParquet: if it is no whole Parquet file, or says of itself what cannot be.
    """

    def __init__(self, data: Any) -> None:
        if (
            len(data) < len(MAGIC) + _TAIL
            or data[: len(MAGIC)] != MAGIC
            or data[-len(MAGIC) :] != MAGIC
        ):
            raise DamagedParquet("it is no Parquet file, or was cut off")
        size, end = int.from_bytes(data[-_TAIL:-4], "little"), len(data) - _TAIL
        if size > min(_MOST_FOOTER, end - len(MAGIC)):
            raise DamagedParquet(f"its footer would have {size} bytes")
        self._end = end - size
        with _damage():
            said = CompactReader(data, self._end, end).struct(_WANTED)
            self._groups = [(group[_GROUP_ROWS], group[_COLUMNS]) for group in said[_GROUPS]]
            rows = sum(rows for rows, _ in self._groups)
            # What is read of a file takes memory in its rows, of which a footer may claim any number.
            if rows != said[_ROWS] or rows > len(data):
                raise ValueError(f"{said[_ROWS]} rows, in {len(data)} bytes")
            # It takes time in the bytes of its row groups, which may all be named to be the same ones.
            sizes = [
                chunk.get(_COLUMN, {}).get(_SIZE, 0) for _, each in self._groups for chunk in each
            ]
            if min(sizes, default=0) < 0 or sum(sizes) > len(data):
                raise ValueError(f"row groups that lie over each other, in {len(data)} bytes")

    def column(self, number: int, flat: bool = False) -> list[ColumnGroup]:
        """The row groups of the column with this number. ``flat``: whether it has a value for each
        row."""
        with _damage():
            return [
                self._group(rows, columns[number], flat)
                for rows, columns in self._groups  # which may have fewer columns than the schema
            ]

    def _group(self, rows: int, chunk: dict[int, Any], flat: bool) -> ColumnGroup:
        if chunk.get(_FILE):
            raise ValueError("its rows lie in another file")
        column = chunk[_COLUMN]
        begin = column[_DATA]
        # Some writers put 0 for "there is none".
        if column.get(_DICTIONARY):
            begin = min(begin, column[_DICTIONARY])
        values, size, plain_bytes = column[_VALUES], column[_SIZE], column[_PLAIN_SIZE]
        if min(rows, values, plain_bytes) < 0 or (flat and values != rows):
            raise ValueError("a row group has more or fewer values than rows")
        if values and not len(MAGIC) <= begin <= begin + size <= self._end:
            raise ValueError("a row group lies outside of the file")
        codec = column[_CODEC]
        if not 0 <= codec < len(CODECS):
            raise ValueError(f"a compression of the number {codec}, which is not known")
        return ColumnGroup(rows, values, CODECS[codec], begin, begin + size, plain_bytes)


@contextlib.contextmanager
def _damage() -> Iterator[None]:
    """Whatever Python finds wrong with what a footer says is an error that names the footer."""
    try:
        yield
    except (KeyError, TypeError, IndexError, ValueError, AttributeError) as error:
        raise DamagedParquet(f"its footer is damaged ({error})") from None
