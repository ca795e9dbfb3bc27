"""Reads the Parquet files behind `ParquetImages`: finds where their pictures lie, once."""

from __future__ import annotations

import bisect
import contextlib
import dataclasses
import functools
import hashlib
import itertools
import json
import os
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from fastloader.datasets._formats.mapped_file import (
    MappedFile,
    fingerprint_of,
    fingerprint_places,
    kept_path,
    load_arrays,
    save_arrays,
)
from fastloader.datasets._formats.parquet_pages import (
    Chunk,
    CompactReader,
    DamagedParquet,
    NotPlain,
    largest_page,
    places_of,
)
from fastloader.datasets._formats.sample_form import NoColumn

# ---- What the footer of a file says of its columns.
#
# pyarrow reads the footer, too, and knows the schema. But its
# ``ColumnChunkMetaData.compression`` ends the process if a file names a compression that it
# does not know.


MAGIC = b"PAR1"
_TAIL = 8  # bytes: the length of the footer, and the magic
_MOST_FOOTER = 256 << 20  # bytes
CODECS = ("UNCOMPRESSED", "SNAPPY", "GZIP", "LZO", "BROTLI", "LZ4", "ZSTD", "LZ4_RAW")

# By the numbers of parquet.thrift.
_FOOTER_ROWS, _GROUPS = 3, 4
_COLUMNS, _GROUP_ROWS = 1, 3
_FILE, _COLUMN = 1, 3
_CODEC, _VALUES, _PLAIN_SIZE, _SIZE, _DATA, _DICTIONARY = 4, 5, 6, 7, 9, 11
_WANTED: dict[int, Any] = {
    _FOOTER_ROWS: None,
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
    """One column's part of a row group. ``rows``: how many. ``values``: how many, nulls among them.
    ``codec``: what the values are compressed with, one of `CODECS`. ``begin`` and ``end``: where they
    lie in the file. ``plain_bytes``: how many they are, uncompressed, as the footer claims."""

    rows: int
    values: int
    codec: str
    begin: int
    end: int
    plain_bytes: int


class Footer:
    """Reads what a file's footer says of its row groups.

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
            fields = CompactReader(data, self._end, end).struct(_WANTED)
            self._groups = [(group[_GROUP_ROWS], group[_COLUMNS]) for group in fields[_GROUPS]]
            rows = sum(rows for rows, _ in self._groups)
            # What is read of a file takes memory in its rows, of which a footer may claim any number.
            if rows != fields[_FOOTER_ROWS] or rows > len(data):
                raise ValueError(f"{fields[_FOOTER_ROWS]} rows, in {len(data)} bytes")
            # It takes time in the bytes of its row groups, which may all be named to be the same ones.
            sizes = [
                chunk.get(_COLUMN, {}).get(_SIZE, 0) for _, each in self._groups for chunk in each
            ]
            if min(sizes, default=0) < 0 or sum(sizes) > len(data):
                raise ValueError(f"row groups that lie over each other, in {len(data)} bytes")

    def column(self, number: int, flat: bool = False) -> list[ColumnGroup]:
        """Returns the row groups of the column with this number. ``flat``: whether it has a value for
        each row."""
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
    """Makes whatever Python finds wrong with what a footer says an error that names the footer."""
    try:
        yield
    except (KeyError, TypeError, IndexError, ValueError, AttributeError) as error:
        raise DamagedParquet(f"its footer is damaged ({error})") from None


# ---- Where the pictures of a file are: found once, and kept in a file.


VERSION = 1
_ENDING = ".fastloader-parquet"
_NAMES = {"whose", "fingerprint", "offsets", "sizes"}
# The length before a picture and its first bytes, of some pictures, tell one file from another.
_LENGTH, _BEGINNING = 4, 64


def kept_places(
    data: Any,
    path: str,
    status: os.stat_result,
    column: str,
    folder: str | None,
    rows: int,
    walk: Callable[[], list[tuple[Any, Any]]],
) -> tuple[Any, Any]:
    """Returns (offsets, sizes) of a column's ``rows`` values, which ``walk`` finds, row group by row
    group. They are kept beside the file, or in ``folder``, and found anew if the file has another size,
    time or footer since, or other values. Where nothing can be kept, they are found each time."""
    kept = kept_path(path, folder, _ENDING)
    whose = _identity(data, status, column)
    found = load_arrays(kept)
    if found is not None and _fits(found, whose, data, rows):
        return found["offsets"], found["sizes"]
    nothing = np.zeros(0, np.uint64)
    parts = [(nothing, nothing), *walk()]
    offsets, sizes = (np.concatenate(each) for each in zip(*parts, strict=True))
    print_ = np.frombuffer(_fingerprint(data, offsets), np.uint8)
    # A folder that may not be written, or a full disk.
    with contextlib.suppress(OSError):
        save_arrays(
            kept, {"whose": whose, "fingerprint": print_, "offsets": offsets, "sizes": sizes}
        )
    return offsets, sizes


def _identity(data: Any, status: os.stat_result, column: str) -> Any:
    """Returns bytes that differ for another file or column."""
    footer = int.from_bytes(data[-8:-4], "little")
    identity = f"{VERSION} {status.st_size} {status.st_mtime_ns} {column}".encode()
    digest = hashlib.sha256(identity + b"\0" + data[-8 - min(footer, len(data) - 8) :]).digest()
    return np.frombuffer(digest, np.uint8)


def _fingerprint(data: Any, offsets: Any) -> bytes:
    places = fingerprint_places(offsets[offsets > 0], _LENGTH, _BEGINNING, len(data))
    return fingerprint_of(data[begin:end] for begin, end in places)


def _fits(found: dict[str, Any], whose: Any, data: Any, rows: int) -> bool:
    """Returns whether it is of this file, and nothing lies outside of that: anybody may have written
    it."""
    if not set(found) >= _NAMES or not np.array_equal(found["whose"], whose):
        return False
    offsets, sizes = found["offsets"], found["sizes"]
    if offsets.shape != (rows,) or sizes.shape != (rows,):
        return False
    if offsets.dtype != np.uint64 or sizes.dtype != np.uint64:
        return False
    within = (offsets <= len(data)) & (sizes <= len(data) - np.minimum(offsets, len(data)))
    return bool(within.all()) and found["fingerprint"].tobytes() == _fingerprint(data, offsets)


# ---- One Parquet file, mapped into memory.


MOST_GROUP = 1 << 30  # bytes of pictures in a row group that pyarrow reads
# Columns that are held in memory may be as large as the file, and larger by this: they are compressed,
# or the same values again and again.
MOST_BEYOND = 1 << 30
_BYTES = ("binary", "large_binary", "binary_view")
# Rows that pyarrow reads at a time, of pictures and of other columns, until they are too large together.
_ROWS, _MANY_ROWS = 64, 1 << 16


class ParquetFile(MappedFile):
    """A Parquet file, and where the pictures of a column lie in it.

    Attributes:
        rows: how many there are. places: (offsets, sizes) of the pictures, uint64 arrays in which an
            offset of 0 stands for null. None if the pictures do not lie in the file as they are: then
            `group_of` and `read_group` give them. why: the reason, or None.

    Raises:
        OSError: if the file cannot be read.
        KeyError, TypeError: if it has no such column, or one of another type.
        DamagedParquet: a ValueError, if it is no whole Parquet file.
    """

    damaged = DamagedParquet
    ending = ".parquet"

    def __init__(self, path: str, column: str, index_dir: str | None) -> None:
        super().__init__(path)
        self.column = column
        with self._named():
            self._leaf, number = self._find_leaf()
            defined = self.reader.schema.column(number).max_definition_level
            groups = Footer(self.mapping).column(number, flat=True)
        self._groups = [Chunk(each.begin, each.end, each.rows, defined) for each in groups]
        self._starts = [0, *itertools.accumulate(group.rows for group in groups)]
        self.rows = self._starts[-1]
        self.places: tuple[Any, Any] | None = None
        self.why = _why_not_plain(groups)
        if self.why is None:
            try:
                self.places = kept_places(
                    self.mapping, path, self.status, column, index_dir, self.rows, self._walk
                )
            except NotPlain as error:
                self.why = str(error)
        if self.places is None:
            self._check_groups(groups)

    @functools.cached_property
    def reader(self) -> Any:
        """pyarrow's reader. It reads what is mapped, since another file may have the path by now, and
        without threads of its own, so that it serves in a forked process."""
        import pyarrow
        from pyarrow import parquet

        with self._named():
            mapped = pyarrow.BufferReader(pyarrow.py_buffer(self.mapping))
            return parquet.ParquetFile(mapped, pre_buffer=False)

    @contextlib.contextmanager
    def _named(self) -> Iterator[None]:
        """Names the file in errors, in what pyarrow finds wrong with it and what we do."""
        import pyarrow

        try:
            yield
        except MemoryError:
            raise
        except (pyarrow.ArrowException, OSError, UnicodeDecodeError, DamagedParquet) as error:
            if isinstance(error, DamagedParquet) and str(error).startswith(self.path):
                raise
            raise DamagedParquet(f"{self.path}: {error}") from None

    @property
    def features(self) -> dict[str, Any]:
        """The notes of ``datasets`` about the columns, by their names."""
        noted = (self.reader.schema_arrow.metadata or {}).get(b"huggingface")
        try:
            found = json.loads(noted)["info"]["features"] if noted else {}
        except (ValueError, KeyError, TypeError, RecursionError):
            return {}
        return found if isinstance(found, dict) else {}

    def read(self, columns: list[str]) -> Any:
        """Reads these columns, as a table of pyarrow.

        Raises:
            KeyError: if there is no such column.
            ValueError: if they are too large to be held in memory.
        """
        schema = self.reader.schema_arrow
        for column in columns:
            if column not in schema.names:
                there = ", ".join(schema.names)
                raise NoColumn(f"{self.path} has no column {column!r}; it has {there}")
        if not self.rows:
            return schema.empty_table().select(columns)
        return self._held(columns).select(columns)

    def group_of(self, row: int) -> tuple[int, int]:
        """Returns the row group of a row, and its number there."""
        group = bisect.bisect_right(self._starts, row) - 1
        return group, row - self._starts[group]

    def read_group(self, group: int) -> Any:
        """Reads the pictures of a row group, as a chunked array of pyarrow. Raises ValueError if they
        are too large to be read for one picture."""
        chunk = self._groups[group]
        with self._named():
            try:
                table = self._table([self._leaf], [chunk], [group], MOST_GROUP, _ROWS)
            except _TooLarge as error:
                raise ValueError(self._too_large(f"{error} MB or more")) from None
        column = table.column(0)
        return column if self._leaf == self.column else column.flatten()[0]

    @functools.cached_property
    def paths(self) -> Any:
        """The paths beside the pictures, as a chunked array of pyarrow; None if there are none."""
        leaf = f"{self.column}.path"
        if all(each.path != leaf for each in self._leaves()):
            return None
        return self._held([leaf]).column(0).flatten()[0]

    def _held(self, names: list[str]) -> Any:
        """Reads these columns, or leaves of columns, of all rows."""
        with self._named():
            footer, chunks = Footer(self.mapping), []
            for number, leaf in enumerate(self._leaves()):
                if any(f"{leaf.path}.".startswith(f"{name}.") for name in names):
                    for each in footer.column(number):
                        chunks.append(Chunk(each.begin, each.end, each.values, 0))
            most = MOST_BEYOND + len(self.mapping)
            groups = list(range(len(self._groups)))
            try:
                return self._table(names, chunks, groups, most, _MANY_ROWS)
            except _TooLarge as error:
                raise ValueError(
                    f"{self.path}: {', '.join(names)}: to hold this in memory takes {error} MB or more, "
                    f"of which {most >> 20} MB are allowed: leave such columns out"
                ) from None

    def _table(
        self, names: list[str], chunks: list[Chunk], groups: list[int], most: int, rows: int
    ) -> Any:
        """Reads what these chunks hold, which are all of these columns and row groups. ``most``: the
        bytes that it may take. ``rows``: how many are read at a time."""
        import pyarrow

        # A value that a page holds once may come in every row, so the file says nothing of the size of
        # the rows before they are read.
        page = max((largest_page(self.mapping, chunk) for chunk in chunks), default=0)
        if page > most:
            raise _TooLarge(page >> 20)
        rows = max(1, min(rows, most // max(1, page)))
        batches, size = [], 0
        for batch in self.reader.iter_batches(rows, groups, names, use_threads=False):
            batch.validate(full=True)  # pyarrow looks at little of what a file says
            batches.append(batch)
            size += batch.nbytes
            if size > most:
                raise _TooLarge(size >> 20)
        table = pyarrow.Table.from_batches(batches)
        wanted = sum(self._starts[group + 1] - self._starts[group] for group in groups)
        if len(table) != wanted:
            raise DamagedParquet(f"there are {len(table)} of {wanted} rows")
        return table

    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__()
        state.pop("reader", None)
        state.pop("paths", None)
        return state

    def _leaves(self) -> Iterator[Any]:
        schema = self.reader.schema
        return (schema.column(number) for number in range(len(schema)))

    def _find_leaf(self) -> tuple[str, int]:
        """Finds the column of bytes that the pictures are in: (path, number)."""
        import pyarrow

        schema = self.reader.schema_arrow
        if self.column not in schema.names:
            there = ", ".join(schema.names)
            raise NoColumn(f"{self.path} has no column {self.column!r}; it has {there}")
        kind, path = schema.field(self.column).type, self.column
        if pyarrow.types.is_struct(kind) and kind.get_field_index("bytes") >= 0:
            kind, path = kind.field("bytes").type, f"{self.column}.bytes"
        if pyarrow.types.is_dictionary(kind):
            kind = kind.value_type
        for number, leaf in enumerate(self._leaves()):
            plain = leaf.physical_type == "BYTE_ARRAY" and leaf.max_repetition_level == 0
            if leaf.path == path and plain and str(kind) in _BYTES:
                return path, number
        raise TypeError(
            f"{self.path}: the column {self.column!r} is of the type "
            f"{schema.field(self.column).type}: encoded pictures are bytes, or a struct of bytes and "
            "path"
        )

    def _walk(self) -> list[tuple[Any, Any]]:
        with self._named():
            return [places_of(self.mapping, chunk) for chunk in self._groups]

    def _check_groups(self, groups: list[ColumnGroup]) -> None:
        largest = max((group.plain_bytes for group in groups), default=0)
        if largest > MOST_GROUP:
            raise ValueError(self._too_large(f"{largest >> 20} MB"))

    def _too_large(self, size: str) -> str:
        return (
            f"{self.path}: {self.why}, and a row group has {size} of them. To read one picture takes "
            f"memory for all of these, of which {MOST_GROUP >> 20} MB are allowed: write the file with "
            "smaller row groups, or uncompressed (docs/storage.md)"
        )


class _TooLarge(Exception):
    """More is to be read than may be held; so many megabytes at least."""


def _why_not_plain(groups: list[ColumnGroup]) -> str | None:
    codecs = sorted({group.codec for group in groups} - {"UNCOMPRESSED"})
    return f"its pictures are compressed ({', '.join(codecs)})" if codecs else None
