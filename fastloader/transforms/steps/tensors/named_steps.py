"""Steps of pictures as rows of a tensor."""

from __future__ import annotations

import math
from typing import Any

from fastloader.transforms._recipe.operations import OPERATIONS
from fastloader.transforms._recipe.parameters import NamedOperation, named, unnamed

_ERASE = len(OPERATIONS)  # the step that is no operation on a picture
_NAMES = tuple(OPERATIONS)


def named_steps(rows: Any) -> list[NamedOperation]:
    """The steps of one picture as ``loader.replay(index)["steps"]`` lists them, so that `apply` can
    do them again.

    Args:
        rows: a float64 tensor or array of shape (steps, numbers): the picture's row of the "steps" that
            ``EncodedImage(..., return_parameters=True)`` gives. In each row the first number says which
            operation it is. Its numbers follow, and NaN behind them. Rows of NaN stand for no step.

    Raises:
        ValueError: for a number that stands for no operation.
    """
    found: list[NamedOperation] = []
    for row in rows.tolist():
        numbers = [number for number in row if not math.isnan(number)]
        if not numbers:
            continue
        kind, *rest = numbers
        if kind == _ERASE:
            box = dict(zip(("top", "left", "height", "width"), map(int, rest[:4])))
            found.append(("erase", {**box, "value": tuple(rest[4:]) or None}))
        elif kind in range(len(_NAMES)):
            found.append(named((_NAMES[int(kind)], rest)))
        else:
            raise ValueError(f"there is no operation number {kind}; {_ERASE} is the last")
    return found


def numbered(step: NamedOperation) -> list[float]:
    """A step as such a row, without what stands behind its numbers."""
    name, given = step
    if name == "erase":
        box = [given[each] for each in ("top", "left", "height", "width")]
        return [_ERASE, *box, *(given["value"] or ())]
    name, numbers = unnamed(name, given)
    return [_NAMES.index(name), *numbers]
