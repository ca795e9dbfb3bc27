"""The encoded files of one batch."""

from __future__ import annotations

import io
import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from fastloader.datasets._encoded.picture_source import PictureSource
from fastloader.transforms._pillow import decoded_rgb, open_rgb


class EncodedFiles:
    """Files, each once: all by their paths, or all of them as bytes in memory. They cross to another
    process in one tensor, and so lie in shared memory there, where nothing is copied again."""

    def __init__(self, sources: Sequence[PictureSource]) -> None:
        self.paths = all(source.path is not None for source in sources)
        self._files: list[Any] = [
            source.path if self.paths else _in_memory(source) for source in sources
        ]

    def __len__(self) -> int:
        return len(self._files)

    def __reduce__(self) -> Any:
        joined = b"".join(self._files) if self.paths else np.concatenate(self._files)
        array = np.frombuffer(joined, np.uint8).copy() if self.paths else joined
        ends = np.cumsum([len(each) for each in self._files], dtype=np.uint64)
        return _arrived, (self.paths, torch.from_numpy(array), ends)

    @classmethod
    def arrived(cls, paths: bool, joined: torch.Tensor, ends: Any) -> EncodedFiles:
        """Those of another process."""
        made = cls(())
        array = joined.numpy()
        starts = [0, *ends[:-1].tolist()]
        parts = [array[start:end] for start, end in zip(starts, ends.tolist())]
        made.paths = paths
        made._files = [part.tobytes() for part in parts] if paths else parts
        return made

    def opened(self, native: Any) -> Any:
        """The native module's source of them, which keeps them where they are."""
        if self.paths:
            ends = np.cumsum([len(path) for path in self._files], dtype=np.uint64)
            return native.FolderSource(np.frombuffer(b"".join(self._files), np.uint8), ends)
        where = [each.__array_interface__["data"][0] for each in self._files]
        sizes = np.array([len(each) for each in self._files], np.uint64)
        return native.MemorySource(np.array(where, np.uint64), sizes, self._files)

    # --- as the repair of a batch asks for a store ----------------------------------------------------

    def prepare(self, files: list[int]) -> None:
        pass

    def name(self, file: int) -> str:
        if self.paths:
            return os.fsdecode(self._files[file])
        return f"{len(self._files[file])} bytes in memory"

    def open_rgb(self, file: int) -> Any:
        """The Pillow picture. Raises why there is none."""
        if self.paths:
            return open_rgb(os.fsdecode(self._files[file]))
        return decoded_rgb(io.BytesIO(self._files[file]), self.name(file))


def _arrived(paths: bool, joined: torch.Tensor, ends: Any) -> EncodedFiles:
    return EncodedFiles.arrived(paths, joined, ends)


def _in_memory(source: PictureSource) -> Any:
    """The bytes of a file, also of one that a batch has beside bytes in memory."""
    if source.path is None:
        return source.data
    return np.fromfile(os.fsdecode(source.path), dtype=np.uint8)
