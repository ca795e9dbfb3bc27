"""Samples (path, class) as flat arrays."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np

from fastloader._core.sources.images.last_time import last_time
from fastloader._core.sources.images.stores.folder import FolderStore
from fastloader._core.sources.sequences import by_place
from fastloader.datasets._formats.mapped_file import found_beside
from fastloader.errors import NotNative

Samples = Any  # (path, class) of each, in a list or an array
_AT_ONCE = 1 << 16


def copied(values: Any) -> Samples:
    """The samples as they are now: a list, or an array if they are in one.

    Raises:
        NotNative: for a sequence with an order or elements of its own.
    """
    values = by_place(values, "the dataset's samples")
    return values.copy() if isinstance(values, np.ndarray) else list(values)


def flat(dataset: Any, samples: Samples, root: str | None = None) -> tuple[FolderStore, Any]:
    """`made` of these samples, which nobody else changes. For a list, that is a shallow copy, 8 bytes a
    sample: comparing two lists of the same tuples only compares their addresses."""
    return made(dataset, samples, lambda: samples, root)


def made(
    dataset: Any, known_by: Any, samples: Callable[[], Samples], root: str | None = None
) -> tuple[FolderStore, Any]:
    """Returns (store, targets) of the samples that ``samples`` gives. Encoding a million paths takes
    0.2 s, so it is done once, as long as ``known_by`` stays equal. ``root``: the folder of the samples,
    whose seek indices are looked for then, too.

    Raises:
        NotNative: if they are no pairs of a path and a whole number.
    """
    kept = last_time.get(dataset)
    if kept is not None and _equal(kept[0], known_by):
        arrays: tuple[FolderStore, Any] = kept[1]
        return arrays
    paths, lengths, targets, stay = _arrays(samples())
    file = None if root is None else found_beside(root)
    store = FolderStore(
        paths,
        np.cumsum(lengths, dtype=np.uint64),
        () if file is None else (file,),
    )
    arrays = store, targets
    if stay:
        last_time[dataset] = (known_by, arrays)
    else:
        last_time.pop(dataset, None)
    return arrays


def _equal(some: Any, others: Any) -> bool:
    try:
        if isinstance(some, np.ndarray):
            return np.array_equal(some, others)
        return bool(some == others)
    except Exception:  # what holds arrays, or has an equality of its own
        return False


def _arrays(samples: Samples) -> tuple[Any, Any, Any, bool]:
    """The bytes of all paths, how many each path has, and the classes. Also whether no sample can be
    changed in its place, which a copy of the list would show, too."""
    paths, lengths, targets = bytearray(), [], []
    kinds: set[type] = set()
    # The objects that Python needs for a million paths at once would take 200 MB.
    for begin in range(0, len(samples), _AT_ONCE):
        part = samples[begin : begin + _AT_ONCE]
        kinds.update(map(type, part))
        try:
            some, classes = zip(*part, strict=True)
            encoded, sizes = _encoded(some)
        except (TypeError, ValueError):  # the dataset's own code says which
            raise NotNative("the dataset's samples are no pairs of a path and a class") from None
        paths += encoded
        lengths.append(np.asarray(sizes, dtype=np.uint64))
        targets.append(_whole_numbers(classes))
    none = np.zeros(0, np.int64)
    return (
        np.frombuffer(paths, dtype=np.uint8),
        np.concatenate([none.astype(np.uint64), *lengths]),
        np.concatenate([none, *targets]),
        kinds <= {tuple} or getattr(samples, "ndim", 1) == 2,
    )


def _encoded(paths: tuple[Any, ...]) -> tuple[bytes, list[int]]:
    """The bytes of these paths, one after the other, and how many each has."""
    if set(map(type, paths)) == {str} and (joined := "".join(paths)).isascii():
        return joined.encode(), list(map(len, paths))  # a quarter of the time of the other way
    encoded = [os.fsencode(path) for path in paths]
    return b"".join(encoded), list(map(len, encoded))


def _whole_numbers(targets: tuple[Any, ...]) -> Any:
    # Members of an enumeration are more than numbers to the user's code and to collating.
    if other := set(map(type, targets)) - {int}:
        names = ", ".join(sorted(kind.__qualname__ for kind in other))
        raise NotNative(f"the dataset's targets are not whole numbers of Python's int: {names}")
    try:
        return np.asarray(targets, dtype=np.int64)
    except OverflowError:
        raise NotNative("the dataset's targets are of more than 64 bits") from None
