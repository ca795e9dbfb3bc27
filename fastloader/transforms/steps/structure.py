"""Transforms that hold others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fastloader.transforms._recipe.draw import Draw
from fastloader.transforms.steps.transform import Transform


class Compose(Transform):
    """Does the transforms one after the other."""

    def __init__(self, transforms: Sequence[Callable[[Any], Any]]) -> None:
        self.transforms = list(transforms)

    def apply(self, image: Any, draw: Draw) -> Any:
        for transform in self.transforms:
            image = (
                transform.apply(image, draw)
                if isinstance(transform, Transform)
                else transform(image)
            )
        return image
