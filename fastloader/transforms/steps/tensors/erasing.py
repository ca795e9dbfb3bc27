"""Random erasing of a tensor."""

from __future__ import annotations

import math
import numbers
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from fastloader.transforms import _arguments
from fastloader.transforms._deviates import PER_ELEMENT, deviates
from fastloader.transforms._erasing import Erasing
from fastloader.transforms._recipe.draw import Draw
from fastloader.transforms.steps.transform import Transform


class RandomErasing(Transform):
    """Erases a random box of a tensor. It stands behind ToTensor or PILToTensor, and usually behind
    Normalize.

    Args:
        p: The probability that a picture is erased; default 0.5.
        scale: The range of the box's share of the area; default (0.02, 0.33).
        ratio: The range of the box's height / width, drawn log-uniformly; default (0.3, 3.3).
        value: What stands in the box, in the units of the tensor: a number (default 0), one number per
            channel, or "random" for a normal deviate of mean 0 and deviation 1 for each value.
        inplace: Whether the tensor itself is changed; default False.

    Raises:
        TypeError: for a value, a scale or a ratio of another type.
        ValueError: for what cannot be drawn from.
    """

    def __init__(
        self,
        p: float = 0.5,
        scale: Sequence[float] = (0.02, 0.33),
        ratio: Sequence[float] = (0.3, 3.3),
        value: float | Sequence[float] | str = 0,
        inplace: bool = False,
    ) -> None:
        if not isinstance(value, numbers.Number | str | tuple | list):
            raise TypeError("Argument value should be either a number or str or a sequence")
        if isinstance(value, str) and value != "random":
            raise ValueError("If value is str, it should be 'random'")
        self.p = _arguments.probability(p)
        self.scale = _arguments.checked_range("scale", scale, 0.0)
        self.ratio = _arguments.checked_range("ratio", ratio, math.ulp(0.0))
        if self.scale[1] > 1:
            raise ValueError("Scale should be between 0 and 1")
        self.value = value
        self.inplace = inplace
        self.erasing(None)  # which looks at the value

    def erasing(self, channels: int | None) -> Erasing:
        """What is drawn for pictures of so many channels; None looks at nothing but the numbers.

        Raises:
            ValueError: for values of another number of channels.
        """
        given: Any = self.value if isinstance(self.value, list | tuple) else (self.value,)
        value = None
        if not isinstance(self.value, str):
            value = tuple(_arguments.finite("value", each) for each in given)
            if channels is not None and len(value) not in (1, channels):
                raise ValueError(
                    "If value is a sequence, it should have either a single value or "
                    f"{channels} (number of input channels)"
                )
            if len(value) == 1 and channels is not None:
                value *= channels
        low, high = self.ratio
        return Erasing(self.p, self.scale, (math.log(low), math.log(high)), value)

    def apply(self, image: Any, draw: Draw) -> torch.Tensor:
        if not isinstance(image, torch.Tensor):
            raise TypeError("RandomErasing takes a tensor: put ToTensor or PILToTensor before it")
        erasing = self.erasing(image.shape[-3])
        if erasing.value is None and not image.is_floating_point():
            raise TypeError(f"value='random' takes a float tensor, not one of {image.dtype}")
        return erased(image, erasing, draw.seed, draw.index, draw.picture, self.inplace)


def erased(
    image: torch.Tensor,
    erasing: Erasing,
    seed: int,
    sample: int,
    number: int = 0,
    inplace: bool = False,
) -> torch.Tensor:
    """Erases what is drawn for picture ``number`` of a sample."""
    channels, height, width = image.shape[-3:]
    boxes, keys = erasing.draw([seed], [sample], height, width, number)
    top, bottom, left, right = boxes[0].tolist()
    if erasing.value is None:
        channel, y, x = np.ogrid[:channels, top:bottom, left:right]
        values = torch.from_numpy(deviates(keys, PER_ELEMENT, (channel * height + y) * width + x))
    else:
        values = torch.tensor(erasing.value, dtype=torch.float32, device="cpu").view(-1, 1, 1)
    result = image if inplace else image.clone()
    result[..., top:bottom, left:right] = values.to(image.device)
    return result


def erase(
    image: Any, top: int, left: int, height: int, width: int, value: Sequence[float] | None
) -> torch.Tensor:
    """Erases the box that `replay` lists, in a new tensor.

    Raises:
        TypeError: for a picture that is no tensor.
        ValueError: for normal deviates, which are not listed.
    """
    if not isinstance(image, torch.Tensor):
        raise TypeError(
            "'erase' is done to a tensor: do the steps before it, make the tensor, and then erase"
        )
    if value is None:
        raise ValueError("'erase' with normal deviates cannot be done again: they are not listed")
    result = image.clone()
    values = torch.tensor(value, dtype=torch.float32, device="cpu").view(-1, 1, 1)
    result[..., top : top + height, left : left + width] = values.to(image.device)
    return result
