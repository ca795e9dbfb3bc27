"""``ListImages``: pictures that a table names."""

from __future__ import annotations

import csv
import json
import os
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from fastloader.datasets._formats.files.file_list import FileList
from fastloader.datasets._formats.no_column import NoColumn
from fastloader.datasets._formats.sample_form import SampleForm, checked_columns
from fastloader.datasets.image_folder import IMG_EXTENSIONS

_WHOLE = re.compile(r"^\s*[+-]?[0-9]+(\.0*)?\s*$")
_DELIMITERS = {".csv": ",", ".tsv": "\t"}


class ListImages(FileList):
    """Pictures that a CSV, TSV or JSON file lists, with a label each.

    Args:
        file: The list. ``.csv`` and ``.tsv``: a line for each picture, the first of which names the
            columns. ``.json``: a list of objects, or an object of lists (columns); ``.jsonl``: an object
            a line.
        transform: What becomes of a picture, as in `ImageFolder`; default None.
        target_transform: A function of the label; None (default) leaves the label.
        path: The column of paths.
        label: The column of labels; None: there is none, and labels are -1. If all are whole numbers,
            they are the labels. Otherwise they are the names of classes, which are numbered in sorted
            order.
        classes: The names of classes in the order of their numbers, such as those of the training list:
            a list that lacks a class would number the others differently. Default None: the names that
            stand in the list, sorted.
        columns: Further columns of which a sample has the values: text from a ``.csv`` or ``.tsv``,
            any value from a ``.json`` or ``.jsonl``. Default: none.
        as_dict: Whether a sample is a dict with the keys "pixel_values", "labels" and the names of the
            columns. Default False: (picture, label), and then the columns.
        root: The folder to which paths are relative; default None, the folder of the list.

    Attributes:
        targets: the labels, an int64 array.
        classes: the names, sorted, or None.
        class_to_idx: name to label, or None.
        samples: sequence of (path, label).

    Files are read when they are wanted: one that is missing is an error
    then.

    Raises:
        FileNotFoundError: if there is no such list.
        KeyError: if it has no such column.
        ValueError: if a line lacks a column or has one too many, if a label is none of ``classes``, or
            if the list is of another kind or empty.
    """

    def __init__(
        self,
        file: str | os.PathLike[str],
        transform: Callable[[Any], Any] | None = None,
        target_transform: Callable[[int], Any] | None = None,
        *,
        path: str = "path",
        label: str | None = "label",
        classes: Sequence[str] | None = None,
        columns: Sequence[str] = (),
        as_dict: bool = False,
        root: str | os.PathLike[str] | None = None,
    ) -> None:
        self.file = os.path.abspath(os.path.expanduser(os.fspath(file)))
        self.transform = transform
        self.target_transform = target_transform
        self.root = (
            os.path.dirname(self.file)
            if root is None
            else os.path.abspath(os.path.expanduser(root))
        )
        self.columns = checked_columns(columns)
        self.form = SampleForm.of(self.columns, self._rest, as_dict)
        paths, labels, self._values = _read(self.file, path, label, self.columns)
        if not paths:
            raise ValueError(f"{self.file} lists no picture")
        encoded = [os.fsencode(os.path.join(self.root, each)) for each in paths]
        self.paths = np.frombuffer(b"".join(encoded), np.uint8)
        self.ends = np.cumsum([len(each) for each in encoded], dtype=np.uint64)
        self.classes, self.targets = _numbered(labels, len(paths), classes, self.file)
        self.class_to_idx = None
        if self.classes is not None:
            self.class_to_idx = {name: number for number, name in enumerate(self.classes)}

    def _rest(self, indices: list[int]) -> list[tuple[Any, ...]]:
        """The further columns of these samples."""
        return [self._values[index] for index in indices]


def _read(
    file: str, path: str, label: str | None, columns: list[str]
) -> tuple[list[str], list[Any] | None, list[tuple[Any, ...]]]:
    """(paths, labels or None, the further columns of each row)"""
    paths: list[str] = []
    labels: list[Any] = []
    values: list[tuple[Any, ...]] = []
    for where, row in _rows(file):
        for column in (path, label, *columns):
            if column is None:
                continue
            if column not in row:
                there = ", ".join(repr(each) for each in row)
                raise NoColumn(
                    f"{file}: no column {column!r}; there are {there}{_hint(row, column, path, label)}"
                )
            if column in (path, label) and row[column] in (None, ""):
                raise ValueError(f"{where}: column {column!r} is empty")
        if not isinstance(row[path], str):
            raise ValueError(f"{where}: the path is {row[path]!r}, no text")
        paths.append(row[path])
        if label is not None:
            labels.append(row[label])
        values.append(tuple(row[column] for column in columns))
    return paths, None if label is None else labels, values if columns else []


def _hint(row: dict[str, Any], missing: str, path: str, label: str | None) -> str:
    """Which column a missing one could be, if the values of a row tell."""
    if missing == path:
        named = [name for name, value in row.items() if str(value).lower().endswith(IMG_EXTENSIONS)]
        return (
            f". If {named[0]!r} has the paths: ListImages(file, path={named[0]!r})" if named else ""
        )
    return ". If there are no labels: label=None" if missing == label else ""


def _rows(file: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each row by its columns, and where it stands."""
    try:
        yield from _parsed(file)
    except (json.JSONDecodeError, csv.Error, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"{file}: {error}") from None


def _parsed(file: str) -> Iterator[tuple[str, dict[str, Any]]]:
    ending = os.path.splitext(file)[1].lower()
    with open(file, newline="", encoding="utf-8-sig") as lines:
        if ending == ".json":
            yield from _rows_of_json(file, json.load(lines))
        elif ending == ".jsonl":
            for number, line in enumerate(lines, 1):
                if line.strip():
                    row = json.loads(line)
                    if not isinstance(row, dict):
                        raise ValueError(f"{file}, line {number}: no object")
                    yield f"{file}, line {number}", row
        elif ending in _DELIMITERS:
            reader = csv.DictReader(lines, delimiter=_DELIMITERS[ending])
            names = reader.fieldnames or []
            if len(set(names)) < len(names):
                raise ValueError(f"{file}: two columns have one name: {', '.join(names)}")
            for row in reader:
                if None in row or None in row.values():
                    more = "more" if None in row else "fewer"
                    raise ValueError(
                        f"{file}, line {reader.line_num}: {more} values than columns; text with a "
                        "delimiter stands in quotes"
                    )
                yield f"{file}, line {reader.line_num}", row
        else:
            raise ValueError(f"{file}: lists are .csv, .tsv, .json and .jsonl files")


def _rows_of_json(file: str, content: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    if isinstance(content, dict) and all(isinstance(each, list) for each in content.values()):
        lengths = {name: len(each) for name, each in content.items()}
        if len(set(lengths.values())) > 1:
            raise ValueError(f"{file}: its columns differ in length: {lengths}")
        content = [dict(zip(content, row)) for row in zip(*content.values())]
    if not isinstance(content, list) or not all(isinstance(row, dict) for row in content):
        raise ValueError(f"{file}: neither a list of objects nor an object of lists")
    for number, row in enumerate(content):
        yield f"{file}, row {number}", row


def _numbered(
    labels: list[Any] | None, count: int, classes: Sequence[str] | None, file: str
) -> tuple[list[str] | None, Any]:
    """(names of the classes or None, labels)"""
    if labels is None:
        return None, np.full(count, -1, np.int64)
    numbers = None if classes is not None else [_whole_number(label) for label in labels]
    if numbers is not None and None not in numbers:
        return None, np.array(numbers, np.int64)
    texts = [str(label) for label in labels]
    names = sorted(set(texts)) if classes is None else list(classes)
    number_of = {name: number for number, name in enumerate(names)}
    unknown = sorted(set(texts) - set(names))
    if unknown:
        raise ValueError(f"{file}: {', '.join(unknown[:5])}: not among the classes")
    return names, np.array([number_of[text] for text in texts], np.int64)


def _whole_number(label: Any) -> int | None:
    """Also of "1.0", which pandas writes where a column had gaps."""
    if isinstance(label, bool):
        return None
    try:
        if isinstance(label, str):
            return int(label.partition(".")[0]) if _WHOLE.match(label) else None
        return int(label) if label == int(label) else None
    except (ValueError, TypeError, OverflowError):
        return None
