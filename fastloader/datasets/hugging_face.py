"""``HFImages``: pictures in a data set of Hugging Face's ``datasets``."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fastloader._core.machine.identity import found, is_a
from fastloader._core.machine.mapped_memory import read_at
from fastloader.datasets._formats.mapped_file import SeekFile
from fastloader.datasets._formats.sample_form import (
    NoColumn,
    SampleForm,
    checked_columns,
    shown_dataset,
)
from fastloader.datasets.pictures import Pictures, checked_index
from fastloader.transforms._pillow import regular_file

# ---- Labels in a column of an Arrow table.


def labels_of(column: Any, name: str) -> Any:
    """Returns the whole numbers of a column, pyarrow's ``ChunkedArray``, as an int64 array. Raises
    ValueError if one is null."""
    if column.null_count:
        (rows,) = np.nonzero(column.is_null().to_numpy())
        raise ValueError(
            f"column {name!r} is null in {len(rows)} rows, the first of which is row {rows[0]}"
        )
    # Copied: the column may be of a mapped file, which may be cut off.
    return column.to_numpy().astype(np.int64)


# The classes of ``datasets`` that are looked for.
DATASET = ("datasets.arrow_dataset", "Dataset")
IMAGE = ("datasets.features.image", "Image")
CLASS_LABEL = ("datasets.features.features", "ClassLabel")


class HFImages(Pictures, called="Hugging Face data sets"):
    """Pictures of a ``datasets.Dataset``, with the semantics of its ``Image`` feature.

    The pictures lie as encoded files in Arrow tables that ``datasets`` has mapped into memory, and the
    native path decodes from there. Selections (``select``, ``shuffle``, ``filter``) and data sets of
    several files are taken as they are. Where all pictures are paths, as after
    ``load_dataset("imagefolder")``, the native path reads these files; where some are, Pillow reads
    those.

    Args:
        dataset: The data set: a ``datasets.Dataset``, one split. Its format and transform are not used.
        transform: The function that is applied to each picture, as in `ImageFolder`; default None.
        target_transform: A function of the label; None (default) leaves the label.
        image: The column of pictures, of the feature ``datasets.Image``.
        label: The column of class numbers; None: there is none, and labels are -1.
        columns: Further columns of which a sample has the values, as ``dataset[i]`` gives them. Default:
            none.
        as_dict: Whether a sample is a dict with the keys "pixel_values", "labels" and the names of the
            columns, as ``transformers.Trainer`` wants it. Default False: (picture, label), and then the
            columns.

    Attributes:
        targets: the labels, an int64 array.
        classes: the names of a ``ClassLabel`` column, or None.
        class_to_idx: name to label, or None.

    A picture is turned as EXIF says, as ``datasets`` does it, and is RGB.

    Raises:
        TypeError: if ``dataset`` is no such data set, or a column is of another kind or mode.
        KeyError: if there is no such column.
        ValueError: if a label is null, or if with ``as_dict`` two parts of a sample would have one key.
    """

    upright = True

    def __init__(
        self,
        dataset: Any,
        transform: Callable[[Any], Any] | None = None,
        target_transform: Callable[[int], Any] | None = None,
        *,
        image: str = "image",
        label: str | None = "label",
        columns: Sequence[str] = (),
        as_dict: bool = False,
    ) -> None:
        self.dataset = dataset
        self.transform = transform
        self.target_transform = target_transform
        self.image = image
        self.label = label
        features = _features_of(dataset)
        _check_image(features, image)
        names = None if label is None else _names_of(features, label)
        self.classes: list[str] | None = names
        self.class_to_idx = None if names is None else {name: i for i, name in enumerate(names)}
        self.columns = checked_columns(columns)
        for column in self.columns:
            _check_column(features, column)
        self.form = SampleForm.of(self.columns, self._rest, as_dict)
        self._find()

    def _rest(self, indices: list[int]) -> list[tuple[Any, ...]]:
        """Reads the further columns of these samples."""
        found = self._further[indices]
        return list(zip(*(found[column] for column in self.columns), strict=True))

    def _find(self) -> None:
        """Sets the flat arrays, one entry for each sample of the data set."""
        table = self.dataset.data.table
        rows = None
        if self.dataset._indices is not None:  # of a selection
            rows = self.dataset._indices.table.column(0).to_numpy().astype(np.int64)
        chunks = table.column(self.image).chunks
        addresses, sizes = _places_of(chunks, "bytes")
        self._paths = _places_of(chunks, "path")
        if self.label is None:
            targets = np.full(len(addresses), -1, np.int64)
        else:
            targets = labels_of(table.column(self.label), self.label)
        self._further: Any = None
        if self.columns:
            self._further = self.dataset.with_format(None).select_columns(self.columns)
        self._rows = rows
        self._addresses = addresses if rows is None else addresses[rows]
        self._sizes = sizes if rows is None else sizes[rows]
        self._files = None if self._addresses.any() else _files_of(chunks, rows)
        self.targets = targets if rows is None else targets[rows]

    def files(self) -> tuple[Any, Any] | None:
        """Returns the paths in one run of bytes, and where each ends, if all pictures are files."""
        return self._files

    def places(self) -> tuple[Any, Any, Any]:
        """Returns the pictures' addresses and sizes, uint64 arrays, and the table that keeps these
        valid."""
        return self._addresses.copy(), self._sizes.copy(), self.dataset.data

    def _own_files(self) -> tuple[Any, Any, Sequence[SeekFile]] | None:
        files = self.files()
        return None if files is None else (*files, ())

    def _elsewhere(self) -> None:
        """Returns None: the pictures are where ``datasets`` has mapped them, or in files."""

    def _plan_note(self) -> str:
        if self._files is not None:
            return " (files)"
        elsewhere = int((self._addresses == 0).sum())
        return (
            f" ({elsewhere} pictures are paths or missing: Pillow reads these)" if elsewhere else ""
        )

    def _path(self, index: int) -> str:
        """Returns the path of a picture if the data set has it; otherwise ""."""
        row = index if self._rows is None else int(self._rows[index])
        address, size = (int(each[row]) for each in self._paths)
        return read_at(address, size, f"the path of row {index}").decode() if size else ""

    def name(self, index: int) -> str:
        """Returns the number of a picture, and its path if the data set has it."""
        index = checked_index(index, len(self))
        try:
            path = self._path(index)
        except OSError:  # the data set's file was cut off
            path = ""
        return f"row {index} ({path})" if path else f"row {index}"

    def image_bytes(self, index: int) -> bytes:
        """Reads the encoded picture."""
        index = checked_index(index, len(self))
        address, size = int(self._addresses[index]), int(self._sizes[index])
        if address:
            return read_at(address, size, f"row {index}")
        path = self._path(index)
        if not path:
            raise ValueError(f"row {index} has no picture: column {self.image} is null there")
        with regular_file(path) as file:
            return bytes(file.read())

    def __repr__(self) -> str:
        return shown_dataset(self, {"Column of pictures": self.image})

    def __len__(self) -> int:
        return len(self.targets)

    def __getstate__(self) -> dict[str, Any]:
        state = dict(self.__dict__)
        for name in ("_addresses", "_sizes", "_paths", "_files", "_rows", "_further"):
            del state[name]
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._find()  # another process has the table elsewhere


def _features_of(dataset: Any) -> Any:
    kind = type(dataset)
    features = getattr(dataset, "features", None)
    known = isinstance(dataset, found(*DATASET) or ())
    if not known or features is None or _is_stream(dataset):
        what = f"{kind.__module__}.{kind.__qualname__}"
        advice = ""
        if isinstance(dataset, dict):
            advice = f": name a split, such as dataset[{next(iter(dataset), 'train')!r}]"
        elif _is_stream(dataset):
            advice = ": load it without streaming=True"
        raise TypeError(f"HFImages takes a datasets.Dataset, not a {what}{advice}")
    return features


def _is_stream(dataset: Any) -> bool:
    return not hasattr(dataset, "data") and hasattr(dataset, "features")


def _check_column(features: Any, name: str) -> None:
    if name not in features:
        raise NoColumn(f"the data set has no column {name!r}; it has {', '.join(features)}")


def _check_image(features: Any, name: str) -> None:
    _check_column(features, name)
    if not is_a(features[name], IMAGE):
        raise TypeError(
            f"column {name!r} is of the feature {type(features[name]).__name__}, not Image: "
            f"dataset.cast_column({name!r}, datasets.Image()) makes it one"
        )
    mode = getattr(features[name], "mode", None)
    if mode not in (None, "RGB"):
        raise TypeError(
            f"column {name!r} is of the mode {mode}, and HFImages gives RGB: "
            f"dataset.cast_column({name!r}, datasets.Image()) leaves the mode open"
        )


def _names_of(features: Any, name: str) -> list[str] | None:
    if name not in features:
        raise NoColumn(
            f"the data set has no column {name!r}; it has {', '.join(features)}. If there are no "
            "labels: label=None"
        )
    feature = features[name]
    if is_a(feature, CLASS_LABEL):
        return list(feature.names)
    if not str(getattr(feature, "dtype", "")).startswith(("int", "uint")):
        raise TypeError(
            f"column {name!r} is {feature}, and labels are whole numbers: "
            f"dataset.class_encode_column({name!r}) makes class numbers of names"
        )
    return None


def _files_of(chunks: Any, rows: Any | None) -> tuple[Any, Any] | None:
    """Returns the paths of a column in one run of bytes, and where each ends. None if a path is missing,
    or is not one of this machine: ``datasets`` also has URLs, and members of archives."""
    paths = [path for chunk in chunks for path in chunk.field("path").to_pylist()]
    if rows is not None:
        paths = [paths[row] for row in rows]
    if not paths or any(path is None or "://" in path for path in paths):
        return None
    encoded = [os.fsencode(path) for path in paths]
    ends = np.cumsum([len(path) for path in encoded], dtype=np.uint64)
    return np.frombuffer(b"".join(encoded), np.uint8), ends


def _places_of(chunks: Any, field: str) -> tuple[Any, Any]:
    """Returns the addresses and sizes of what a field of the pictures holds, bytes or text; both are 0
    where it is missing."""
    import pyarrow

    places = [np.zeros((2, 0), np.uint64)]
    for chunk in chunks:
        values = chunk.field(field)
        if pyarrow.types.is_binary(values.type) or pyarrow.types.is_string(values.type):
            kind: Any = np.int32
        elif pyarrow.types.is_large_binary(values.type) or pyarrow.types.is_large_string(
            values.type
        ):
            kind = np.int64
        else:
            places.append(np.zeros((2, len(chunk)), np.uint64))
            continue
        _valid, ends, data = values.buffers()
        offsets = np.frombuffer(
            ends, kind, len(values) + 1, values.offset * np.dtype(kind).itemsize
        )
        base = 0 if data is None else data.address
        found = np.stack(
            [offsets[:-1].astype(np.uint64) + np.uint64(base), np.diff(offsets).astype(np.uint64)]
        )
        # What is missing may have bytes below it, in the child of what is null.
        missing = values.is_null().to_numpy(zero_copy_only=False)
        missing = missing | chunk.is_null().to_numpy(zero_copy_only=False)
        found[:, missing] = 0
        places.append(found)
    return tuple(np.concatenate(places, axis=1))
