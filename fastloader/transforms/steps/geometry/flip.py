"""The picture mirrored."""

from __future__ import annotations

from typing import Any

from fastloader.transforms import _arguments
from fastloader.transforms._pillow import image_module
from fastloader.transforms._recipe.draw import Draw
from fastloader.transforms._recipe.draws import HORIZONTAL_FLIP, VERTICAL_FLIP
from fastloader.transforms._recipe.operations import Size
from fastloader.transforms._recipe.recipe import Step, apply, operation
from fastloader.transforms.steps.transform import RecipeTransform


class RandomHorizontalFlip(RecipeTransform):
    """Mirrors left and right with probability ``p``."""

    def __init__(self, p: float = 0.5) -> None:
        self.p = _arguments.probability(p)

    def step(self, size: Size | None) -> Step:
        return apply(self.p, operation("hflip"))

    def apply(self, image: Any, draw: Draw) -> Any:
        # With the numbers of a chain's head, and not with the step's.
        if draw(HORIZONTAL_FLIP).uniform() >= self.p:
            return image
        return image.transpose(image_module().Transpose.FLIP_LEFT_RIGHT)


class RandomVerticalFlip(RecipeTransform):
    """Mirrors top and bottom with probability ``p``."""

    def __init__(self, p: float = 0.5) -> None:
        self.p = _arguments.probability(p)

    def step(self, size: Size | None) -> Step:
        return apply(self.p, operation("vflip"))

    def apply(self, image: Any, draw: Draw) -> Any:
        # With the numbers of a chain's head, and not with the step's.
        if draw(VERTICAL_FLIP).uniform() >= self.p:
            return image
        return image.transpose(image_module().Transpose.FLIP_TOP_BOTTOM)
