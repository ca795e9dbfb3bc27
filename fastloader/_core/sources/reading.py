"""Reads a dataset of a known kind: its samples as flat arrays, and as much of its transform as has to be
known."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import weakref
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from fastloader._core.machine import extension
from fastloader._core.pictures.images import NativeImages
from fastloader._core.pictures.store import FolderStore
from fastloader._core.sources.sequences import by_place
from fastloader.datasets._formats.mapped_file import found_beside
from fastloader.errors import NotNative
from fastloader.transforms._chain import Chain
from fastloader.transforms._reader.beginning import Beginning, TensorEnd, read_beginning, read_end
from fastloader.transforms._reader.chain import (
    read_chain,
    refused_steps,
    with_plain_end,
    wrapper,
)

# ---- How much of a dataset's transform has to be known.


class Reading(Protocol):
    sized: bool  # whether all pictures are to have one size

    def chain(
        self, transform: Any, ours_ends_in_tensor: bool = False, of: Chain | None = None
    ) -> Chain:
        """Returns what is done natively to the dataset's pictures. ``of``: a chain without a step, which
        says what is known of these. Raises NotNative if nothing is."""
        ...

    def target_transform(self, transform: Any) -> None:
        """Notes what the dataset does to its targets. Raises NotNative if that cannot be."""
        ...


class WholeTransform:
    """Reads for batches that are made without Python: everything has to be known."""

    sized = True

    def chain(
        self, transform: Any, ours_ends_in_tensor: bool = False, of: Chain | None = None
    ) -> Chain:
        if transform is None:
            raise NotNative("the dataset has no transform: its samples are Pillow images")
        return read_chain(transform, ours_ends_in_tensor, of)

    def target_transform(self, transform: Any) -> None:
        if transform is not None:
            raise NotNative("the dataset has a target_transform")


class KnownBeginning:
    """Reads for samples that are made in Python, of pictures with which the native path has begun. It
    notes the beginning and the target_transform of each dataset that is read."""

    sized = True

    def __init__(self) -> None:
        self.beginnings: list[Beginning] = []
        self.of_targets: list[Any] = []

    def chain(
        self, transform: Any, ours_ends_in_tensor: bool = False, of: Chain | None = None
    ) -> Chain:
        if transform is None:
            raise NotNative("the dataset has no transform: its samples are Pillow images")
        beginning = read_beginning(transform, ours_ends_in_tensor, of)
        if self.beginnings and beginning.reach != self.beginnings[0].reach:
            raise NotNative("the datasets of a ConcatDataset have different transforms")
        self.beginnings.append(beginning)
        return beginning.chain

    def target_transform(self, transform: Any) -> None:
        self.of_targets.append(transform)


class KnownSamples(KnownBeginning):
    """Reads for samples whose pictures are made without Python, and the rest of which Python makes.
    Everything of the transform has to be known. ``wrap``: as `wrapper` has it. ``end``: as `read_end`
    finds it. The ``beginnings``, which are of all steps but the erasing, are not there if no step stands
    before the conversion to a tensor."""

    sized = False
    wrap: Any = None
    end = TensorEnd((), planar=True)

    def chain(
        self, transform: Any, ours_ends_in_tensor: bool = False, of: Chain | None = None
    ) -> Chain:
        whole = read_chain(transform, ours_ends_in_tensor, of, sized=False)
        wrap = wrapper(transform)
        transform = with_plain_end(transform)
        end = read_end(transform, ours_ends_in_tensor, whole)
        if self.of_targets[1:] and (wrap is not self.wrap or end != self.end):
            raise NotNative("the transforms of a ConcatDataset end in several kinds of tensors")
        self.wrap, self.end = wrap, end
        with contextlib.suppress(NotNative):
            super().chain(transform, ours_ends_in_tensor, of)
        return whole


class OnlyLookedAt(NotNative):
    """Raised by `Refusals` where a transform was looked at: the caller makes nothing."""


class Refusals:
    """Reads for batches that Python makes. It notes all that is in the way of the native path, in the
    first dataset that is read: ``found``, of which ``steps`` are of the transform, and ``target`` of the
    targets; ``rest`` says what the transform comes to without it, as `refused_steps` does."""

    sized = True

    def __init__(self) -> None:
        self.found: list[str] = []
        self.steps: list[str] = []
        self.target = ""
        self.rest = ""

    def chain(
        self, transform: Any, ours_ends_in_tensor: bool = False, of: Chain | None = None
    ) -> Chain:
        if transform is not None:
            self.steps, self.rest = refused_steps(transform, of)
            self.found += self.steps
        raise OnlyLookedAt

    def target_transform(self, transform: Any) -> None:
        if transform is not None:
            self.target = "the dataset has a target_transform"
            self.found.append(self.target)


# ---- The arrays that a dataset's files became in the last epoch.


# The same arrays mean that nothing has changed, so that a loader keeps what it built on them.
last_time: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()


# ---- Samples (path, class) as flat arrays.


Samples = Any  # (path, class) of each, in a list or an array
_AT_ONCE = 1 << 16


def copied(values: Any) -> Samples:
    """Copies the samples as they are now: a list, or an array if they are in one.

    Raises:
        NotNative: for a sequence with an order or elements of its own.
    """
    values = by_place(values, "the dataset's samples")
    return values.copy() if isinstance(values, np.ndarray) else list(values)


def flat(dataset: Any, samples: Samples, root: str | None = None) -> tuple[FolderStore, Any]:
    """Reads these samples, which nobody else changes, by `read_samples`. For a list, that is a shallow
    copy, 8 bytes a sample: comparing two lists of the same tuples only compares their addresses."""
    return read_samples(dataset, samples, lambda: samples, root)


def read_samples(
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
    paths, ends, targets, stay = _arrays(samples())
    file = None if root is None else found_beside(root)
    store = FolderStore(
        paths,
        ends,
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
    """Returns the bytes of all paths, where each path ends, and the classes. Also whether no sample can
    be changed in its place, which a copy of the list would show, too."""
    paths, targets = bytearray(), np.empty(len(samples), np.int64)
    ends = np.empty(len(samples), np.uint64)
    kinds: set[type] = set()
    # The objects that Python needs for a million paths at once would take 200 MB.
    for begin in range(0, len(samples), _AT_ONCE):
        behind = min(begin + _AT_ONCE, len(samples))
        encoded, of_part, classes = _part(samples, begin, behind, kinds)
        np.add(of_part, np.uint64(len(paths)), out=ends[begin:behind])
        targets[begin:behind] = classes
        paths += encoded
    stay = kinds <= {tuple} or getattr(samples, "ndim", 1) == 2
    return np.frombuffer(paths, dtype=np.uint8), ends, targets, stay


def _part(samples: Samples, begin: int, behind: int, kinds: set[type]) -> tuple[bytes, Any, Any]:
    """Returns the bytes of some paths, where each path ends, and the classes. Adds the types of the
    samples to ``kinds``."""
    if type(samples) is list and extension.load() is not None:
        # A tenth of the time of what follows.
        found = extension.native.flat_samples(samples, begin, behind)
        if found is not None:
            kinds.add(tuple)
            return found[0], np.frombuffer(found[1], np.uint64), np.frombuffer(found[2], np.int64)
    paths, classes = [], []
    try:
        # One by one: ``zip(*samples)`` makes 65536 iterators at once, for which the garbage collector
        # looks at all samples again and again. That took seconds.
        for sample in samples[begin:behind]:
            kinds.add(type(sample))
            path, target = sample
            paths.append(path)
            classes.append(target)
        encoded, sizes = _encoded(paths)
    except (TypeError, ValueError):  # the dataset's own code says which
        raise NotNative("the dataset's samples are no pairs of a path and a class") from None
    return encoded, np.cumsum(sizes, dtype=np.uint64), _whole_numbers(classes)


def _encoded(paths: list[Any]) -> tuple[bytes, list[int]]:
    """Returns the bytes of these paths, one after the other, and how many each has."""
    if set(map(type, paths)) == {str} and (joined := "".join(paths)).isascii():
        return joined.encode(), list(map(len, paths))  # a quarter of the time of the other way
    encoded = [os.fsencode(path) for path in paths]
    return b"".join(encoded), list(map(len, encoded))


def _whole_numbers(targets: list[Any]) -> Any:
    # Members of an enumeration are more than numbers to the user's code and to collating.
    if other := set(map(type, targets)) - {int}:
        names = ", ".join(sorted(kind.__qualname__ for kind in other))
        raise NotNative(f"the dataset's targets are not whole numbers of Python's int: {names}")
    try:
        return np.asarray(targets, dtype=np.int64)
    except OverflowError:
        raise NotNative("the dataset's targets are of more than 64 bits") from None


# ---- A kind of dataset that is known.


@dataclasses.dataclass(frozen=True)
class Known:
    """A row of the table of known datasets. ``recognize`` makes `NativeImages` of a dataset. ``reads``:
    the attributes that say which samples there are, or what they are, besides those that most datasets
    have. ``only``: which of its objects hold pictures; None: all."""

    recognize: Callable[[Any, Reading], NativeImages]
    reads: tuple[str, ...] = ()
    only: Callable[[Any], bool] | None = None
