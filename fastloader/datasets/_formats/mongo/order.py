"""Which samples there are, and in which order."""

from __future__ import annotations

import json
import os
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np


def read_list(path: str | os.PathLike[str]) -> tuple[list[str], Any]:
    """(keys, labels) of the well-known recipe's file: ``{"path_list": [...], "label_list": [...]}``.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if it is another one, or its lists differ in length.
    """
    with open(path, encoding="utf-8") as file:
        try:
            content = json.load(file)
        except ValueError as error:
            raise ValueError(f"{path} is no JSON file: {error}") from None
    if not isinstance(content, dict) or not {"path_list", "label_list"} <= set(content):
        raise ValueError(f'{path} is not {{"path_list": [...], "label_list": [...]}}')
    keys, labels = content["path_list"], content["label_list"]
    if not isinstance(keys, list) or not all(isinstance(each, str) for each in keys):
        raise ValueError(f"{path}: path_list is no list of text")
    if not isinstance(labels, list) or len(labels) != len(keys):
        raise ValueError(f"{path}: there are {len(keys)} paths and not as many labels")
    return keys, whole_numbers(labels, f"{path}: label_list")


def whole_numbers(labels: Sequence[Any], where: str) -> Any:
    """Labels as an int64 array."""
    for number, label in enumerate(labels):
        if not is_label(label):
            raise ValueError(
                f"{where}: label {number} is {label!r}, and labels are whole numbers; with label=None "
                "there are none"
            )
    return np.array(labels, np.int64).reshape(len(labels))


def is_label(value: Any) -> bool:
    """Whether it is a whole number, of any type: some shells store all numbers as doubles."""
    return (isinstance(value, int) and not isinstance(value, bool)) or (
        isinstance(value, float) and value.is_integer()
    )


class Keys(Sequence[Any]):
    """Keys of samples. Those that are all text lie in one run of bytes, without an object each."""

    def __init__(self, keys: Sequence[Any]) -> None:
        keys = [each.item() if hasattr(each, "item") else each for each in keys]  # numpy's, torch's
        for number, key in enumerate(keys):
            if key is None or not isinstance(key, Hashable):
                raise ValueError(f"key {number} is {key!r}: documents are not asked for by that")
        self._keys: list[Any] | None = None
        self._ends: Any = None
        self._text = b""
        if not all(type(each) is str for each in keys):
            self._keys = list(keys)
            return
        parts = [each.encode() for each in keys]
        self._ends = np.cumsum([len(part) for part in parts], dtype=np.uint64)
        self._text = b"".join(parts)

    def __len__(self) -> int:
        return len(self._ends) if self._keys is None else len(self._keys)

    def __getitem__(self, index: Any) -> Any:
        if self._keys is not None:
            return self._keys[index]
        if isinstance(index, slice):
            return [self[each] for each in range(*index.indices(len(self)))]
        begin = int(self._ends[index - 1]) if index else 0
        return self._text[begin : int(self._ends[index])].decode()
