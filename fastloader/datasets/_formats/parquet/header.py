"""The headers of pages, which Parquet writes in Thrift's compact protocol."""

from __future__ import annotations

import dataclasses
from typing import Any

# What a header says, by the numbers of parquet.thrift.
DATA, DICTIONARY, DATA_2 = 0, 2, 3
_KIND, _SIZE = 1, 3
_INSIDE = {DATA: 5, DICTIONARY: 7, DATA_2: 8}

_MOST_FIELDS = 64  # in a header, which has 20 at most
_MOST_DEPTH = 3

_TRUE, _FALSE, _BYTE, _INT16, _INT32, _INT64, _DOUBLE, _BINARY = range(1, 9)
_STRUCT = 12


class DamagedParquet(ValueError):
    """A Parquet file is not what a program has written, or not all of it is there."""


@dataclasses.dataclass(frozen=True)
class PageHeader:
    """``kind``: `DATA`, `DICTIONARY` or `DATA_2`. ``begin`` and ``end``: where the page lies in the
    file. ``values``: how many it has, nulls among them. ``encoding``: of the values. ``levels``: the
    encoding of the definition levels, in `DATA`; the bytes of repetition and definition levels, in
    `DATA_2`."""

    kind: int
    begin: int
    end: int
    values: int
    encoding: int
    levels: tuple[int, ...]


def read_header(data: Any, begin: int, end: int) -> PageHeader:
    """The header of the page at ``begin``, in a part of the file that ends at ``end``. Texts and
    statistics in it are skipped, however long they are.

    Raises:
        DamagedParquet: which names the byte, for anything else.
    """
    try:
        fields, at = _Reader(data, begin, end).struct(0)
        kind, size = fields[_KIND], fields[_SIZE]
        inside = fields[_INSIDE[kind]]
        values, encoding = inside[1], inside[4 if kind == DATA_2 else 2]
        levels: tuple[int, ...] = ()
        if kind == DATA:
            levels = (inside[3],)
        elif kind == DATA_2:
            levels = inside[6], inside[5]
        numbers = kind, size, values, encoding, *levels
        if any(type(each) is not int or each < 0 for each in numbers) or size > end - at:
            raise ValueError("a page beyond its column")
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise DamagedParquet(f"at byte {begin}: no header of a page ({error})") from None
    return PageHeader(kind, at, at + size, values, encoding, levels)


def varint(data: Any, at: int, end: int) -> tuple[int, int]:
    """A number of 7 bits a byte, and where it ends. Raises ValueError if it does not."""
    value = shift = 0
    while at < end and shift < 64:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    raise ValueError("a number without an end")


class _Reader:
    """Reads one struct, with the kinds of values that the headers of pages have."""

    def __init__(self, data: Any, begin: int, end: int) -> None:
        self._data = data
        self._at = begin
        self._end = end
        self._fields_left = _MOST_FIELDS

    def struct(self, depth: int) -> tuple[dict[int, Any], int]:
        """The fields by their numbers, and where the struct ends."""
        if depth > _MOST_DEPTH:
            raise ValueError("structs within structs")
        fields: dict[int, Any] = {}
        number = 0
        while True:
            byte = self._bytes(1)[0]
            if byte == 0:
                return fields, self._at
            self._fields_left -= 1
            if self._fields_left < 0:
                raise ValueError("too many fields")
            delta, kind = byte >> 4, byte & 0x0F
            number = number + delta if delta else self._whole()
            fields[number] = self._value(kind, depth)

    def _value(self, kind: int, depth: int) -> Any:
        if kind in (_TRUE, _FALSE):
            return kind == _TRUE
        if kind in (_INT16, _INT32, _INT64):
            return self._whole()
        if kind == _STRUCT:
            return self.struct(depth + 1)[0]
        sizes = {_BYTE: 1, _DOUBLE: 8}
        size = self._varint() if kind == _BINARY else sizes.get(kind)
        if size is None:
            raise ValueError(f"a value of the kind {kind}")
        if size > self._end - self._at:
            raise ValueError("a value beyond its column")
        self._at += size
        return None

    def _whole(self) -> int:
        value = self._varint()
        return (value >> 1) ^ -(value & 1)

    def _varint(self) -> int:
        value, self._at = varint(self._data, self._at, self._end)
        return value

    def _bytes(self, count: int) -> bytes:
        if count > self._end - self._at:
            raise ValueError("a header without an end")
        found = bytes(self._data[self._at : self._at + count])
        self._at += count
        return found
