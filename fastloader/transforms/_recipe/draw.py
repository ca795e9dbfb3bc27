"""What is drawn for one picture."""

from __future__ import annotations

from typing import Any

import torch

from fastloader.transforms._pillow import image_module
from fastloader.transforms._pillow.canvas import Canvas
from fastloader.transforms._recipe import geometry
from fastloader.transforms._recipe.draws import INTERPOLATION, OCCURRENCE, PICTURE, Draws
from fastloader.transforms._recipe.recipe import Recipe, Step


class Draw:
    """Draws for one picture, step by step along its chain. Each step has random numbers of its own;
    see csrc/image/draw_numbers.h.

    Args:
        seed: of the epoch. None: torch's default generator gives it when the first step asks, so that a
            chain without draws leaves that generator alone.
        index: The number of the sample.
        picture: Which picture of the sample it is.
    """

    def __init__(self, seed: int | None = None, index: int = 0, picture: int = 0) -> None:
        self._seed = seed
        self.index = index
        self.picture = picture
        # How many steps of each kind came before.
        self._before: dict[int, int] = {}

    @property
    def seed(self) -> int:
        if self._seed is None:
            self._seed = int(torch.randint(0, 2**63 - 1, (), device="cpu").item())
        return self._seed

    def __call__(self, number: int) -> Draws:
        """The random numbers of a step of the head of a chain: CROP, HORIZONTAL_FLIP and so on. A second
        step of a kind has others than the first."""
        before = self._before.get(number, 0)
        self._before[number] = before + 1
        stream = number | before << OCCURRENCE | self.picture << PICTURE
        return Draws(self.seed, self.index, stream)

    def resampling(self, interpolation: str) -> Any:
        """Pillow's constant for "bilinear", "bicubic" or a drawn "random"."""
        if interpolation == "random":
            interpolation = geometry.random_interpolation(self(INTERPOLATION))
        return getattr(image_module().Resampling, interpolation.upper())

    def chosen(self, step: Step) -> list[int]:
        """Which children of the step are done, in their order: as `run` draws it, for children that are
        no steps."""
        return Recipe([step], self._before).chosen(self.seed, self.index, self.picture)

    def run(self, step: Step, image: Any) -> Any:
        """What the step makes of a Pillow picture."""
        recipe = Recipe([step], self._before)
        seed = self.seed if recipe.random else 0
        # One after the other, because what is drawn next may depend on the size that comes out.
        canvas = Canvas(image)
        for operation in recipe.draw(seed, self.index, self.picture, canvas.size):
            canvas.apply(*operation)
        return canvas.picture
