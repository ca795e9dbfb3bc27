"""How a number of an operation is drawn. csrc/image/recipe/number.h is the definition; a test compares
the two."""

from __future__ import annotations

import dataclasses
import math

from fastloader.transforms._recipe.draws import Draws


@dataclasses.dataclass(frozen=True)
class Number:
    """``after + sign * round(offset + scale * min(max(x, low), high))``, where x is drawn.

    ``origin`` says how: "constant" is ``a``; "uniform" is in [a, b); "whole" is one of a, a + 1, ..., b;
    "normal" has the mean a and the standard deviation b. ``rounding`` is "none", "truncate" as int()
    does it, or "nearest" with ties to even. With ``either_sign`` the sign is -1 for half of the
    pictures.
    """

    origin: str = "constant"
    a: float = 0.0
    b: float = 0.0
    low: float = -math.inf
    high: float = math.inf
    scale: float = 1.0
    offset: float = 0.0
    rounding: str = "none"
    either_sign: bool = False
    after: float = 0.0

    def draw(self, draws: Draws) -> float:
        x = self.offset + self.scale * min(max(self._before_scale(draws), self.low), self.high)
        if self.rounding == "truncate":
            x = float(math.trunc(x))
        elif self.rounding == "nearest":
            x = float(round(x))
        if self.either_sign and draws.below(2):
            x = -x
        return self.after + x

    def _before_scale(self, draws: Draws) -> float:
        if self.origin == "uniform":
            return draws.uniform(self.a, self.b)
        if self.origin == "whole":
            return self.a + draws.below(int(self.b - self.a) + 1)
        if self.origin == "normal":
            length = math.sqrt(-2 * math.log(1 - draws.uniform()))
            return self.a + self.b * (length * math.cos(2 * math.pi * draws.uniform()))
        return self.a


def constant(value: float) -> Number:
    return Number(a=float(value))


def uniform(low: float, high: float) -> Number:
    return Number("uniform", float(low), float(high))
