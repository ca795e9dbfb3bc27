"""One Parquet file, mapped into memory."""

from __future__ import annotations

import bisect
import functools
import json
from collections.abc import Iterator
from typing import Any

from fastloader.datasets._formats.files.mapped_file import MappedFile
from fastloader.datasets._formats.parquet.header import DamagedParquet
from fastloader.datasets._formats.parquet.index import kept_places
from fastloader.datasets._formats.parquet.pages import Chunk, NotPlain, places_of

_MAGIC = b"PAR1"
_UNCOMPRESSED = "UNCOMPRESSED"
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
        data = self.mapping
        if len(data) < 12 or data[:4] != _MAGIC or data[-4:] != _MAGIC:
            raise DamagedParquet(f"{path} is no Parquet file, or was cut off")
        metadata = self.reader.metadata
        self.rows = metadata.num_rows
        self._leaf, number = self._find_leaf()
        groups = [metadata.row_group(each) for each in range(metadata.num_row_groups)]
        self._starts = [0]
        for group in groups:
            if group.num_rows < 0 or group.column(number).num_values != group.num_rows:
                raise DamagedParquet(f"{path}: a row group has fewer values than rows")
            self._starts.append(self._starts[-1] + group.num_rows)
        # What is read of a file takes memory in its rows, of which a footer may claim any number.
        if self._starts[-1] != self.rows or self.rows > len(data):
            raise DamagedParquet(f"{path} says that it has {self.rows} rows, in {len(data)} bytes")
        defined = self.reader.schema.column(number).max_definition_level
        self.places: tuple[Any, Any] | None = None
        self.why: str | None = None
        try:
            chunks = list(self._chunks(groups, number, defined))
            self.places = kept_places(
                data, path, self.status, column, index_dir, lambda: self._walk(chunks)
            )
        except NotPlain as error:
            self.why = str(error)
            self._check_groups(groups, number)

    @functools.cached_property
    def reader(self) -> Any:
        """pyarrow's. It reads without threads of its own, so that it serves in a forked process."""
        import pyarrow
        from pyarrow import parquet

        try:
            return parquet.ParquetFile(self.path, memory_map=True, pre_buffer=False)
        except (pyarrow.ArrowException, OSError) as error:
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
        return self._guarded(lambda: self.reader.read(columns, use_threads=False)).select(columns)

    def group_of(self, row: int) -> tuple[int, int]:
        """(row group, number in it)"""
        group = bisect.bisect_right(self._starts, row) - 1
        return group, row - self._starts[group]

    def read_group(self, group: int) -> Any:
        """The pictures of a row group, as an array of pyarrow."""
        read = functools.partial(self.reader.read_row_group, use_threads=False)
        table = self._guarded(lambda: read(group, [self._leaf]))
        column = table.column(0).combine_chunks()
        return column if self._leaf == self.column else column.flatten()[0]

    @functools.cached_property
    def paths(self) -> Any:
        """The paths beside the pictures, as an array of pyarrow; None if there are none."""
        leaf = f"{self.column}.path"
        if all(each.path != leaf for each in self._leaves()):
            return None
        table = self._guarded(lambda: self.reader.read([leaf], use_threads=False))
        return table.column(0).combine_chunks().flatten()[0]

    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__()
        state.pop("reader", None)
        state.pop("paths", None)
        return state

    def _guarded(self, read: Any) -> Any:
        import pyarrow

        try:
            return read()
        except (pyarrow.ArrowException, OSError) as error:
            raise DamagedParquet(f"{self.path}: {error}") from None

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

    def _chunks(self, groups: list[Any], number: int, defined: int) -> Iterator[Chunk]:
        for group in groups:
            column = group.column(number)
            if column.compression != _UNCOMPRESSED:
                raise NotPlain(f"its pictures are compressed ({column.compression})")
            begin = column.data_page_offset
            if column.has_dictionary_page and column.dictionary_page_offset:
                begin = min(begin, column.dictionary_page_offset)
            end = begin + column.total_compressed_size
            if column.file_path or not len(_MAGIC) <= begin <= end <= len(self.mapping) - 8:
                raise DamagedParquet(f"{self.path}: a row group lies in another file, or nowhere")
            yield Chunk(begin, end, group.num_rows, defined)

    def _walk(self, chunks: list[Chunk]) -> list[tuple[Any, Any]]:
        try:
            return [places_of(self.mapping, chunk) for chunk in chunks]
        except DamagedParquet as error:
            raise DamagedParquet(f"{self.path}, column {self.column!r}: {error}") from None

    def _check_groups(self, groups: list[Any], number: int) -> None:
        largest = max((group.column(number).total_uncompressed_size for group in groups), default=0)
        if largest > MOST_GROUP:
            raise ValueError(
                f"{self.path}: {self.why}, and a row group has {largest >> 20} MB of them. To read one "
                f"picture takes memory for all of these, of which {MOST_GROUP >> 20} MB are allowed: "
                "write the file with smaller row groups, or uncompressed (docs/storage.md)"
            )
