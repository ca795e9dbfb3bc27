"""Recipes: trees of steps that say what may be done to the pixels of each picture.

csrc/image/recipe/recipe.h is the definition; a test compares the two.
"""

from __future__ import annotations

import ctypes
import dataclasses
import functools
import math
from collections.abc import Callable, Iterator, Sequence

from fastloader.transforms._recipe.draws import (
    FIRST_OPERATION,
    FIRST_SIZED,
    FIRST_STEP,
    OCCURRENCE,
    PICTURE,
    Draws,
)
from fastloader.transforms._recipe.operations import (
    GEOMETRY,
    OF_MIX,
    OPERATIONS,
    Kind,
    Operation,
    Size,
    check_count,
)
from fastloader.transforms._recipe.sized import SIZED, SizedKind

# ---- How the numbers of operations are drawn: each by itself, and those of a mix together.
#
# csrc/image/recipe/number.h and mixing.h are the definition; a test compares the two.


_ORIGINS = ("constant", "uniform", "table", "normal")
_UNITS = ("one", "width", "height")
_ROUNDINGS = ("none", "truncate", "nearest", "single")
_MOST_FIGURE = 1e100  # so that nothing that is computed from figures becomes infinite
MOST_VALUES = 4096
MIXINGS = ("sum", "blend", "blends")


@dataclasses.dataclass(frozen=True)
class Number:
    """A number that a step draws. With a drawn x, it is
    ``after + sign * round(unit * (offset + scale * min(max(x, low), high)))``.

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
    """Makes a number as torch's ``uniform_`` draws it: a range of one number gives that number in 32
    bits."""
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
    """Draws the logarithm of a gamma deviate, as Marsaglia and Tsang do. Of a small ``alpha`` the
    deviate itself may be too small for a float."""
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
    """Computes the factors with which one blend after the other gives the chains their weights, in
    timm's order of operations. A factor that rounding makes infinite belongs to a chain that the next
    ones hide."""
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
    """Rounds to 32 bits. One operation on such numbers, rounded, is the operation of 32 bits."""
    return ctypes.c_float(value).value


_KINDS = ("operation", "sized", "all", "apply", "choice", "order", "some", "first", "mix")
MOST_STEPS = 4096
MOST_DEPTH = 64
MOST_PICTURES = 4096


@dataclasses.dataclass(frozen=True)
class Step:
    """A step of a recipe.

    ``kind`` is "operation", which is ``operation`` with each of ``numbers`` drawn; "sized", the same for
    a name of `SIZED`, which becomes operations when the picture's size is known; "all" children, one
    after the other; "apply", all of them with ``probability`` and otherwise none; "choice", one of them
    by ``weights``; "order", all of them in an order that is drawn; "some", ``count`` different ones,
    drawn one after the other by ``weights``; "first", the first ones, from 1 to all, how many is drawn;
    "mix", whose children each do something to the same picture, and what comes out is mixed by weights,
    which `mix_numbers` draws with ``alpha`` and ``operation`` as ``mixing``.

    Raises:
        ValueError: for what cannot be drawn from, such as a wrong number of numbers or of weights.
    """

    kind: str
    operation: str = ""
    numbers: tuple[Number, ...] = ()
    probability: float = 1.0
    weights: tuple[float, ...] = ()
    count: int = 0
    alpha: float = 1.0
    children: tuple[Step, ...] = ()

    def __post_init__(self) -> None:
        if self.kind not in _KINDS:
            raise ValueError(f"a step of the kind {self.kind!r}; use one of {_KINDS}")
        if self.kind in ("operation", "sized"):
            self._check_leaf()
        if self.kind in ("first", "mix") and not self.children:
            raise ValueError(
                f"a step of the kind {self.kind!r} needs others within it, and has none"
            )
        if self.kind == "mix":
            self._check_mix()
        if not 0.0 <= self.probability <= 1.0:
            raise ValueError(f"steps with probability {self.probability}; 0 to 1 is allowed")
        if self.kind in ("choice", "some"):
            self._check_weights(self.count if self.kind == "some" else 1)
        if self.size > MOST_STEPS:
            raise ValueError(f"a recipe of more than {MOST_STEPS} steps")
        if self.depth > MOST_DEPTH:
            raise ValueError(f"steps within steps, more than {MOST_DEPTH} deep")

    def _check_leaf(self) -> None:
        known = _row_of(self)
        if known is None:
            raise ValueError(f"there is no operation {self.operation!r}")
        check_count(self.operation, len(self.numbers), known.least, known.most)
        if self.operation in OF_MIX:
            raise ValueError(f"{self.operation} outside a mix")

    def _check_mix(self) -> None:
        if self.operation not in MIXINGS:
            raise ValueError(f"a mix of the form {self.operation!r}; use one of {MIXINGS}")
        check_alpha(self.alpha)
        if any(child.mixes for child in self.children):
            raise ValueError("a mix within a mix")

    def _check_weights(self, wanted: int) -> None:
        if len(self.weights) != len(self.children):
            raise ValueError(
                f"{len(self.weights)} weights for {len(self.children)} steps to choose from"
            )
        if not all(weight >= 0 for weight in self.weights) or math.isinf(sum(self.weights)):
            raise ValueError(f"a choice with the weights {self.weights}")
        possible = sum(weight > 0 for weight in self.weights)
        if not 0 <= wanted <= possible:
            raise ValueError(f"a choice of {wanted} among {possible} steps with a weight above 0")

    @functools.cached_property
    def size(self) -> int:
        """How many steps the tree has."""
        return 1 + sum(child.size for child in self.children)

    @functools.cached_property
    def depth(self) -> int:
        return 1 + max((child.depth for child in self.children), default=0)

    @functools.cached_property
    def mixes(self) -> bool:
        """Whether there is a mix in the tree."""
        return self.kind == "mix" or any(child.mixes for child in self.children)

    @functools.cached_property
    def random(self) -> bool:
        """Whether anything is drawn."""
        if self.kind in ("apply", "choice", "order", "some", "first", "mix"):
            return True
        if self.kind == "sized" and SIZED[self.operation].random(self.numbers):
            return True
        return any(each.random for each in self.numbers) or any(
            each.random for each in self.children
        )

    @functools.cached_property
    def moves(self) -> bool:
        """Whether anything in the tree moves pixels, which a mask of the picture has to follow."""
        known = _row_of(self)
        if known is not None:
            return known.effect == GEOMETRY
        return any(child.moves for child in self.children)


def _row_of(step: Step) -> Kind | SizedKind | None:
    """Returns the row of a leaf in the table of its kind, or None for other steps and unknown names."""
    if step.kind == "operation":
        return OPERATIONS.get(step.operation)
    return SIZED.get(step.operation) if step.kind == "sized" else None


def operation(name: str, *numbers: Number) -> Step:
    return Step("operation", operation=name, numbers=numbers)


def sized(name: str, *numbers: Number) -> Step:
    return Step("sized", operation=name, numbers=numbers)


def together(*children: Step) -> Step:
    return Step("all", children=children)


def apply(probability: float, *children: Step) -> Step:
    return Step("apply", probability=probability, children=children)


def choice(*children: Step, weights: tuple[float, ...] = ()) -> Step:
    return Step("choice", weights=weights or (1.0,) * len(children), children=children)


def in_any_order(*children: Step) -> Step:
    return Step("order", children=children)


def some(count: int, *children: Step, weights: tuple[float, ...] = ()) -> Step:
    return Step("some", count=count, weights=weights or (1.0,) * len(children), children=children)


def first(*children: Step) -> Step:
    return Step("first", children=children)


def mix(mixing: str, alpha: float, *children: Step) -> Step:
    return Step("mix", operation=mixing, alpha=alpha, children=children)


class Recipe:
    """Steps that can be drawn from, one after the other, without the native module.

    ``before`` says how many steps of each kind came before these in the picture's chain, and counts on:
    that tells the random numbers of equal steps apart.
    """

    def __init__(self, steps: Sequence[Step], before: dict[int, int] | None = None) -> None:
        self._steps = list(steps)
        self._streams: list[int] = []  # what tells the steps' random numbers apart, in tree order
        if sum(step.size for step in steps) > MOST_STEPS:
            raise ValueError(f"a recipe of more than {MOST_STEPS} steps")
        counted = {} if before is None else before
        for step in steps:
            self._number(step, counted)

    @property
    def random(self) -> bool:
        return any(step.random for step in self._steps)

    def _number(self, step: Step, before: dict[int, int]) -> None:
        if step.kind == "operation":
            number = FIRST_OPERATION + list(OPERATIONS).index(step.operation)
        elif step.kind == "sized":
            number = FIRST_SIZED + list(SIZED).index(step.operation)
        else:
            number = FIRST_STEP + _KINDS.index(step.kind)
        self._streams.append(number | before.get(number, 0) << OCCURRENCE)
        before[number] = before.get(number, 0) + 1
        for child in step.children:
            self._number(child, before)

    def chosen(self, seed: int, index: int, picture: int) -> list[int]:
        """Draws which children of the first step are done to a picture, in their order."""
        return _chosen(self._steps[0], Draws(seed, index, self._streams[0] | picture << PICTURE))

    def draw(
        self, seed: int, index: int, picture: int, size: Callable[[], Size]
    ) -> Iterator[Operation]:
        """Draws the operations that are done to picture number ``picture`` of sample ``index``, one
        after the other: a function of the arguments only. ``size`` gives the picture's size (height,
        width) at that time."""
        if not 0 <= picture < MOST_PICTURES:
            raise ValueError(f"picture {picture} of a sample; {MOST_PICTURES} are the most")
        place = 0
        for step in self._steps:
            yield from self._visit(step, place, (seed, index, picture), size)
            place += step.size

    def _visit(
        self, step: Step, place: int, key: tuple[int, int, int], size: Callable[[], Size]
    ) -> Iterator[Operation]:
        seed, index, picture = key
        draws = Draws(seed, index, self._streams[place] | picture << PICTURE)
        if step.kind in ("operation", "sized"):
            numbers = [number.draw(draws, size()) for number in step.numbers]
            if step.kind == "operation":
                yield step.operation, numbers
            else:
                yield from SIZED[step.operation].draw(numbers, size(), draws)
            return
        places = []
        for child in step.children:
            places.append(place + 1)
            place += child.size
        if step.kind == "mix":
            yield from self._mix(step, places, key, size, draws)
            return
        for number in _chosen(step, draws):
            yield from self._visit(step.children[number], places[number], key, size)

    def _mix(
        self,
        step: Step,
        places: list[int],
        key: tuple[int, int, int],
        size: Callable[[], Size],
        draws: Draws,
    ) -> Iterator[Operation]:
        begin, numbers, end = mix_numbers(step.operation, step.alpha, len(places), draws)
        before = size()
        yield "mix_begin", [begin]
        for child, place, number in zip(step.children, places, numbers):
            yield from self._visit(child, place, key, size)
            if size() != before:
                sizes = " and ".join(f"{height}x{width}" for height, width in (before, size()))
                raise ValueError(f"a mix of pictures of different sizes: {sizes}")
            yield "mix_blend" if step.operation == "blends" else "mix_add", [number]
        yield "mix_end", [end]


def _chosen(step: Step, draws: Draws) -> list[int]:
    """Draws which children are done, in their order."""
    children = list(range(len(step.children)))
    if step.kind == "apply" and not draws.uniform() < step.probability:
        return []
    if step.kind in ("choice", "some"):
        return _some(list(step.weights), step.count if step.kind == "some" else 1, draws)
    if step.kind == "first":
        return children[: 1 + draws.below(len(children))]
    if step.kind == "order":
        for left in range(len(children), 1, -1):
            other = draws.below(left)
            children[left - 1], children[other] = children[other], children[left - 1]
    return children


def _some(weights: list[float], count: int, draws: Draws) -> list[int]:
    found: list[int] = []
    while len(found) < count:
        total = 0.0
        for weight in weights:
            total += weight
        rest = draws.uniform() * total
        last = 0
        for i, weight in enumerate(weights):
            if weight == 0:
                continue
            last = i
            if rest < weight:
                break
            rest -= weight
        found.append(last)
        weights[last] = 0.0
    return found
