"""Where the values of a column lie, if Parquet has written them plainly."""

from __future__ import annotations

import dataclasses
import struct
from typing import Any

import numpy as np

from fastloader.datasets._formats.parquet.header import (
    DATA_2,
    DICTIONARY,
    DamagedParquet,
    PageHeader,
    read_header,
)
from fastloader.datasets._formats.parquet.runs import read_runs

_PLAIN, _PLAIN_DICTIONARY, _RLE, _RLE_DICTIONARY = 0, 2, 3, 8
_LENGTH = struct.Struct("<I")  # before each value, and before the levels of a page


class NotPlain(Exception):
    """The bytes of the values do not stand in the file: they are encoded in another way."""


@dataclasses.dataclass(frozen=True)
class Chunk:
    """The part of a column that a row group has: bytes ``begin`` to ``end`` of the file. ``values``: how
    many, nulls among them. ``defined``: the definition level of a value that is there."""

    begin: int
    end: int
    values: int
    defined: int


Places = tuple[Any, Any]  # (offsets, sizes), uint64


def places_of(data: Any, chunk: Chunk) -> Places:
    """Where the values of an uncompressed chunk of byte arrays lie in the file; an offset of 0: null.
    Reads headers, levels and lengths, and no value.

    Raises:
        DamagedParquet: which names the byte, if the pages are not what Parquet writes.
        NotPlain: with the reason, if the values are encoded in another way.
    """
    offsets = np.zeros(chunk.values, np.uint64)
    sizes = np.zeros(chunk.values, np.uint64)
    dictionary: Places | None = None
    row, at = 0, chunk.begin
    while row < chunk.values:
        page = read_header(data, at, chunk.end)
        at = page.end
        if page.kind == DICTIONARY:
            if dictionary is not None or page.encoding not in (_PLAIN, _PLAIN_DICTIONARY):
                raise DamagedParquet(
                    f"at byte {page.begin}: a second dictionary, or an encoded one"
                )
            dictionary = _plain(data, page.begin, page.end, page.values)
            continue
        if page.repeats:
            raise DamagedParquet(f"at byte {page.begin}: a page of values that repeat")
        if not 0 < page.values <= chunk.values - row:
            raise DamagedParquet(
                f"at byte {page.begin}: a page of {page.values} values, where {chunk.values - row} "
                "are left"
            )
        rows = slice(row, row + page.values)
        there, begin = _levels(data, page, chunk.defined)
        found = _values(data, page, begin, int(there.sum()), dictionary)
        offsets[rows][there], sizes[rows][there] = found
        row += page.values
    return offsets, sizes


def largest_page(data: Any, chunk: Chunk) -> int:
    """The bytes of the largest page of a chunk, uncompressed: no value is larger, however often it
    stands in the chunk. Reads headers.

    Raises:
        DamagedParquet: which names the byte, if a header is not what Parquet writes.
    """
    largest, values, at = 0, 0, chunk.begin
    while values < chunk.values:
        page = read_header(data, at, chunk.end)
        at, largest = page.end, max(largest, page.unpacked)
        values += 0 if page.kind == DICTIONARY else page.values
    return largest


def _levels(data: Any, page: PageHeader, defined: int) -> tuple[Any, int]:
    """(which values are there, where they begin)"""
    begin = page.begin
    if page.kind == DATA_2:
        length = page.levels
    elif defined:
        if page.levels != _RLE:
            raise NotPlain("it has packed levels, which is an old form of Parquet")
        length = _length_at(data, begin, page.end)
        begin += _LENGTH.size
    else:
        length = 0
    if length > page.end - begin:
        raise DamagedParquet(f"at byte {begin}: levels beyond their page")
    if not defined:
        return np.ones(page.values, bool), begin + length
    levels = read_runs(data, begin, begin + length, page.values, defined.bit_length())
    return levels == defined, begin + length


def _values(
    data: Any, page: PageHeader, begin: int, count: int, dictionary: Places | None
) -> Places:
    if page.encoding == _PLAIN:
        return _plain(data, begin, page.end, count)
    if page.encoding not in (_PLAIN_DICTIONARY, _RLE_DICTIONARY):
        raise NotPlain(f"its values are in encoding {page.encoding} of Parquet, not plain")
    if count == 0:
        return np.zeros(0, np.uint64), np.zeros(0, np.uint64)
    if dictionary is None or begin >= page.end:
        raise DamagedParquet(f"at byte {begin}: indices of no dictionary")
    offsets, sizes = dictionary
    indices = read_runs(data, begin + 1, page.end, count, data[begin])
    if indices.max() >= len(offsets):
        raise DamagedParquet(f"at byte {begin}: an index beyond its dictionary of {len(offsets)}")
    return offsets[indices], sizes[indices]


def _plain(data: Any, begin: int, end: int, count: int) -> Places:
    """Values one behind the other, each behind its length."""
    if count > (end - begin) // _LENGTH.size:
        raise DamagedParquet(f"at byte {begin}: {count} values in {end - begin} bytes")
    offsets, sizes = [], []
    at = begin
    for _ in range(count):
        size = _length_at(data, at, end)
        at += _LENGTH.size
        if size > end - at:
            raise DamagedParquet(f"at byte {at}: a value of {size} bytes beyond its page")
        offsets.append(at)
        sizes.append(size)
        at += size
    if at != end:
        raise DamagedParquet(f"at byte {at}: {end - at} bytes behind the last value of a page")
    return np.array(offsets, np.uint64), np.array(sizes, np.uint64)


def _length_at(data: Any, at: int, end: int) -> int:
    if _LENGTH.size > end - at:
        raise DamagedParquet(f"at byte {at}: a length beyond its page")
    return int(_LENGTH.unpack_from(data, at)[0])
