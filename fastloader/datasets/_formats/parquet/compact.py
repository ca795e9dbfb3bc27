"""Thrift's compact protocol, in which Parquet writes what it says of its columns and pages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_TRUE, _FALSE, _BYTE, _INT16, _INT32, _INT64, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = range(
    1, 13
)
_MOST_DEPTH = 12  # of structs and lists within each other; Parquet has 7

# The fields of a struct that are wanted, by number. None: a number, a truth, or the length of a text;
# otherwise a struct, or a list of structs, and what is wanted of these.
Wanted = Mapping[int, Any]


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


class CompactReader:
    """Reads a struct that begins at ``at`` of a file, and ends before ``end``. It keeps what is wanted
    and skips the rest, so that what it takes is in proportion to what is there.

    Every method raises ValueError for what is no such struct.
    """

    def __init__(self, data: Any, at: int, end: int) -> None:
        self._data = data
        self.at = at
        self._end = end

    def struct(self, wanted: Wanted, depth: int = 0) -> dict[int, Any]:
        """The fields that are wanted and are there. Afterwards ``at`` is behind the struct."""
        fields: dict[int, Any] = {}
        number = 0
        while True:
            byte = self._byte()
            if byte == 0:
                return fields
            delta, kind = byte >> 4, byte & 0x0F
            number = number + delta if delta else self._whole()
            value = self._value(kind, wanted.get(number), depth)
            if number in wanted:
                fields[number] = value

    def _value(self, kind: int, wanted: Wanted | None, depth: int) -> Any:
        if depth > _MOST_DEPTH:
            raise ValueError("structs within structs")
        if kind in (_TRUE, _FALSE):
            return kind == _TRUE
        if kind in (_INT16, _INT32, _INT64):
            return self._whole()
        if kind in (_BYTE, _DOUBLE, _BINARY):
            size = {_BYTE: 1, _DOUBLE: 8}.get(kind) or self._varint()
            if size > self._end - self.at:
                raise ValueError("a text without an end")
            self.at += size
            return size
        if kind in (_LIST, _SET):
            return self._list(wanted, depth)
        if kind == _MAP:
            return self._map(depth)
        if kind != _STRUCT:
            raise ValueError(f"a value of the kind {kind}")
        return self.struct(wanted or {}, depth + 1)

    def _list(self, wanted: Wanted | None, depth: int) -> list[Any]:
        """Those of its values that are wanted."""
        byte = self._byte()
        count, kind = byte >> 4, byte & 0x0F
        if count == 0x0F:
            count = self._varint()
        found = []
        for _ in range(count):
            value = self._element(kind, wanted, depth)
            if wanted is not None:
                found.append(value)
        return found

    def _map(self, depth: int) -> None:
        count = self._varint()
        kinds = self._byte() if count else 0
        for _ in range(count):
            self._element(kinds >> 4, None, depth)
            self._element(kinds & 0x0F, None, depth)

    def _element(self, kind: int, wanted: Wanted | None, depth: int) -> Any:
        # In a list, a truth takes a byte.
        return self._byte() if kind in (_TRUE, _FALSE) else self._value(kind, wanted, depth + 1)

    def _whole(self) -> int:
        value = self._varint()
        return (value >> 1) ^ -(value & 1)

    def _varint(self) -> int:
        value, self.at = varint(self._data, self.at, self._end)
        return value

    def _byte(self) -> int:
        if self.at >= self._end:
            raise ValueError("it has no end")
        self.at += 1
        return int(self._data[self.at - 1])
