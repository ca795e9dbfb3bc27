"""Samples (path, class) as flat arrays."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np

from fastloader._core.sources.images.last_time import last_time
from fastloader._core.sources.images.stores.folder import FolderStore
from fastloader.datasets._formats.files.seek_file import found_beside
from fastloader.errors import NotNative

Samples = list[tuple[Any, int]]  # (path, class) of each


def listed(values: Any) -> list[Any]:
    """The samples as a list.

    Raises:
        NotNative: for a list with an order or elements of its own.
    """
    for kind in (list, tuple):
        if isinstance(values, kind) and any(
            getattr(type(values), name) is not getattr(kind, name)
            for name in ("__getitem__", "__iter__", "__len__")
        ):
            raise NotNative(f"the dataset's samples are a {type(values).__qualname__}")
    return list(values)


def flat(
    dataset: Any, known_by: Any, listed: Callable[[], Samples], root: str | None = None
) -> tuple[FolderStore, Any]:
    """Returns (store, targets) of the samples that ``listed`` gives. Encoding a million paths takes half
    a second, so it is done once, as long as ``known_by`` stays equal. For a list of samples, that is a
    shallow copy, 8 bytes a sample: comparing two lists of the same tuples only compares their
    addresses. ``root``: the folder of the samples, whose seek indices are looked for then, too."""
    kept = last_time.get(dataset)
    if kept is not None and kept[0] == known_by:
        arrays: tuple[FolderStore, Any] = kept[1]
        return arrays
    samples = listed()
    encoded = [os.fsencode(path) for path, _target in samples]
    targets = [target for _path, target in samples]
    if not all(isinstance(target, int) and not isinstance(target, bool) for target in targets):
        raise NotNative("the dataset's targets are not whole numbers")
    if targets and not -(1 << 63) <= min(targets) <= max(targets) < 1 << 63:
        raise NotNative("the dataset's targets are of more than 64 bits")
    file = None if root is None else found_beside(root)
    store = FolderStore(
        np.frombuffer(b"".join(encoded), dtype=np.uint8),
        np.cumsum([len(path) for path in encoded], dtype=np.uint64),
        () if file is None else (file,),
    )
    arrays = store, np.asarray(targets, dtype=np.int64)
    last_time[dataset] = (known_by, arrays)
    return arrays
