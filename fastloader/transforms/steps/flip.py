"""The picture mirrored."""

from __future__ import annotations

from typing import Any

from fastloader.transforms import _arguments
from fastloader.transforms._pillow import image_module
from fastloader.transforms._recipe.draw import Draw
from fastloader.transforms._recipe.draws import HORIZONTAL_FLIP, VERTICAL_FLIP
from fastloader.transforms.steps.transform import Transform


class RandomHorizontalFlip(Transform):
    """Mirrors left and right with probability ``p``."""

    def __init__(self, p: float = 0.5) -> None:
        self.p = _arguments.probability(p)

    def apply(self, image: Any, draw: Draw) -> Any:
        if draw(HORIZONTAL_FLIP).uniform() >= self.p:
            return image
        return image.transpose(image_module().Transpose.FLIP_LEFT_RIGHT)


class RandomVerticalFlip(Transform):
    """Mirrors top and bottom with probability ``p``."""

    def __init__(self, p: float = 0.5) -> None:
        self.p = _arguments.probability(p)

    def apply(self, image: Any, draw: Draw) -> Any:
        if draw(VERTICAL_FLIP).uniform() >= self.p:
            return image
        return image.transpose(image_module().Transpose.FLIP_TOP_BOTTOM)
