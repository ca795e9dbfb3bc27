"""Pictures as pixels, in arrays of numpy's and tensors of torch's."""

from __future__ import annotations

import bisect
import copy
import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from fastloader._core.machine import extension
from fastloader._core.machine.mapped_memory import file_at
from fastloader.errors import Error
from fastloader.transforms._pillow import image_module


@dataclasses.dataclass(frozen=True)
class Pixels:
    """An array of pictures of one size: bytes of the shape (pictures, height, width) if they are grey,
    or with a fourth dimension, the channels. With ``channels_first`` that is the second one."""

    array: Any
    channels_first: bool = False

    def seen(self) -> Any:
        """The pixels as they are now, of the shape (pictures, height, width) or (pictures, height,
        width, 3). The memory stays where it is as long as what is returned."""
        # An alias: the user's tensor may be given another memory.
        seen = self.array.detach().numpy() if isinstance(self.array, torch.Tensor) else self.array
        return seen.transpose(0, 2, 3, 1) if self.channels_first else seen


class PixelStore:
    """Arrays of pictures, one after the other. Nothing is copied: a picture is made of the pixels that
    are there when it is made."""

    kind = "arrays"
    packed = False
    upright = False
    indexed = 0

    source: Any = None  # the native module's source, once the store is opened
    seek_indices: Any = None

    def __init__(self, parts: Sequence[Pixels]) -> None:
        self.parts = tuple(parts)
        seen = [part.seen() for part in parts]
        self._ends = np.cumsum([len(each) for each in seen]).tolist()
        self._where = [
            (each.__array_interface__["data"][0], each.shape, each.strides) for each in seen
        ]

    def __len__(self) -> int:
        return int(self._ends[-1])

    def same(self, other: Any) -> bool:
        return (
            type(other) is PixelStore
            and self._where == other._where
            and all(a.array is b.array for a, b in zip(self.parts, other.parts))
        )

    def joined(self, others: Sequence[PixelStore]) -> PixelStore:
        return PixelStore([part for store in [self, *others] for part in store.parts])

    def opened(self) -> PixelStore:
        mine = copy.copy(self)
        if extension.load() is not None:
            mine.source = extension.native.PixelSource([part.seen() for part in self.parts])
        return mine

    def prepare(self, indices: list[int]) -> None:
        pass

    def begin_look(self, indices: list[int]) -> None:
        return None

    def name(self, index: int) -> str:
        return f"picture {index} of the dataset's array"

    def open_rgb(self, index: int) -> Any:
        number = bisect.bisect_right(self._ends, index)
        pixels = self.parts[number].seen()
        if self.source is not None:  # which reads mapped files, too
            height, width = pixels.shape[1:3]
            try:
                data = self.source.read(index)
            except Error as error:
                where = pixels.__array_interface__["data"][0]
                file = file_at(where, pixels.nbytes) or "its array"
                raise OSError(f"{file}: {error}") from None
            return image_module().frombytes("RGB", (width, height), data)
        picture = pixels[index - self._ends[number]]
        return image_module().fromarray(np.ascontiguousarray(picture)).convert("RGB")

    def info(self, index: int) -> dict[str, Any]:
        return {}
