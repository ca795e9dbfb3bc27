"""A batch of any nesting, flattened into leaves and unflattened again. A *leaf* is a plain dense CPU
tensor. Everything else travels as it is."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from fastloader._core.batch.containers import Key, LeafPlace, Movable, moves_itself, rebuild


@dataclasses.dataclass
class BatchTree:
    """A flattened batch. ``template`` is the batch with LeafPlaces and Movables in it."""

    template: Any
    leaves: list[torch.Tensor]
    keys: list[Key]  # the outermost index or key that leads to each leaf


# The first ones are made once. A batch rarely has more leaves.
_LEAF_PLACES = tuple(LeafPlace(index) for index in range(64))


def flatten(batch: Any) -> BatchTree:
    leaves: list[torch.Tensor] = []
    keys: list[Key] = []

    def leave(value: Any, key: Key) -> Any:
        if is_leaf(value):
            number = len(leaves)
            leaves.append(value)
            keys.append(key)
            return _LEAF_PLACES[number] if number < len(_LEAF_PLACES) else LeafPlace(number)
        if moves_itself(value):
            return Movable(value)
        return value

    return BatchTree(rebuild(batch, leave, None), leaves, keys)


def unflatten(template: Any, outputs: Sequence[torch.Tensor], move: Callable[[Any], Any]) -> Any:
    """Makes the batch again, with ``outputs`` for its leaves and ``move(value)`` for a Movable."""

    def fill(value: Any, _key: Key) -> Any:
        kind = type(value)
        if kind is LeafPlace:
            return outputs[value.index]
        if kind is Movable:
            return move(value.value)
        return value

    return rebuild(template, fill, None)


def is_leaf(value: Any) -> bool:
    """Whether the bytes of ``value`` are all there is to it."""
    return (
        type(value) is torch.Tensor
        and value.is_cpu
        and value.layout is torch.strided
        and not value.requires_grad
        and not value.is_quantized
        and not value.is_conj()
        and not value.is_neg()
        and not value.is_nested
    )


def is_dense(leaf: torch.Tensor) -> bool:
    """Whether the elements fill their memory without gaps or overlap, in any order. So a channels_last
    or transposed tensor can arrive with the strides with which it left, as with ``.to()``."""
    if leaf.is_contiguous():
        return True
    strides = leaf.stride()
    order = sorted(range(leaf.dim()), key=lambda d: (-strides[d], d))
    return leaf.permute(order).is_contiguous()


def cloned(batch: Any) -> Any:
    """The batch with copies of its tensors. Everything else in it is shared."""

    def visit(value: Any, _key: Key) -> Any:
        return value.clone() if isinstance(value, torch.Tensor) else value

    return rebuild(batch, visit, None)


def tensors_in(batch: Any) -> Iterator[torch.Tensor]:
    """Every tensor of a batch, for ``record_stream``."""
    found: list[torch.Tensor] = []

    def visit(value: Any, _key: Key) -> Any:
        if isinstance(value, torch.Tensor):
            found.append(value)
        return value

    rebuild(batch, visit, None)
    return iter(found)
