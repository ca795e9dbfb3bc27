"""Draws for one picture in pure Python, and has Pillow do what was drawn."""

from __future__ import annotations

from typing import Any

import torch

from fastloader.transforms._chain import Chain
from fastloader.transforms._pillow import image_module
from fastloader.transforms._recipe import sized
from fastloader.transforms._recipe.draws import (
    CROP,
    HORIZONTAL_FLIP,
    INTERPOLATION,
    OCCURRENCE,
    PICTURE,
    VERTICAL_FLIP,
    Draws,
)
from fastloader.transforms._recipe.operations import (
    INTERPOLATIONS,
    Canvas,
    Operation,
    Size,
    size_after,
)
from fastloader.transforms._recipe.recipe import MOST_PICTURES, Recipe, Step

# ---- What is drawn for one picture.


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
        """Returns the random numbers of a step of the head of a chain: CROP, HORIZONTAL_FLIP and so on.
        A second step of a kind has others than the first."""
        before = self._before.get(number, 0)
        self._before[number] = before + 1
        stream = number | before << OCCURRENCE | self.picture << PICTURE
        return Draws(self.seed, self.index, stream)

    def resampling(self, interpolation: str) -> Any:
        """Returns Pillow's constant for "bilinear", "bicubic" or a drawn "random"."""
        if interpolation == "random":
            interpolation = sized.random_interpolation(self(INTERPOLATION))
        return getattr(image_module().Resampling, interpolation.upper())

    def chosen(self, step: Step) -> list[int]:
        """Draws which children of the step are done, in their order: as `run` draws it, for children
        that are no steps."""
        return Recipe([step], self._before).chosen(self.seed, self.index, self.picture)

    def run(self, step: Step, image: Any) -> Any:
        """Applies the step to a Pillow picture."""
        recipe = Recipe([step], self._before)
        seed = self.seed if recipe.random else 0
        # One after the other, because what is drawn next may depend on the size that comes out.
        canvas = Canvas(image)
        for operation in recipe.draw(seed, self.index, self.picture, canvas.size):
            canvas.apply(*operation)
        return canvas.picture


# ---- A chain done to a picture by Pillow, with the draws and the pixels of the native path.
#
# csrc/image/image_transform.h and csrc/pipeline/sample_decoder.h are the definition; a test
# compares the two.


def draw(chain: Chain, size: Size, seed: int, sample: int, number: int = 0) -> dict[str, Any]:
    """Draws for a picture of this (height, width): a function of the arguments only. ``number`` says
    which picture of its sample it is.

    Returns:
        ``size``: the picture's; ``box``: (left, top, width, height) of the part of the picture that is
        used; ``hflip`` and ``vflip``; ``interpolation``; ``scaled``: the (height, width) after the
        resize; and ``operations``: the recipe's (name, numbers), one after the other.

    Raises:
        ValueError: if the chain cannot be done to a picture of this size.
    """
    if not 0 <= number < MOST_PICTURES:
        raise ValueError(f"picture {number} of a sample; {MOST_PICTURES} are the most")
    own_size, size = size, chain.lead_size(size)
    box = (0, 0, size[1], size[0])
    if chain.random_crop is not None:
        scale, ratio = chain.random_crop[:2], chain.random_crop[2:]
        draws = _draws(seed, sample, number, CROP)
        box = sized.random_resized_crop(*size, scale, ratio, draws)
    scaled = _scaled(chain, (box[3], box[2]))
    if 0 in scaled:
        raise ValueError(
            f"a picture of {size[1]}x{size[0]} pixels is too thin for the resize to "
            f"{scaled[1]}x{scaled[0]}"
        )
    interpolation = chain.filter
    if interpolation == "random":
        interpolation = sized.random_interpolation(_draws(seed, sample, number, INTERPOLATION))
    across = _draws(seed, sample, number, HORIZONTAL_FLIP).uniform() < chain.horizontal_flip
    down = _draws(seed, sample, number, VERTICAL_FLIP).uniform() < chain.vertical_flip
    operations = _operations(chain, chain.center_crop or scaled, seed, sample, number)
    following = chain.following
    if following is not None:
        left, top, width, height = (edge * following.factor for edge in box)
        box = (left, top, width, height)
        scaled = scaled[0] * following.factor, scaled[1] * following.factor
        if following.resampling is not None:
            interpolation = INTERPOLATIONS[following.resampling]
        operations = chain.followed(operations)
    return {
        "size": own_size,
        "box": box,
        "hflip": across,
        "vflip": down,
        "interpolation": interpolation,
        "scaled": scaled,
        "operations": operations,
    }


def apply_chain(chain: Chain, picture: Any, seed: int, sample: int, number: int = 0) -> Any:
    """Applies the chain to an RGB picture of Pillow's, up to the end of its recipe, with what `draw`
    returns for the same arguments.

    Raises:
        ValueError: if the chain cannot be done to a picture of this size.
    """
    canvas = Canvas(picture)
    for operation in chain.operations(draw(chain, canvas.size(), seed, sample, number)):
        canvas.apply(*operation)
    return canvas.picture


def _draws(seed: int, sample: int, number: int, kind: int) -> Draws:
    return Draws(seed, sample, kind | number << PICTURE)


def _scaled(chain: Chain, size: Size) -> Size:
    if chain.exact is not None:
        return chain.exact
    if chain.shorter is not None:
        return sized.resized(*size, (chain.shorter,), chain.max_size)
    target = chain.cover or chain.fit
    if target is None:
        return size
    return sized.resized_in_shape(*size, target, 0.0 if chain.cover else 1.0)


def _operations(chain: Chain, size: Size, seed: int, sample: int, number: int) -> list[Operation]:
    found: list[Operation] = []
    sizes = [size]  # the last one is the picture's now
    for name, numbers in Recipe(chain.recipe).draw(seed, sample, number, lambda: sizes[-1]):
        found.append((name, [float(each) for each in numbers]))
        sizes.append(size_after(found[-1], sizes[-1]))
    return found
