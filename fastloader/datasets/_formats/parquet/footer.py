"""What the footer of a file says of a column.

pyarrow reads the footer, too, and knows the schema. But its ``ColumnChunkMetaData.compression`` ends the
process if a file names a compression that it does not know.
"""

from __future__ import annotations

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
    """What a row group has of a column. ``rows``: how many, as many as there are values. ``codec``: what
    the values are compressed with, one of `CODECS`. ``begin`` and ``end``: where they lie in the file.
    ``plain_bytes``: how many they are, uncompressed."""

    rows: int
    codec: str
    begin: int
    end: int
    plain_bytes: int


def column_groups(data: Any, number: int) -> list[ColumnGroup]:
    """The row groups of a file, of its column of bytes with this number.

    Raises:
        DamagedParquet: if it is no whole Parquet file, or says of itself what cannot be.
    """
    if (
        len(data) < len(MAGIC) + _TAIL
        or data[: len(MAGIC)] != MAGIC
        or data[-len(MAGIC) :] != MAGIC
    ):
        raise DamagedParquet("it is no Parquet file, or was cut off")
    size, end = int.from_bytes(data[-_TAIL:-4], "little"), len(data) - _TAIL
    if size > min(_MOST_FOOTER, end - len(MAGIC)):
        raise DamagedParquet(f"its footer would have {size} bytes")
    try:
        footer = CompactReader(data, end - size, end).struct(_WANTED)
        groups = list(_groups(footer, number, end - size))
        rows = sum(group.rows for group in groups)
        # What is read of a file takes memory in its rows, of which a footer may claim any number.
        if rows != footer[_ROWS] or rows > len(data):
            raise ValueError(f"{footer[_ROWS]} rows, in {len(data)} bytes")
    except (KeyError, TypeError, IndexError, ValueError, AttributeError) as error:
        raise DamagedParquet(f"its footer is damaged ({error})") from None
    return groups


def _groups(footer: dict[int, Any], number: int, end: int) -> Iterator[ColumnGroup]:
    for group in footer[_GROUPS]:
        chunk = group[_COLUMNS][number]
        if chunk.get(_FILE):
            raise ValueError("its rows lie in another file")
        column = chunk[_COLUMN]
        begin = column[_DATA]
        # Some writers put 0 for "there is none".
        if column.get(_DICTIONARY):
            begin = min(begin, column[_DICTIONARY])
        rows, size, plain_bytes = column[_VALUES], column[_SIZE], column[_PLAIN_SIZE]
        if not 0 <= rows == group[_GROUP_ROWS] or size < 0:
            raise ValueError("a row group has more or fewer values than rows")
        if rows and not len(MAGIC) <= begin <= begin + size <= end:
            raise ValueError("a row group lies outside of the file")
        codec = column[_CODEC]
        if not 0 <= codec < len(CODECS):
            raise ValueError(f"a compression of the number {codec}, which is not known")
        yield ColumnGroup(rows, CODECS[codec], begin, begin + size, plain_bytes)
