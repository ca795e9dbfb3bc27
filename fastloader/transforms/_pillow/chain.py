"""A chain done to a picture by Pillow, with the draws and the pixels of the native path.

csrc/image/image_transform.h and csrc/pipeline/sample_decoder.h are the definition; a test compares the
two.
"""

from __future__ import annotations

from typing import Any

from fastloader.transforms._chain import Chain
from fastloader.transforms._pillow.canvas import Canvas
from fastloader.transforms._recipe import geometry
from fastloader.transforms._recipe.draws import (
    CROP,
    HORIZONTAL_FLIP,
    INTERPOLATION,
    PICTURE,
    VERTICAL_FLIP,
    Draws,
)
from fastloader.transforms._recipe.operations import Operation, Size, size_after
from fastloader.transforms._recipe.recipe import MOST_PICTURES, Recipe


def draw(chain: Chain, size: Size, seed: int, sample: int, number: int = 0) -> dict[str, Any]:
    """What is drawn for a picture of this (height, width): a function of the arguments only.
    ``number`` says which picture of its sample it is.

    Returns:
        ``size``: the picture's; ``box``: (left, top, width, height) of the part of the picture that is
        used; ``hflip`` and ``vflip``; ``interpolation``; ``scaled``: the (height, width) after the
        resize; and ``operations``: the recipe's (name, numbers), one after the other.

    Raises:
        ValueError: if the chain cannot be done to a picture of this size.
    """
    if not 0 <= number < MOST_PICTURES:
        raise ValueError(f"picture {number} of a sample; {MOST_PICTURES} are the most")
    box = (0, 0, size[1], size[0])
    if chain.random_crop is not None:
        scale, ratio = chain.random_crop[:2], chain.random_crop[2:]
        draws = _draws(seed, sample, number, CROP)
        box = geometry.random_resized_crop(*size, scale, ratio, draws)
    scaled = _scaled(chain, (box[3], box[2]))
    if 0 in scaled:
        raise ValueError(
            f"a picture of {size[1]}x{size[0]} pixels is too thin for the resize to "
            f"{scaled[1]}x{scaled[0]}"
        )
    interpolation = chain.filter
    if interpolation == "random":
        interpolation = geometry.random_interpolation(_draws(seed, sample, number, INTERPOLATION))
    across = _draws(seed, sample, number, HORIZONTAL_FLIP).uniform() < chain.horizontal_flip
    down = _draws(seed, sample, number, VERTICAL_FLIP).uniform() < chain.vertical_flip
    return {
        "size": size,
        "box": box,
        "hflip": across,
        "vflip": down,
        "interpolation": interpolation,
        "scaled": scaled,
        "operations": _operations(chain, chain.center_crop or scaled, seed, sample, number),
    }


def made(chain: Chain, picture: Any, seed: int, sample: int, number: int = 0) -> Any:
    """What the chain makes of an RGB picture of Pillow's, up to the end of its recipe: another picture,
    of which `draw` says how it comes about.

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
        return geometry.resized(*size, (chain.shorter,), chain.max_size)
    target = chain.cover or chain.fit
    if target is None:
        return size
    return geometry.resized_in_shape(*size, target, 0.0 if chain.cover else 1.0)


def _operations(chain: Chain, size: Size, seed: int, sample: int, number: int) -> list[Operation]:
    found: list[Operation] = []
    sizes = [size]  # the last one is the picture's now
    for name, numbers in Recipe(chain.recipe).draw(seed, sample, number, lambda: sizes[-1]):
        found.append((name, [float(each) for each in numbers]))
        sizes.append(size_after(found[-1], sizes[-1]))
    return found
