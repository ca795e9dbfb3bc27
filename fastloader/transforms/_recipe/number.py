"""How a number of an operation is drawn. csrc/image/recipe/number.h is the definition; a test compares
the two."""

from __future__ import annotations

import dataclasses
import math

from fastloader.transforms._recipe.draws import Draws

_ORIGINS = ("constant", "uniform", "table", "normal")
_UNITS = ("one", "width", "height")
_ROUNDINGS = ("none", "truncate", "nearest")
_MOST_FIGURE = 1e100  # so that nothing that is computed from figures becomes infinite
MOST_VALUES = 4096


@dataclasses.dataclass(frozen=True)
class Number:
    """``after + sign * round(unit * (offset + scale * min(max(x, low), high)))``, where x is drawn.

    ``origin`` says how: "constant" is ``a``; "uniform" is in [a, b); "table" is one of ``values``;
    "normal" has the mean a and the standard deviation b. ``unit`` is 1, or the picture's "width" or
    "height" in pixels when the step's turn comes. ``rounding`` is "none", "truncate" as int() does it,
    or "nearest" with ties to even. With ``either_sign`` the sign is -1 for half of the pictures.

    Raises:
        ValueError: for figures that cannot be drawn from.
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
    values: tuple[float, ...] = ()
    unit: str = "one"

    def __post_init__(self) -> None:
        for name, known in (("origin", _ORIGINS), ("unit", _UNITS), ("rounding", _ROUNDINGS)):
            if getattr(self, name) not in known:
                raise ValueError(
                    f"a number's {name} is one of {known}, not {getattr(self, name)!r}"
                )
        for figure in (self.a, self.b, self.scale, self.offset, self.after, *self.values):
            if not abs(figure) <= _MOST_FIGURE:
                raise ValueError(f"a number with the figure {figure}")
        if not (self.low <= self.high and self.low <= _MOST_FIGURE and self.high >= -_MOST_FIGURE):
            raise ValueError(f"a number between {self.low} and {self.high}")
        if self.origin == "uniform" and not self.a <= self.b:
            raise ValueError(f"a number from {self.a} to {self.b}")
        if self.origin == "normal" and not self.b >= 0:
            raise ValueError(f"a number with a deviation of {self.b}")
        if (self.origin == "table") != (0 < len(self.values) <= MOST_VALUES):
            raise ValueError(f"a number from a table of {len(self.values)} values")

    @property
    def random(self) -> bool:
        return self.origin != "constant" or self.either_sign

    def draw(self, draws: Draws, size: tuple[int, int]) -> float:
        """Draws it for a picture of ``size`` (height, width)."""
        x = self.offset + self.scale * min(max(self._before_scale(draws), self.low), self.high)
        if self.unit != "one":
            x *= size[self.unit == "width"]
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
        if self.origin == "table":
            return self.values[draws.below(len(self.values))]
        if self.origin == "normal":
            length = math.sqrt(-2 * math.log(1 - draws.uniform()))
            return self.a + self.b * (length * math.cos(2 * math.pi * draws.uniform()))
        return self.a


def constant(value: float) -> Number:
    return Number(a=float(value))


def constants(*values: float) -> tuple[Number, ...]:
    return tuple(constant(value) for value in values)


def uniform(low: float, high: float) -> Number:
    return Number("uniform", float(low), float(high))


def one_of(values: tuple[float, ...]) -> Number:
    return Number("table", values=tuple(float(value) for value in values))
