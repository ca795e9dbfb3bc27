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
from fastloader.datasets._formats.parquet.footer import ColumnGroup, column_groups
from fastloader.datasets._formats.parquet.header import DamagedParquet
from fastloader.datasets._formats.parquet.index import kept_places
from fastloader.datasets._formats.parquet.pages import Chunk, NotPlain, places_of

MOST_GROUP = 1 << 30  # bytes of pictures in a row group that pyarrow reads


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
            groups = column_groups(self.mapping, number)
        self._starts = [0, *itertools.accumulate(group.rows for group in groups)]
        self.rows = self._starts[-1]
        self.places: tuple[Any, Any] | None = None
        self.why = _why_not_plain(groups)
        if self.why is None:
            walk = functools.partial(self._walk, groups, defined)
            try:
                self.places = kept_places(self.mapping, path, self.status, column, index_dir, walk)
            except NotPlain as error:
                self.why = str(error)
        if self.places is None:
            self._check_groups(groups)

    @functools.cached_property
    def reader(self) -> Any:
        """pyarrow's. It reads without threads of its own, so that it serves in a forked process."""
        from pyarrow import parquet

        with self._named():
            return parquet.ParquetFile(self.path, memory_map=True, pre_buffer=False)

    @contextlib.contextmanager
    def _named(self) -> Iterator[None]:
        """What pyarrow finds wrong with the file, and what we do, is an error that names it."""
        import pyarrow

        try:
            yield
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
        """These columns, as a table of pyarrow. Raises KeyError if there is no such column."""
        there = self.reader.schema_arrow.names
        for column in columns:
            if column not in there:
                raise KeyError(f"{self.path} has no column {column!r}; it has {', '.join(there)}")
        with self._named():
            table = self.reader.read(columns, use_threads=False).select(columns)
            return _checked(table, self.rows)

    def group_of(self, row: int) -> tuple[int, int]:
        """(row group, number in it)"""
        group = bisect.bisect_right(self._starts, row) - 1
        return group, row - self._starts[group]

    def read_group(self, group: int) -> Any:
        """The pictures of a row group, as an array of pyarrow."""
        with self._named():
            table = self.reader.read_row_group(group, [self._leaf], use_threads=False)
            rows = self._starts[group + 1] - self._starts[group]
            column = _checked(table, rows).column(0).combine_chunks()
        return column if self._leaf == self.column else column.flatten()[0]

    @functools.cached_property
    def paths(self) -> Any:
        """The paths beside the pictures, as an array of pyarrow; None if there are none."""
        leaf = f"{self.column}.path"
        if all(each.path != leaf for each in self._leaves()):
            return None
        with self._named():
            table = _checked(self.reader.read([leaf], use_threads=False), self.rows)
        return table.column(0).combine_chunks().flatten()[0]

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
            raise KeyError(f"{self.path} has no column {self.column!r}; it has {there}")
        kind, path = schema.field(self.column).type, self.column
        if pyarrow.types.is_struct(kind) and kind.get_field_index("bytes") >= 0:
            kind, path = kind.field("bytes").type, f"{self.column}.bytes"
        for number, leaf in enumerate(self._leaves()):
            plain = leaf.physical_type == "BYTE_ARRAY" and leaf.max_repetition_level == 0
            if leaf.path == path and plain and not pyarrow.types.is_string(kind):
                return path, number
        raise TypeError(
            f"{self.path}: the column {self.column!r} is of the type "
            f"{schema.field(self.column).type}: encoded pictures are bytes, or a struct of bytes and "
            "path"
        )

    def _walk(self, groups: list[ColumnGroup], defined: int) -> list[tuple[Any, Any]]:
        with self._named():
            chunks = [Chunk(each.begin, each.end, each.rows, defined) for each in groups]
            return [places_of(self.mapping, chunk) for chunk in chunks]

    def _check_groups(self, groups: list[ColumnGroup]) -> None:
        largest = max((group.plain_bytes for group in groups), default=0)
        if largest > MOST_GROUP:
            raise ValueError(
                f"{self.path}: {self.why}, and a row group has {largest >> 20} MB of them. To read one "
                f"picture takes memory for all of these, of which {MOST_GROUP >> 20} MB are allowed: "
                "write the file with smaller row groups, or uncompressed (docs/storage.md)"
            )


def _checked(table: Any, rows: int) -> Any:
    """A table that pyarrow has read, which looks at little of what a file says."""
    table.validate(full=True)
    if len(table) != rows:
        raise DamagedParquet(f"there are {len(table)} of {rows} rows")
    return table


def _why_not_plain(groups: list[ColumnGroup]) -> str | None:
    codecs = sorted({group.codec for group in groups} - {"UNCOMPRESSED"})
    return f"its pictures are compressed ({', '.join(codecs)})" if codecs else None
