"""The steps of a picture, done again by Pillow."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from fastloader.transforms._recipe.operations import Canvas, unnamed
from fastloader.transforms.tensors import erase

__all__ = ["apply"]


def apply(picture: Any, steps: Iterable[tuple[str, Mapping[str, Any]]]) -> Any:
    """Applies what ``loader.replay(index)["steps"]`` lists to a Pillow picture, and returns the result.

    With the file's picture, as ``Image.open(path).convert("RGB")`` gives it, the result has the bytes
    that the loader delivered, with Pillow 13: so anyone can check a batch. GaussianBlur may differ by 1
    of 255 in less than one value of a thousand, because torchvision's is computed by torch.

    "erase" comes last, and is done to the tensor that the chain makes of the picture: to floats, if the
    chain ends in floats. Do the steps before it, make the tensor, and do that one then.

    Args:
        picture: A Pillow image; for "erase" a tensor.
        steps: (name, parameters) of each step, one after the other.

    Raises:
        TypeError: for "erase" on a Pillow image.
        ValueError: for a name or a parameter that there is not, for "erase" with normal deviates, which
            are not listed, and for a step of a mix that has not begun.
        KeyError: for a parameter that is missing.
    """
    canvas = Canvas(picture)
    for name, parameters in steps:
        if name == "erase":
            canvas = Canvas(erase(canvas.picture, **parameters))
        else:
            canvas.apply(*unnamed(name, parameters))
    return canvas.picture
