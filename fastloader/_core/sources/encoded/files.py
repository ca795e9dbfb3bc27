"""The encoded files of one batch."""

from __future__ import annotations

import io
import os
import stat
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from fastloader._core.machine import extension
from fastloader._core.machine.mapped_memory import read_view
from fastloader.datasets.encoded import PictureSource
from fastloader.transforms._pillow import decoded_rgb, open_rgb

if TYPE_CHECKING:
    from fastloader import _native


class EncodedFiles:
    """Files, each once: by their paths, or as bytes in memory. They cross to another process in one
    tensor, and so lie in shared memory there, where nothing is copied again."""

    def __init__(self, sources: Sequence[PictureSource]) -> None:
        # Paths as the system encodes them, and arrays.
        self._files: list[Any] = [
            source.data if source.path is None else source.path for source in sources
        ]
        # Of those that have one: what messages call them, and why there is no picture.
        self._called = {n: each.called for n, each in enumerate(sources) if each.called is not None}
        self._problems = {
            n: each.problem for n, each in enumerate(sources) if each.problem is not None
        }

    def only(self, wanted: set[int]) -> EncodedFiles:
        """The files with the same numbers, of which only these are there."""
        made = EncodedFiles(())
        made._files = [file if each in wanted else b"" for each, file in enumerate(self._files)]
        made._called, made._problems = self._called, self._problems
        return made

    def __len__(self) -> int:
        return len(self._files)

    def __reduce__(self) -> Any:
        parts = [np.frombuffer(each, np.uint8) if _is_path(each) else each for each in self._files]
        ends = np.cumsum([len(each) for each in parts], dtype=np.int64)
        joined = np.concatenate([np.empty(0, np.uint8), *parts])
        paths = list(map(_is_path, self._files))
        return _arrived, (torch.from_numpy(joined), ends, paths, self._called, self._problems)

    @classmethod
    def arrived(
        cls,
        joined: torch.Tensor,
        ends: Any,
        paths: list[bool],
        called: dict[int, str],
        problems: dict[int, str],
    ) -> EncodedFiles:
        """Those of another process."""
        made = cls(())
        parts = np.split(joined.numpy(), ends[:-1]) if paths else []
        made._files = [part.tobytes() if path else part for part, path in zip(parts, paths)]
        made._called, made._problems = called, problems
        return made

    def opened(self) -> _native.FolderSource | _native.MemorySource:
        """The native module's source of them, which keeps them where they are."""
        if all(map(_is_path, self._files)):
            ends = np.cumsum([len(path) for path in self._files], dtype=np.uint64)
            return extension.native.FolderSource(
                np.frombuffer(b"".join(self._files), np.uint8), ends
            )
        held = [_read(each) if _is_path(each) else each for each in self._files]
        where = [0 if each is None else each.__array_interface__["data"][0] for each in held]
        sizes = [0 if each is None else len(each) for each in held]
        return extension.native.MemorySource(
            np.array(where, np.uint64), np.array(sizes, np.uint64), held
        )

    # --- as the repair of a batch asks for a store ----------------------------------------------------

    def prepare(self, files: list[int]) -> None:
        pass

    def name(self, file: int) -> str:
        its = self._files[file]
        if _is_path(its):
            return os.fsdecode(its)
        return self._called.get(file) or f"{len(its)} bytes in memory"

    def is_nameless(self, file: int) -> bool:
        """Whether it is bytes in memory that nobody has called anything."""
        return not _is_path(self._files[file]) and file not in self._called

    def open_rgb(self, file: int) -> Any:
        """The Pillow picture. Raises why there is none."""
        if file in self._problems:
            raise ValueError(self._problems[file])
        its = self._files[file]
        if _is_path(its):
            return open_rgb(os.fsdecode(its))
        name = self.name(file)
        return decoded_rgb(io.BytesIO(read_view(its, name)), name)


def _arrived(*parts: Any) -> EncodedFiles:
    return EncodedFiles.arrived(*parts)


def _is_path(file: Any) -> bool:
    return type(file) is bytes


def _read(path: bytes) -> Any | None:
    """The bytes of a file that stands in a batch beside bytes in memory. None if it cannot be read,
    which `open_rgb` says again."""
    try:
        # A pipe would be waited for.
        regular = stat.S_ISREG(os.stat(path).st_mode)
        return np.fromfile(os.fsdecode(path), dtype=np.uint8) if regular else None
    except OSError:
        return None
