"""Samples (path, class) as flat arrays."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from fastloader._core.sources.images.recognize.last_time import last_time
from fastloader._core.sources.images.stores.folder import FolderStore
from fastloader.errors import NotNative


def flat(dataset: Any, samples: list[tuple[str, int]]) -> tuple[FolderStore, Any]:
    """Returns (store, targets) of a list of samples. Encoding a million paths takes half a second, so it
    is done once. A shallow copy of the list, 8 bytes a sample, shows whether any sample was replaced:
    comparing two lists of the same tuples only compares their addresses."""
    kept = last_time.get(dataset)
    if kept is not None and kept[0] == samples:
        arrays: tuple[FolderStore, Any] = kept[1]
        return arrays
    encoded = [os.fsencode(path) for path, _target in samples]
    targets = [target for _path, target in samples]
    if not all(isinstance(target, int) and not isinstance(target, bool) for target in targets):
        raise NotNative("the dataset's targets are not whole numbers")
    if targets and not -(1 << 63) <= min(targets) <= max(targets) < 1 << 63:
        raise NotNative("the dataset's targets are of more than 64 bits")
    store = FolderStore(
        np.frombuffer(b"".join(encoded), dtype=np.uint8),
        np.cumsum([len(path) for path in encoded], dtype=np.uint64),
    )
    arrays = store, np.asarray(targets, dtype=np.int64)
    last_time[dataset] = (list(samples), arrays)
    return arrays
