"""Encoded pictures, each in its own file."""

from __future__ import annotations

import copy
import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from fastloader._core.machine import extension
from fastloader.datasets._formats.mapped_file import SeekFile
from fastloader.transforms._pillow import open_rgb, opened


class FolderStore:
    """Paths in one run of bytes; the path of file i ends at ``ends[i]``. Stores are compared by
    identity, because recognising a dataset gives the same arrays again while nothing changes.
    ``seek_files``: where the seek indices of JPEGs are. They are found by what a picture contains, so
    that each file may serve the pictures of every folder."""

    kind = "folders"
    packed = False

    source: Any  # the native module's source, once the store is opened
    seek_indices: Any = None

    def __init__(
        self, paths: Any, ends: Any, seek_files: Sequence[SeekFile] = (), upright: bool = False
    ) -> None:
        self.paths = paths
        self.ends = ends
        self.seek_files = tuple(seek_files)
        self.upright = upright

    def __len__(self) -> int:
        return len(self.ends)

    def same(self, other: Any) -> bool:
        return (
            type(other) is FolderStore
            and self.paths is other.paths
            and self.ends is other.ends
            and self.seek_files == other.seek_files
            and self.upright == other.upright
        )

    @property
    def indexed(self) -> int:
        return sum(file.count for file in self.seek_files)

    def joined(self, others: Sequence[FolderStore]) -> FolderStore:
        stores = [self, *others]
        before = np.cumsum([0, *(len(store.paths) for store in stores)]).astype(np.uint64)
        return FolderStore(
            np.concatenate([store.paths for store in stores]),
            np.concatenate([store.ends + number for store, number in zip(stores, before)]),
            list({file.path: file for store in stores for file in store.seek_files}.values()),
            self.upright,
        )

    def opened(self) -> FolderStore:
        mine = copy.copy(self)
        if extension.load() is not None:
            mine.source = extension.native.FolderSource(self.paths, self.ends)
            if self.seek_files:
                mine.seek_indices = extension.native.SeekFiles(
                    [file.mapping for file in self.seek_files]
                )
        return mine

    def prepare(self, indices: list[int]) -> None:
        pass

    def begin_look(self, indices: list[int]) -> None:
        return None

    def name(self, index: int) -> str:
        begin = int(self.ends[index - 1]) if index else 0
        return os.fsdecode(self.paths[begin : int(self.ends[index])].tobytes())

    def open_rgb(self, index: int) -> Any:
        return open_rgb(self.name(index), self.upright)

    def info(self, index: int) -> dict[str, Any]:
        with opened(self.name(index)) as header:
            return dict(header.info)
