"""One Parquet file, mapped into memory."""

from __future__ import annotations

import bisect
import contextlib
import functools
import itertools
import json
from collections.abc import Iterator
from typing import Any

from fastloader.datasets._formats.files.mapped_file import MappedFile
from fastloader.datasets._formats.no_column import NoColumn
from fastloader.datasets._formats.parquet.footer import ColumnGroup, Footer
from fastloader.datasets._formats.parquet.header import DamagedParquet
from fastloader.datasets._formats.parquet.index import kept_places
from fastloader.datasets._formats.parquet.pages import (
    Chunk,
    NotPlain,
    largest_page,
    places_of,
)

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
        """pyarrow's. It reads what is mapped, since another file may have the path by now, and without
        threads of its own, so that it serves in a forked process."""
        import pyarrow
        from pyarrow import parquet

        with self._named():
            mapped = pyarrow.BufferReader(pyarrow.py_buffer(self.mapping))
            return parquet.ParquetFile(mapped, pre_buffer=False)

    @contextlib.contextmanager
    def _named(self) -> Iterator[None]:
        """What pyarrow finds wrong with the file, and what we do, is an error that names it."""
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
        """What ``datasets`` noted of the columns, by their names."""
        noted = (self.reader.schema_arrow.metadata or {}).get(b"huggingface")
        try:
            found = json.loads(noted)["info"]["features"] if noted else {}
        except (ValueError, KeyError, TypeError, RecursionError):
            return {}
        return found if isinstance(found, dict) else {}

    def read(self, columns: list[str]) -> Any:
        """These columns, as a table of pyarrow.

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
        """(row group, number in it)"""
        group = bisect.bisect_right(self._starts, row) - 1
        return group, row - self._starts[group]

    def read_group(self, group: int) -> Any:
        """The pictures of a row group, as a chunked array of pyarrow. Raises ValueError if they are too
        large to be read for one picture."""
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
        """These columns, or leaves of columns, of all rows."""
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
        """What these chunks hold, which are all of these columns and row groups. ``most``: the bytes
        that it may take. ``rows``: how many are read at a time."""
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
        """(path, number) of the column of bytes that the pictures are in."""
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
