"""A picture that operations are done to by Pillow, and what they keep from one to the next."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fastloader.transforms import _pillow
from fastloader.transforms._pillow.operations import apply_operation
from fastloader.transforms._recipe.operations import OF_MIX, Size


class Canvas:
    """A Pillow picture, to which operations are done one after the other.

    Attributes: ``picture``, as it is now.
    """

    def __init__(self, picture: Any) -> None:
        self.picture = picture
        self._kept: Any = None  # the picture with which a mix began
        self._sum = np.zeros(0, np.float32)  # for each of its values, what the mix has come to

    def size(self) -> Size:
        """The picture's height and width."""
        width, height = self.picture.size
        return height, width

    def apply(self, name: str, numbers: Sequence[float]) -> None:
        """Does an operation.

        Raises:
            ValueError: for an operation of a mix that has not begun, or that pictures of another size
                are in.
        """
        if name not in OF_MIX:
            self.picture = apply_operation(self.picture, name, numbers)
        elif name == "mix_begin":
            self._begin(*numbers)
        else:
            self._check(name)
            self._go_on(name, *numbers)

    def _begin(self, weight: float) -> None:
        if self._kept is not None:
            raise ValueError("mix_begin within a mix")
        self._kept = self.picture
        self._sum = np.float32(weight) * self._values()

    def _check(self, name: str) -> None:
        if self._kept is None:
            raise ValueError(f"{name} without mix_begin before it")
        if self._kept.size != self.picture.size:
            raise ValueError(
                f"{name}: a picture of {self.picture.size} pixels in a mix of {self._kept.size}"
            )

    def _go_on(self, name: str, number: float) -> None:
        if name == "mix_add":
            self._sum += np.float32(number) * self._values()
        elif name == "mix_blend":
            with np.errstate(over="ignore"):
                self._sum += np.float32(number) * (self._values() - self._sum)
            self._sum = self._bytes().astype(np.float32)
        else:
            module = _pillow.image_module()
            mixed = module.fromarray(self._bytes(), self._kept.mode)
            self.picture = module.blend(self._kept, mixed, number)
            self._kept = None
            return
        self.picture = self._kept

    def _values(self) -> Any:
        return np.asarray(self.picture, dtype=np.float32)

    def _bytes(self) -> Any:
        return np.clip(self._sum, 0, 255).astype(np.uint8)
