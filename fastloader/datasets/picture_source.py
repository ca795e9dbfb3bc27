"""``PictureSource``: where one encoded picture lies."""

from __future__ import annotations

import io
import os
from typing import TYPE_CHECKING, Any

import numpy as np

from fastloader._core.machine import extension
from fastloader._core.machine.mapped_memory import read_view
from fastloader.datasets.put_off import PutOff
from fastloader.transforms._pillow import (
    decoded_indices,
    decoded_rgb,
    open_rgb,
    regular_file,
)

if TYPE_CHECKING:
    from fastloader import _native


class PictureSource:
    """A file, by its path, or bytes in memory.

    Args:
        source: the path or the bytes.
        called: what messages call bytes in memory; None: their number.
        problem: why there is no picture, although the sample wants one. It is an error of that sample
            when the picture is decoded.
        indices: whether it is a mask, which is opened as `decoded_indices` does it.

    Attributes: ``path``, encoded as the system has it, or None; ``data``, a contiguous array of bytes
    over the memory that was given, or None; ``called`` and ``problem``.

    Raises:
        TypeError: for anything else.
    """

    __slots__ = ("called", "data", "indices", "path", "problem")

    def __init__(
        self,
        source: Any,
        called: str | None = None,
        problem: str | None = None,
        indices: bool = False,
    ) -> None:
        self.path: bytes | None = None
        self.data: Any = None
        self.indices = indices
        self.called = called
        self.problem = problem
        if isinstance(source, str | os.PathLike):
            self.path = os.fsencode(source)
            if b"\0" in self.path:
                raise ValueError(f"a path with a null character: {source!r}")
            return
        try:
            view = memoryview(source)
        except TypeError:
            view = memoryview(_array_of(source))
        if view.format not in ("B", "b", "c"):
            raise _unknown(source)
        if not view.c_contiguous:
            raise TypeError(
                "the bytes of an encoded picture must lie one after the other in memory"
            )
        self.data = np.frombuffer(view.cast("B") if view.nbytes else b"", dtype=np.uint8)

    def __reduce__(self) -> Any:
        given = self.data.tobytes() if self.path is None else os.fsdecode(self.path)
        return PictureSource, (given, self.called, self.problem, self.indices)

    @property
    def name(self) -> str:
        """The name of the picture in messages."""
        if self.path is not None:
            return os.fsdecode(self.path)
        return f"{len(self.data)} bytes in memory" if self.called is None else self.called

    @property
    def same(self) -> Any:
        """The key that two sources of the same picture share."""
        if self.path is not None:
            return self.path, self.indices
        if self.problem is not None:
            return "problem", self.problem
        return self.data.__array_interface__["data"][0], len(self.data), self.indices

    def opened(self) -> _native.FolderSource | _native.MemorySource:
        """Opens this one picture as a source of the native module."""
        if self.path is not None:
            ends = np.array([len(self.path)], dtype=np.uint64)
            return extension.native.FolderSource(np.frombuffer(self.path, dtype=np.uint8), ends)
        where = np.array([self.data.__array_interface__["data"][0]], dtype=np.uint64)
        return extension.native.MemorySource(
            where, np.array([len(self.data)], np.uint64), self.data
        )

    def open_rgb(self, upright: bool = False) -> Any:
        """Opens the picture through Pillow, or raises what is wrong with it. ``upright``: turned as EXIF
        says."""
        if self.problem is not None:
            raise ValueError(self.problem)
        if self.path is None:
            data = io.BytesIO(read_view(self.data, self.name))
            if self.indices:
                return decoded_indices(data, self.name)
            return decoded_rgb(data, self.name, upright)
        if not self.indices:
            return open_rgb(os.fsdecode(self.path), upright)
        with regular_file(os.fsdecode(self.path)) as file:
            return decoded_indices(file)


def _array_of(source: Any) -> Any:
    """Returns a tensor of bytes as an array."""
    known = not isinstance(source, PutOff) and callable(getattr(source, "numpy", None))
    array = source.numpy() if known else None
    if array is None or array.dtype != np.uint8:
        raise _unknown(source)
    return array


def _unknown(source: Any) -> TypeError:
    kind = type(source)
    return TypeError(
        "an encoded picture is a path, or bytes: bytes, bytearray, memoryview, a numpy array or a "
        f"tensor of uint8; this is a {kind.__module__}.{kind.__qualname__}"
    )
