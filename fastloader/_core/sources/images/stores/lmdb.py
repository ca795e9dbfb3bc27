"""Encoded pictures in mapped LMDB files."""

from __future__ import annotations

import bisect
import copy
import io
from collections.abc import Sequence
from typing import Any

import numpy as np

from fastloader._core.machine import extension
from fastloader._core.machine.mapped_memory import address_of
from fastloader.datasets._formats.lmdb import DamagedError
from fastloader.datasets._formats.mapped_file import Looks
from fastloader.datasets.lmdb import LMDBDataset
from fastloader.transforms._pillow import opened


class _Table(np.ndarray):
    """Numbers that the native source reads, with the mappings that they point into. Keeping the numbers
    keeps the mappings."""

    environments: Any = ()


class LmdbStore:
    """Records of `LMDBDataset`s, one dataset after the other. The address of a record in the mapped
    files is looked up when the record is first wanted. So opening stays cheap, and touches only the
    pages of the tree that are used."""

    kind = "LMDB files"
    packed = True
    upright = False

    source: Any  # the native module's source, once the store is opened
    seek_indices: Any = None
    _addresses: Any
    _sizes: Any
    _indices: Any  # addresses and sizes of the seek indices that lie beside the pictures

    def __init__(self, parts: list[LMDBDataset]) -> None:
        self.parts = parts
        self.starts = [0, *np.cumsum([len(part) for part in parts]).tolist()]
        self._environments = tuple(part.environment for part in parts)

    @property
    def indexed(self) -> int:
        return sum(part.indexed for part in self.parts)

    def __getstate__(self) -> Any:
        return self.parts  # a process that gets them by pickle maps the files anew

    def __setstate__(self, parts: list[LMDBDataset]) -> None:
        self.__init__(parts)  # type: ignore[misc]

    def __len__(self) -> int:
        return int(self.starts[-1])

    def same(self, other: Any) -> bool:
        return (
            type(other) is LmdbStore
            and self.starts == other.starts
            and all(a is b for a, b in zip(self._environments, other._environments))
        )

    def joined(self, others: Sequence[LmdbStore]) -> LmdbStore:
        return LmdbStore([dataset for store in [self, *others] for dataset in store.parts])

    def opened(self) -> LmdbStore:
        mine = copy.copy(self)
        mine._addresses = np.zeros(len(self), np.uint64).view(_Table)
        mine._addresses.environments = self._environments
        mine._sizes = np.zeros(len(self), np.uint64)
        mine._indices = np.zeros((2, len(self)), np.uint64)
        if extension.load() is not None:
            mine.source = extension.native.MemorySource(
                mine._addresses, mine._sizes, seek_indices=(mine._indices[0], mine._indices[1])
            )
        return mine

    def _part(self, index: int) -> tuple[LMDBDataset, int]:
        number = bisect.bisect_right(self.starts, index) - 1
        return self.parts[number], index - self.starts[number]

    def prepare(self, indices: list[int]) -> None:
        located = [self._part(index) for index in indices]
        # Announced for all records before any is touched. Otherwise each would be waited for alone.
        for part in {id(part): part for part, _ in located}.values():
            part.will_need([record for owner, record in located if owner is part])
        for index, (part, record) in zip(indices, located):
            if self._addresses[index]:
                continue
            try:
                found = part.record(record)
                address = address_of(found.image)
            except (DamagedError, ValueError):
                continue  # missing, damaged or empty: the decoder refuses it, and `open_rgb` says why
            if found.seek_index:
                self._indices[:, index] = address_of(found.seek_index), len(found.seek_index)
            self._sizes[index] = len(found.image)
            self._addresses[index] = address

    def begin_look(self, indices: list[int]) -> Looks:
        parts = {bisect.bisect_right(self.starts, index) - 1 for index in indices}
        return Looks(self._environments[number] for number in parts)

    def name(self, index: int) -> str:
        part, record = self._part(index)
        try:
            return f"{part.name(record)} in {part.path}"
        except DamagedError:
            return f"record {record} in {part.path}"

    def open_rgb(self, index: int) -> Any:
        part, record = self._part(index)
        return part.open_rgb(record)

    def info(self, index: int) -> dict[str, Any]:
        part, record = self._part(index)
        with opened(io.BytesIO(part.image_bytes(record)), self.name(index)) as header:
            return dict(header.info)
