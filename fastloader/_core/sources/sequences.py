"""Sequences in a dataset that are read all at once, where its own code takes one element at a time."""

from __future__ import annotations

import array
from typing import Any

import numpy as np
import torch

from fastloader._core.machine.identity import is_a
from fastloader.errors import NotNative

# Element i of one of these is what stands in place i when all of it is read. Of a pandas Series, it is
# what has the label i.
_BY_PLACE = (list, tuple, range, array.array, np.ndarray, np.memmap, torch.Tensor)
_OF_PANDAS = (("pandas", "Index"), ("pandas", "RangeIndex"))


def by_place(values: Any, what: str) -> Any:
    """Returns the values themselves, if each of them is found by its place.

    Raises:
        NotNative: for any other sequence, such as a list with an order or elements of its own. It says
            ``what`` the values are.
    """
    kind = type(values)
    if kind in _BY_PLACE or is_a(values, *_OF_PANDAS):
        return values
    for plain in (list, tuple):
        if isinstance(values, plain) and all(
            getattr(kind, name) is getattr(plain, name)
            for name in ("__getitem__", "__iter__", "__len__")
        ):
            return values
    raise NotNative(f"{what} are a {kind.__module__}.{kind.__qualname__}")


def picked_by(subset: Any) -> Any:
    """Returns the indices of a Subset as int64. torch refuses whatever a list would not take for an
    index.

    Raises:
        NotNative: if they are not whole numbers.
    """
    indices = by_place(subset.indices, "the indices of a Subset")
    try:
        picked = np.asarray(indices)
    except (TypeError, ValueError):  # ragged
        picked = np.asarray(None)
    if picked.size == 0 and picked.ndim == 1:
        return np.zeros(0, np.int64)
    if picked.ndim != 1 or picked.dtype.kind not in "iu":
        raise NotNative("the indices of a Subset are not whole numbers")
    return np.ascontiguousarray(picked, dtype=np.int64)
