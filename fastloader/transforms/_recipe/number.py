"""How the numbers of operations are drawn: each by itself, and those of a mix together.

csrc/image/recipe/number.h and mixing.h are the definition; a test compares the two.
"""

from __future__ import annotations

import ctypes
import dataclasses
import math
from collections.abc import Sequence

from fastloader.transforms._recipe.draws import Draws

_ORIGINS = ("constant", "uniform", "table", "normal")
_UNITS = ("one", "width", "height")
_ROUNDINGS = ("none", "truncate", "nearest", "single")
_MOST_FIGURE = 1e100  # so that nothing that is computed from figures becomes infinite
MOST_VALUES = 4096
MIXINGS = ("sum", "blend", "blends")


@dataclasses.dataclass(frozen=True)
class Number:
    """``after + sign * round(unit * (offset + scale * min(max(x, low), high)))``, where x is drawn.

    ``origin`` says how: "constant" is ``a``; "uniform" is in [a, b); "table" is one of ``values``;
    "normal" has the mean a and the standard deviation b. ``unit`` is 1, or the picture's "width" or
    "height" in pixels when the step's turn comes. ``rounding`` is "none", "truncate" as int() does it,
    "nearest" with ties to even, or "single" to 32 bits. With ``either_sign`` the sign is -1 for half of
    the pictures.

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
        elif self.rounding == "single":
            x = _single(x)
        if self.either_sign and draws.below(2):
            x = -x
        return self.after + x

    def _before_scale(self, draws: Draws) -> float:
        if self.origin == "uniform":
            return draws.uniform(self.a, self.b)
        if self.origin == "table":
            return self.values[draws.below(len(self.values))]
        if self.origin == "normal":
            return self.a + self.b * _standard_normal(draws)
        return self.a


def _standard_normal(draws: Draws) -> float:
    length = math.sqrt(-2 * math.log(1 - draws.uniform()))
    return length * math.cos(2 * math.pi * draws.uniform())


def constant(value: float) -> Number:
    return Number(a=float(value))


def constants(*values: float) -> tuple[Number, ...]:
    return tuple(constant(value) for value in values)


def uniform(low: float, high: float) -> Number:
    return Number("uniform", float(low), float(high))


def single(low: float, high: float) -> Number:
    """As torch's ``uniform_`` has it: a range of one number gives that number in 32 bits."""
    return Number("uniform", float(low), float(high), rounding="single")


def one_of(values: tuple[float, ...]) -> Number:
    return Number("table", values=tuple(float(value) for value in values))


def check_alpha(alpha: float) -> None:
    if not 1e-9 <= alpha <= 1e9:
        raise ValueError(f"a mix with the alpha {alpha}; 1e-9 to 1e9 is allowed")


def mix_numbers(
    mixing: str, alpha: float, chains: int, draws: Draws
) -> tuple[float, list[float], float]:
    """Draws the numbers with which a mix begins, goes on after each of its chains, and ends.

    Two things are drawn, both from Dirichlet distributions whose parameters are all ``alpha``: the
    shares of the picture and of its chains, and the weights of the chains. ``mixing`` says what becomes
    of them: "sum", torchvision's, is one sum of the picture and its chains; "blend", timm's, is a sum of
    the chains, and a blend of the picture and that; "blends", timm's other form, blends each chain with
    what came before.
    """
    kept, share = _dirichlet(alpha, 2, draws)
    weights = _dirichlet(alpha, chains, draws)
    if mixing == "sum":
        return kept, [_single(weight * share) for weight in weights], 1.0
    if mixing == "blend":
        return 0.0, weights, share
    return 1.0, _blend_factors(weights, share), 1.0


def _dirichlet(alpha: float, count: int, draws: Draws) -> list[float]:
    shares = [_log_of_gamma(alpha, draws) for _ in range(count)]
    most = max(shares)
    shares = [math.exp(share - most) for share in shares]
    total = 0.0
    for share in shares:  # sum() rounds in another way
        total += share
    return [_single(share / total) for share in shares]


def _log_of_gamma(alpha: float, draws: Draws) -> float:
    """The logarithm of a gamma deviate, as Marsaglia and Tsang draw it. Of a small ``alpha`` the deviate
    itself may be too small for a float."""
    d = (alpha + 1 if alpha < 1 else alpha) - 1.0 / 3.0
    c = 1 / math.sqrt(9 * d)
    while True:
        x = _standard_normal(draws)
        u = 1 - draws.uniform()
        root = 1 + c * x
        if not root > 0:
            continue
        v = root * root * root
        if math.log(u) < 0.5 * x * x + d - d * v + d * math.log(v):
            break
    found = math.log(d * v)
    return found + math.log(1 - draws.uniform()) / alpha if alpha < 1 else found


def _blend_factors(weights: Sequence[float], share: float) -> list[float]:
    """The factors with which one blend after the other gives the chains their weights, in timm's order
    of operations. What its rounding makes no finite number belongs to a chain that the next ones
    hide."""
    factors = []
    left = 1.0
    for weight in reversed(weights):
        factor = _single(_single(weight * share) / left) if left else math.inf
        if math.isinf(factor):
            factor = 0.0
        left = _single(left * _single(1.0 - factor))
        factors.append(factor)
    return factors[::-1]


def _single(value: float) -> float:
    """Rounded to 32 bits. One operation on such numbers, rounded, is the operation of 32 bits."""
    return ctypes.c_float(value).value
