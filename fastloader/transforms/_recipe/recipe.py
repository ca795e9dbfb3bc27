"""A recipe: what may be done to the pixels of each picture, as a tree of steps.

csrc/image/recipe/recipe.h is the definition; a test compares the two.
"""

from __future__ import annotations

import dataclasses
import functools

from fastloader.transforms._recipe.draws import Draws
from fastloader.transforms._recipe.number import Number

# In the word that Draws has for the operation: 8 bits for the kind, 12 for how many steps of the kind
# stand before it in the tree, 12 for the picture of the sample.
_OCCURRENCE, _PICTURE = 8, 20
_FIRST_STEP, _FIRST_OPERATION = 32, 64
_KINDS = ("operation", "all", "apply", "choice", "order", "some")

# The native module's names of what can be done to pixels, in the order of csrc/image/ops/operation.h.
OPERATIONS = (
    "invert",
    "posterize",
    "solarize",
    "solarize_add",
    "autocontrast",
    "equalize",
    "brightness",
    "contrast",
    "saturation",
    "grayscale",
    "hue",
    "sharpness",
    "pillow_blur",
    "gaussian_blur",
    "affine",
    "perspective",
    "rotate",
    "pad",
    "crop",
    "hflip",
    "vflip",
)

Operation = tuple[str, list[float]]  # its name and its numbers


@dataclasses.dataclass(frozen=True)
class Step:
    """A step of a recipe.

    ``kind`` is "operation", which is ``operation`` with each of ``numbers`` drawn; "all" children, one
    after the other; "apply", all of them with ``probability`` and otherwise none; "choice", one of them
    by ``weights``; "order", all of them in an order that is drawn; "some", ``count`` different ones,
    drawn one after the other by ``weights``.
    """

    kind: str
    operation: str = ""
    numbers: tuple[Number, ...] = ()
    probability: float = 1.0
    weights: tuple[float, ...] = ()
    count: int = 0
    children: tuple[Step, ...] = ()

    @functools.cached_property
    def size(self) -> int:
        """How many steps the tree has."""
        return 1 + sum(child.size for child in self.children)


def operation(name: str, *numbers: Number) -> Step:
    return Step("operation", operation=name, numbers=numbers)


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


class Recipe:
    """A tree that can be drawn from, without the native module."""

    def __init__(self, root: Step) -> None:
        self._root = root
        self._streams: list[int] = []  # what tells the steps' random numbers apart, in tree order
        self._number(root, {})

    def _number(self, step: Step, before: dict[int, int]) -> None:
        if step.kind == "operation":
            number = _FIRST_OPERATION + OPERATIONS.index(step.operation)
        else:
            number = _FIRST_STEP + _KINDS.index(step.kind)
        self._streams.append(number | before.get(number, 0) << _OCCURRENCE)
        before[number] = before.get(number, 0) + 1
        for child in step.children:
            self._number(child, before)

    def draw(self, seed: int, index: int, picture: int = 0) -> list[Operation]:
        """The operations that are done to picture number ``picture`` of sample ``index``, one after
        the other: a function of the arguments only."""
        found: list[Operation] = []

        def visit(step: Step, place: int) -> None:
            draws = Draws(seed, index, self._streams[place] | picture << _PICTURE)
            if step.kind == "operation":
                found.append((step.operation, [number.draw(draws) for number in step.numbers]))
                return
            places = []
            for child in step.children:
                places.append(place + 1)
                place += child.size
            for child_number in _chosen(step, draws):
                visit(step.children[child_number], places[child_number])

        visit(self._root, 0)
        return found


def _chosen(step: Step, draws: Draws) -> list[int]:
    """The children that are done, in their order."""
    children = list(range(len(step.children)))
    if step.kind == "apply" and not draws.uniform() < step.probability:
        return []
    if step.kind in ("choice", "some"):
        return _some(list(step.weights), step.count if step.kind == "some" else 1, draws)
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
