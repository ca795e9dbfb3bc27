"""``ParquetImages``: pictures in Parquet files, as Hugging Face's data sets keep them."""

from __future__ import annotations

import bisect
import collections
import concurrent.futures
import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fastloader._core.machine.limits import available_threads
from fastloader._core.machine.process import ProcessLock
from fastloader.datasets._formats.parquet_files import ParquetFile
from fastloader.datasets._formats.paths import paths_of
from fastloader.datasets._formats.sample_form import (
    SampleForm,
    checked_columns,
    shown_dataset,
    shown_files,
)
from fastloader.datasets.hugging_face import labels_of
from fastloader.datasets.pictures import FileSpans, Pictures, checked_index
from fastloader.transforms._pillow import regular_file

# ---- Row groups that pyarrow has read.


_MOST_BYTES = 256 << 20  # of row groups that are kept


class RowGroups:
    """Reads pictures that do not lie in their file as they are, a row group at a time. It keeps the row
    groups that were used last, and the very last one whatever its size: pictures that are asked for in
    the order of the file cost one reading for each group."""

    def __init__(self) -> None:
        self._reading = ProcessLock()  # guards what is kept; two threads would read one group twice
        self._kept: collections.OrderedDict[tuple[str, int], Any] = collections.OrderedDict()

    def __reduce__(self) -> Any:
        return RowGroups, ()  # another process reads for itself

    def picture(self, file: ParquetFile, row: int) -> bytes | None:
        """Reads the encoded picture of a row; None if it is null there."""
        group, number = file.group_of(row)
        found: bytes | None = self._group(file, group)[number].as_py()
        return found

    def _group(self, file: ParquetFile, group: int) -> Any:
        key = file.path, group
        with self._reading.lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key]
            found = self._kept[key] = file.read_group(group)
            while len(self._kept) > 1 and sum(map(_size, self._kept.values())) > _MOST_BYTES:
                self._kept.popitem(last=False)
        return found


def _size(group: Any) -> int:
    return int(group.nbytes)


class ParquetImages(Pictures, called="Parquet files"):
    """Pictures in Parquet files, with the semantics of ``datasets.Image``.

    ``datasets`` converts such files to Arrow first, which takes as much disk again. `ParquetImages`
    reads them where they are. If the pictures lie in the files as they are, plainly encoded and
    uncompressed as ``datasets`` 5 writes them, then the files are mapped into memory, and the native
    path decodes from there. Where the pictures are is found once, by a walk over the pages, and kept
    beside each file (``<file>.fastloader-parquet``). Other files are read by pyarrow, a row group at a
    time: samples have an `EncodedImage`, and shuffling costs a row group for each picture
    (docs/storage.md).

    Args:
        files: The files: a path, a pattern (``train-*.parquet``), braces
            (``train-{00000..00009}.parquet``), or a list of such. Files of a pattern are sorted by name.
        transform: The function that is applied to each picture, as in `ImageFolder`; default None.
        target_transform: A function of the label; None (default) leaves the label.
        image: The column of pictures: bytes, or ``datasets``' struct of bytes and path.
        label: The column of class numbers; None: there is none, and labels are -1.
        columns: Further columns of which a sample has the values, as pyarrow's ``to_pylist`` gives them.
            They are held in memory. Default: none.
        as_dict: Whether a sample is a dict with the keys "pixel_values", "labels" and the names of the
            columns. Default False: (picture, label), and then the columns.
        index_dir: A folder for what is kept, if nothing may be written beside the files; default None.
            If nothing can be written, the walk is made each time.

    Attributes:
        files: the paths.
        targets: the labels, an int64 array.
        classes: the names that ``datasets`` noted for the label, or None.
        class_to_idx: name to label, or None.
        mapped: whether the native path reads the pictures.
        why: a file that prevents this, and the reason; None if ``mapped``.

    A picture is turned as EXIF says, as ``datasets`` does it, and is RGB. A dataset may be pickled, and
    used after a fork or in a spawned process.

    Raises:
        ImportError: if pyarrow is missing.
        FileNotFoundError: if a file, or any file for a pattern, is missing.
        KeyError: if there is no such column.
        TypeError: if a column is of another kind.
        ValueError: if a file is no whole Parquet file, if a label is null, if there is no row, if files
            differ in their columns, if row groups are too large to be read for one picture, or if
            columns are too large to be held in memory. The error names the file.
    """

    upright = True

    def __init__(
        self,
        files: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        transform: Callable[[Any], Any] | None = None,
        target_transform: Callable[[int], Any] | None = None,
        *,
        image: str = "image",
        label: str | None = "label",
        columns: Sequence[str] = (),
        as_dict: bool = False,
        index_dir: str | os.PathLike[str] | None = None,
    ) -> None:
        _check_pyarrow()
        self.transform = transform
        self.target_transform = target_transform
        self.image = image
        self.label = label
        self.columns = checked_columns(columns)
        self.form = SampleForm.of(self.columns, self._rest, as_dict)
        self.files = list(paths_of(files))
        if not self.files:
            raise ValueError("no file is named")
        kept = None if index_dir is None else os.path.abspath(os.fspath(index_dir))
        if kept is not None:
            os.makedirs(kept, exist_ok=True)
        with concurrent.futures.ThreadPoolExecutor(available_threads()) as pool:
            self._files = list(pool.map(lambda path: ParquetFile(path, image, kept), self.files))
        self._starts = np.cumsum([0, *(file.rows for file in self._files)]).tolist()
        if not self._starts[-1]:
            raise ValueError(f"{', '.join(self.files[:3])}: no row")
        self.mapped = all(file.places is not None for file in self._files)
        self.why = next((f"{each.path}: {each.why}" for each in self._files if each.why), None)
        self._row_groups = RowGroups()
        self.classes = self._read_features()
        self.class_to_idx = None
        if self.classes is not None:
            self.class_to_idx = {name: number for number, name in enumerate(self.classes)}
        self._read_columns()

    def _read_features(self) -> list[str] | None:
        """Reads the names of the classes, which must be the same in all files."""
        found: list[Any] = []
        for file in self._files:
            features = file.features
            picture = features.get(self.image)
            mode = picture.get("mode") if isinstance(picture, dict) else None
            if mode not in (None, "RGB"):
                raise TypeError(
                    f"{file.path}: column {self.image!r} is of the mode {mode}, and ParquetImages gives "
                    "RGB"
                )
            names = features.get(self.label) if self.label is not None else None
            names = names.get("names") if isinstance(names, dict) else None
            is_list = isinstance(names, list) and all(isinstance(each, str) for each in names)
            found.append(names if is_list else None)
        if any(names != found[0] for names in found):
            raise ValueError(f"{self.files[0]} and other files differ in their names of classes")
        classes: list[str] | None = found[0]
        return classes

    def _read_columns(self) -> None:
        """Sets the labels and the further columns."""
        import pyarrow

        further = list(dict.fromkeys(self.columns))
        wanted = list(dict.fromkeys([*([] if self.label is None else [self.label]), *further]))
        tables: list[Any] = [file.read(wanted) if wanted else None for file in self._files]
        self.targets = np.full(len(self), -1, np.int64)
        if self.label is not None:
            self.targets = np.concatenate(list(map(self._labels, self._files, tables)))
        self._further: Any = None
        if not further:
            return
        tables = [table.select(further).replace_schema_metadata() for table in tables]
        first = tables[0].schema
        for file, table in zip(self._files, tables, strict=True):
            if table.schema != first:
                here, there = (", ".join(map(str, each)) for each in (table.schema, first))
                raise ValueError(
                    f"{file.path} has the columns ({here}), and {self.files[0]} has ({there}): files "
                    "that are read together have the same"
                )
        self._further = pyarrow.concat_tables(tables)

    def _labels(self, file: ParquetFile, table: Any) -> Any:
        """Returns the labels of a file, an int64 array."""
        import pyarrow

        assert self.label is not None
        column = table.column(self.label)
        if not pyarrow.types.is_integer(column.type):
            raise TypeError(
                f"{file.path}: column {self.label!r} is {column.type}, and labels are whole numbers: "
                f"label=None leaves them out, and columns=[{self.label!r}] reads what it is"
            )
        try:
            return labels_of(column, self.label)
        except ValueError as error:
            raise ValueError(f"{file.path}: {error}") from None

    def _rest(self, indices: list[int]) -> list[tuple[Any, ...]]:
        """Returns the further columns of these samples."""
        columns = [self._further.column(name) for name in self.columns]
        # Value by value, for pyarrow's `take` copies all text and lists of the table first.
        return [tuple(column[index].as_py() for column in columns) for index in indices]

    def locate(self, index: int) -> tuple[ParquetFile, int]:
        """Returns the file in which sample ``index`` lies, and its row there."""
        number = bisect.bisect_right(self._starts, index) - 1
        return self._files[number], index - self._starts[number]

    def places(self) -> tuple[Any, Any, Any]:
        """Returns the pictures' addresses and sizes, uint64 arrays, and what keeps these valid. Only for
        ``mapped``."""
        places = [file.places for file in self._files if file.places is not None]
        offsets, sizes = map(np.concatenate, zip(*places, strict=True))
        return FileSpans(self._files, self._starts, offsets, sizes).places()

    def _elsewhere(self) -> str | None:
        return None if self.mapped else super()._elsewhere()

    def files_of(self, indices: list[int]) -> list[ParquetFile]:
        """Returns the files that these pictures are read from, and that may change meanwhile."""
        numbers = {bisect.bisect_right(self._starts, index) - 1 for index in indices}
        return [self._files[number] for number in numbers]

    def will_need(self, indices: list[int]) -> None:
        """Asks the system to read these pictures ahead, all at the same time. Waits for nothing."""
        for file, row in map(self.locate, indices):
            if file.places is not None:
                offsets, sizes = file.places
                file.will_need(int(offsets[row]), int(sizes[row]))

    def name(self, index: int) -> str:
        """Returns the row of sample ``index`` and its file."""
        file, row = self.locate(checked_index(index, len(self)))
        return f"row {row} of {file.path}"

    def image_bytes(self, index: int) -> bytes:
        """Reads the encoded picture, as it lies in the file."""
        file, row = self.locate(checked_index(index, len(self)))
        if file.places is None:
            file.check()  # pyarrow reads what is mapped by itself
            found = self._row_groups.picture(file, row)
        else:
            offset, size = (int(each[row]) for each in file.places)
            found = file.read_bytes(offset, size) if offset else None
        file.check()
        if found is not None:
            return found
        path = None if file.paths is None else file.paths[row].as_py()
        if path is None:
            raise ValueError(
                f"{self.name(index)} has no picture: column {self.image} is null there"
            )
        with regular_file(path) as picture:
            return bytes(picture.read())

    def __repr__(self) -> str:
        return shown_dataset(self, {"Files": shown_files(self.files)})

    def __len__(self) -> int:
        return int(self._starts[-1])

    def _picture(self, index: int) -> Any:
        if self.mapped or self.transform is None:
            return super()._picture(index)
        return self._encoded(self._source(index))

    def __getitems__(self, indices: list[int]) -> list[Any]:
        """Makes the samples of a batch, which it reads in the order of the files."""
        wanted = [checked_index(index, len(self)) for index in indices]
        samples: list[Any] = [None] * len(wanted)
        # Each place has a sample of its own, also of an index that comes twice: its crop is drawn anew,
        # and what a program does to a sample stays there.
        for place in sorted(range(len(wanted)), key=wanted.__getitem__):
            samples[place] = self[wanted[place]]
        return samples


def _check_pyarrow() -> None:
    try:
        import pyarrow.parquet  # noqa: F401
    except ImportError:
        raise ImportError("Parquet needs pyarrow: pip install pyarrow") from None
