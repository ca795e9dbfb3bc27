"""Transforms that are made of other transforms."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from fastloader.errors import NotNative
from fastloader.transforms import _arguments
from fastloader.transforms._recipe.draw import Draw
from fastloader.transforms._recipe.operations import Size
from fastloader.transforms._recipe.recipe import (
    Step,
    apply,
    choice,
    in_any_order,
    together,
)
from fastloader.transforms.tensors import BatchMixing
from fastloader.transforms.transform import RecipeTransform, Transform, size_after, step_of

__all__ = ["Compose", "RandomApply", "RandomChoice", "RandomOrder"]

Transforms = Sequence[Callable[[Any], Any]]


class Compose(RecipeTransform):
    """Applies the transforms one after the other."""

    def __init__(self, transforms: Transforms) -> None:
        self.transforms = list(transforms)

    def step(self, size: Size | None) -> Step:
        return together(*_one_by_one(self.transforms, size))

    def size_after(self, size: Size | None) -> Size | None:
        return _size_after_all(self.transforms, size)

    def apply(self, image: Any, draw: Draw) -> Any:
        return _apply_all(self.transforms, image, draw)


class _Holder(RecipeTransform):
    """Base class of the random ones: they draw which of their transforms are applied."""

    transforms: list[Callable[[Any], Any]]

    def _tree(self, children: list[Step]) -> Step:
        """Makes the step, in which ``children`` stand for the transforms."""
        raise NotImplementedError

    def apply(self, image: Any, draw: Draw) -> Any:
        try:
            step = self.step(image.size[::-1])
        except NotNative:
            # A transform may be any function, or need a size that is not known before it is drawn.
            drawn = draw.chosen(self._tree([together()] * len(self.transforms)))
            return _apply_all([self.transforms[number] for number in drawn], image, draw)
        return draw.run(step, image)


class RandomApply(_Holder):
    """Applies all of the transforms, one after the other, with probability ``p``, and otherwise none.

    Args:
        transforms: A sequence of transforms, or of any functions from picture to picture.
        p: The probability; default 0.5.

    Raises:
        TypeError: for transforms that are no sequence and no ``torch.nn.ModuleList``.
        ValueError: for no transforms, and for a probability outside 0..1.
    """

    def __init__(self, transforms: Transforms | torch.nn.ModuleList, p: float = 0.5) -> None:
        self.transforms = _checked(transforms)
        self.p = _arguments.probability(p)

    def step(self, size: Size | None) -> Step:
        return self._tree(_one_by_one(self.transforms, size))

    def size_after(self, size: Size | None) -> Size | None:
        changed = _size_after_all(self.transforms, size)
        return changed if self.p == 1 or changed == size else size if self.p == 0 else None

    def _tree(self, children: list[Step]) -> Step:
        return apply(self.p, *children)


class RandomChoice(_Holder):
    """Applies one of the transforms, which is drawn. Of MixUp and CutMix, one is drawn for a whole
    batch, and the choice is then a ``collate_fn``, as they are.

    Args:
        transforms: A sequence of transforms, or of any functions from picture to picture.
        p: How likely each is, as numbers of which only the proportions matter; default None, all the
            same.

    Raises:
        TypeError: for transforms or a ``p`` that are no sequences.
        ValueError: for no transforms, for another number of numbers than of transforms, and for
            negative ones or none above 0.
    """

    def __init__(self, transforms: Transforms, p: Sequence[float] | None = None) -> None:
        self.transforms = _checked(transforms)
        if p is None:
            p = [1] * len(self.transforms)
        elif not isinstance(p, Sequence) or isinstance(p, str):
            raise TypeError("Argument p should be a sequence")
        if len(p) != len(self.transforms):
            raise ValueError(
                "Length of p doesn't match the number of transforms: "
                f"{len(p)} != {len(self.transforms)}"
            )
        total = math.fsum(_arguments.finite("p", each) for each in p)
        if not total > 0 or any(each < 0 for each in p):
            raise ValueError(f"p={p}: numbers of 0 or more, and one above 0 at least")
        self.p = [each / total for each in p]

    def __call__(self, *inputs: Any) -> Any:
        if not all(isinstance(each, BatchMixing) for each in self.transforms):
            return super().__call__(*inputs)
        (number,) = Draw().chosen(self._tree([together()] * len(self.transforms)))
        return self.transforms[number](*inputs)

    def step(self, size: Size | None) -> Step:
        return self._tree([step_of(each, size) for each in self.transforms])

    def size_after(self, size: Size | None) -> Size | None:
        sizes = [size_after(each, size) for each, p in zip(self.transforms, self.p) if p > 0]
        return sizes[0] if all(each == sizes[0] for each in sizes) else None

    def _tree(self, children: list[Step]) -> Step:
        return choice(*children, weights=tuple(self.p))


class RandomOrder(_Holder):
    """Applies all of the transforms, in an order that is drawn.

    Args:
        transforms: A sequence of transforms, or of any functions from picture to picture.

    Raises:
        TypeError: for transforms that are no sequence.
        ValueError: for no transforms.
    """

    def __init__(self, transforms: Transforms) -> None:
        self.transforms = _checked(transforms)

    def step(self, size: Size | None) -> Step:
        if self.size_after(size) is None and len(self.transforms) > 1:
            size = None
        return self._tree([step_of(each, size) for each in self.transforms])

    def size_after(self, size: Size | None) -> Size | None:
        sizes = {size_after(each, size) for each in self.transforms}
        return sizes.pop() if len(self.transforms) == 1 else size if sizes == {size} else None

    def _tree(self, children: list[Step]) -> Step:
        return in_any_order(*children)


def _checked(transforms: Any) -> list[Callable[[Any], Any]]:
    if not isinstance(transforms, Sequence | torch.nn.ModuleList) or isinstance(transforms, str):
        raise TypeError("Argument transforms should be a sequence of callables")
    if not len(transforms):
        raise ValueError("Pass at least one transform")
    return list(transforms)


def _one_by_one(transforms: Transforms, size: Size | None) -> list[Step]:
    found = []
    for transform in transforms:
        found.append(step_of(transform, size))
        size = size_after(transform, size)
    return found


def _size_after_all(transforms: Transforms, size: Size | None) -> Size | None:
    for transform in transforms:
        size = size_after(transform, size)
    return size


def _apply_all(transforms: Transforms, image: Any, draw: Draw) -> Any:
    for transform in transforms:
        image = (
            transform.apply(image, draw) if isinstance(transform, Transform) else transform(image)
        )
    return image
