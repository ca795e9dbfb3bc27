"""A recipe: what may be done to the pixels of each picture, as trees of steps.

csrc/image/recipe/recipe.h is the definition; a test compares the two.
"""

from __future__ import annotations

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
from fastloader.transforms._recipe.number import MIXINGS, Number, check_alpha, mix_numbers
from fastloader.transforms._recipe.operations import (
    OF_MIX,
    OPERATIONS,
    Operation,
    Size,
    check_count,
)
from fastloader.transforms._recipe.sized import SIZED

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
        known = OPERATIONS if self.kind == "operation" else SIZED
        if self.operation not in known:
            raise ValueError(f"there is no operation {self.operation!r}")
        least, most = known[self.operation][-2:]
        check_count(self.operation, len(self.numbers), least, most)
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
        if self.operation in ("random_crop", "random_resized_crop", "random_perspective"):
            return True
        if self.operation == "crop_or_pad" and self.numbers[2].a:
            return True
        return any(each.random for each in self.numbers) or any(
            each.random for each in self.children
        )


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
        """Which children of the first step are done to a picture, in their order."""
        return _chosen(self._steps[0], Draws(seed, index, self._streams[0] | picture << PICTURE))

    def draw(
        self, seed: int, index: int, picture: int, size: Callable[[], Size]
    ) -> Iterator[Operation]:
        """The operations that are done to picture number ``picture`` of sample ``index``, one after
        the other: a function of the arguments only. ``size`` gives the picture's size (height, width)
        at that time."""
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
                yield from SIZED[step.operation][0](numbers, size(), draws)
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
    """The children that are done, in their order."""
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
