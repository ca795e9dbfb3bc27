"""Encoded pictures in mapped tar shards."""

from __future__ import annotations

import bisect
import copy
import io
from collections.abc import Sequence
from typing import Any

import numpy as np

from fastloader.datasets.tar_images import TarImages
from fastloader.transforms._pillow import opened


class _Table(np.ndarray):
    """Numbers that the native source reads, with the mappings that they point into. Keeping the numbers
    keeps the mappings."""

    mappings: Any = ()


class TarStore:
    """Pictures of `TarImages`, one dataset after the other. Where they lie is known from the start."""

    kind = "tar shards"
    packed = True
    indexed = 0

    source: Any  # the native module's source, once the store is opened
    seek_indices: Any = None

    def __init__(self, parts: list[TarImages]) -> None:
        self.parts = parts
        self.starts = [0, *np.cumsum([len(part) for part in parts]).tolist()]

    def __len__(self) -> int:
        return int(self.starts[-1])

    def same(self, other: Any) -> bool:
        return (
            type(other) is TarStore
            and len(self.parts) == len(other.parts)
            and all(a is b for a, b in zip(self.parts, other.parts))
        )

    def joined(self, others: Sequence[TarStore]) -> TarStore:
        return TarStore([dataset for store in [self, *others] for dataset in store.parts])

    def opened(self, native: Any) -> TarStore:
        mine = copy.copy(self)
        if native is not None:
            addresses = np.concatenate([part.offsets for part in self.parts]).view(_Table)
            kept = []
            for part, start in zip(self.parts, self.starts):
                for mapping, begin, end in part.mappings():
                    mapped = np.frombuffer(mapping, np.uint8)
                    kept.append(mapped)
                    base = np.uint64(mapped.__array_interface__["data"][0])
                    addresses[start + begin : start + end] += base
            addresses.mappings = kept
            sizes = np.concatenate([part.sizes for part in self.parts])
            mine.source = native.MemorySource(addresses, sizes)
        return mine

    def _part(self, index: int) -> tuple[TarImages, int]:
        number = bisect.bisect_right(self.starts, index) - 1
        return self.parts[number], index - self.starts[number]

    def prepare(self, indices: list[int]) -> None:
        for index in indices:
            part, sample = self._part(index)
            part.will_need([sample])

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
