"""The headers of pages."""

from __future__ import annotations

import dataclasses
from typing import Any

from fastloader.datasets._formats.parquet.compact import CompactReader

# What a header says, by the numbers of parquet.thrift: the kind of a page, the size of what follows,
# and a struct for each kind.
DATA, DICTIONARY, DATA_2 = 0, 2, 3
_KIND, _UNPACKED, _SIZE = 1, 2, 3
_INSIDE = {DATA: 5, DICTIONARY: 7, DATA_2: 8}
_WANTED: dict[int, Any] = {
    _KIND: None,
    _UNPACKED: None,
    _SIZE: None,
    _INSIDE[DATA]: {1: None, 2: None, 3: None},
    _INSIDE[DICTIONARY]: {1: None, 2: None},
    _INSIDE[DATA_2]: {1: None, 4: None, 5: None, 6: None},
}


class DamagedParquet(ValueError):
    """A Parquet file is not what a program has written, or not all of it is there."""


@dataclasses.dataclass(frozen=True)
class PageHeader:
    """``kind``: `DATA`, `DICTIONARY` or `DATA_2`. ``begin`` and ``end``: where the page lies in the
    file. ``unpacked``: its bytes, uncompressed. ``values``: how many it has, nulls among them.
    ``encoding``: of the values. ``levels``: the encoding of the definition levels in `DATA`, and their
    bytes in `DATA_2`. ``repeats``: the bytes of the repetition levels in `DATA_2`."""

    kind: int
    begin: int
    end: int
    unpacked: int
    values: int
    encoding: int
    levels: int
    repeats: int


def read_header(data: Any, begin: int, end: int) -> PageHeader:
    """The header of the page at ``begin``, in a part of the file that ends at ``end``. Statistics in it
    are skipped, however long they are.

    Raises:
        DamagedParquet: which names the byte, for anything else.
    """
    reader = CompactReader(data, begin, end)
    try:
        fields = reader.struct(_WANTED)
        at, kind, size, unpacked = reader.at, fields[_KIND], fields[_SIZE], fields[_UNPACKED]
        inside = fields[_INSIDE[kind]]
        values, encoding = inside[1], inside[4 if kind == DATA_2 else 2]
        levels = 0 if kind == DICTIONARY else inside[3 if kind == DATA else 5]
        repeats = inside[6] if kind == DATA_2 else 0
        numbers = kind, size, unpacked, values, encoding, levels, repeats
        if any(type(each) is not int or each < 0 for each in numbers) or size > end - at:
            raise ValueError("a page beyond its column")
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise DamagedParquet(f"at byte {begin}: no header of a page ({error})") from None
    return PageHeader(kind, at, at + size, unpacked, values, encoding, levels, repeats)
