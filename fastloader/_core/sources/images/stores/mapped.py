"""Encoded pictures that lie in memory: in mapped files, for the most part."""

from __future__ import annotations

import bisect
import copy
import io
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import numpy as np

from fastloader._core.machine import extension
from fastloader.datasets._formats.mapped_file import Looks, WatchedFile
from fastloader.transforms._pillow import opened


class MappedPictures(Protocol):
    """A dataset of pictures that lie in memory as files. ``upright``: whether they are turned as EXIF
    says."""

    upright: bool

    def __len__(self) -> int: ...

    def places(self) -> tuple[Any, Any, Any]:
        """Where the pictures are: their addresses and sizes in bytes, uint64 arrays of the caller's, and
        what has to be kept for these to stay valid. An address of 0: that one is elsewhere, and only
        `open_rgb` knows where."""
        ...

    def will_need(self, indices: list[int]) -> None:
        """Has the system read these pictures ahead, all at the same time. Waits for nothing."""
        ...

    def files_of(self, indices: list[int]) -> Sequence[WatchedFile]:
        """The files that these pictures are read from, as far as anybody can tell whether they have
        changed."""
        ...

    def name(self, index: int) -> str: ...

    def open_rgb(self, index: int) -> Any: ...

    def image_bytes(self, index: int) -> bytes: ...


class MappedStore:
    """Pictures of such datasets, one dataset after the other."""

    packed = True
    indexed = 0

    source: Any  # the native module's source, once the store is opened
    seek_indices: Any = None

    def __init__(self, parts: list[MappedPictures], kind: str) -> None:
        self.parts = parts
        self.kind = kind
        self.upright = parts[0].upright
        self.starts = [0, *np.cumsum([len(part) for part in parts]).tolist()]

    def __len__(self) -> int:
        return int(self.starts[-1])

    def same(self, other: Any) -> bool:
        return (
            type(other) is MappedStore
            and len(self.parts) == len(other.parts)
            and all(a is b for a, b in zip(self.parts, other.parts))
        )

    def joined(self, others: Sequence[MappedStore]) -> MappedStore:
        kinds = sorted({store.kind for store in [self, *others]}, key=str.lower)
        parts = [part for store in [self, *others] for part in store.parts]
        return MappedStore(parts, " and ".join(kinds))

    def opened(self) -> MappedStore:
        mine = copy.copy(self)
        if extension.load() is not None:
            addresses, sizes, owners = zip(*(part.places() for part in self.parts), strict=True)
            mine.source = extension.native.MemorySource(
                np.concatenate(addresses), np.concatenate(sizes), owners
            )
        return mine

    def _part(self, index: int) -> tuple[MappedPictures, int]:
        number = bisect.bisect_right(self.starts, index) - 1
        return self.parts[number], index - self.starts[number]

    def _by_part(self, indices: list[int]) -> Iterator[tuple[MappedPictures, list[int]]]:
        by_part: dict[int, list[int]] = {}
        for index in indices:
            number = bisect.bisect_right(self.starts, index) - 1
            by_part.setdefault(number, []).append(index - self.starts[number])
        for number, samples in by_part.items():
            yield self.parts[number], samples

    def prepare(self, indices: list[int]) -> None:
        for part, samples in self._by_part(indices):
            part.will_need(samples)

    def begin_look(self, indices: list[int]) -> Looks:
        return Looks(
            file for part, samples in self._by_part(indices) for file in part.files_of(samples)
        )

    def name(self, index: int) -> str:
        part, sample = self._part(index)
        return part.name(sample)

    def open_rgb(self, index: int) -> Any:
        part, sample = self._part(index)
        return part.open_rgb(sample)

    def info(self, index: int) -> dict[str, Any]:
        part, sample = self._part(index)
        with opened(io.BytesIO(part.image_bytes(sample)), self.name(index)) as header:
            return dict(header.info)
