"""How strong an operation of timm's policies is: its level, from 0 to 10 or more."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from fastloader.transforms._recipe.number import Number

LEVELS = 10.0  # timm's `_LEVEL_DENOM`: the level that the functions of levels call 1


@dataclasses.dataclass(frozen=True)
class Magnitude:
    """A level that is drawn from a normal distribution and kept between 0 and ``most``.

    A ``deviation`` of infinity stands for a uniform distribution from 0 to ``level``, and one of 0 for
    ``level`` itself.
    """

    level: float
    deviation: float = 0.0
    most: float = LEVELS

    def number(
        self, times: float, plus: float = 0.0, *, highest: float = math.inf, **options: Any
    ) -> Number:
        """``plus + times * level / 10``. A level above ``highest`` counts as ``highest``. ``options``
        are further ones of `Number`."""
        high = max(0.0, min(self.most, highest))
        if not self.deviation > 0:
            # In timm's order of operations, so that truncation gives the same integers.
            level = max(0.0, min(self.level, high))
            return Number(a=plus + times * (level / LEVELS), **options)
        how = {"low": 0.0, "high": high, "scale": times / LEVELS, "offset": plus, **options}
        if self.deviation == math.inf:
            return Number("uniform", min(0.0, self.level), max(0.0, self.level), **how)
        return Number("normal", float(self.level), float(self.deviation), **how)
