"""The rows of a batch that default_collate has made: what belongs to each sample."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from fastloader.datasets.encoded import are_parameters, stacked


def kept_rows(batch: Any, samples: int, kept: Sequence[int]) -> Any:
    """The batch with these of its samples, in this order."""
    if isinstance(batch, torch.Tensor):
        return batch[list(kept)]
    if _is_column(batch, samples):
        return type(batch)(batch[row] for row in kept)
    return _opened(
        batch, [each for each in _inside(batch)], lambda each: kept_rows(each, samples, kept)
    )


def with_row(batch: Any, samples: int, row: int, other: Any) -> Any:
    """The batch with the only sample of ``other``, a batch of the same structure, in this row.

    Raises:
        ValueError: if the two are not of one structure, or their tensors of one shape.
    """
    if isinstance(batch, torch.Tensor):
        if not isinstance(other, torch.Tensor) or other.shape[1:] != batch.shape[1:]:
            raise ValueError("the sample that was drawn in a bad one's place has another shape")
        batch[row] = other[0]
        return batch
    if are_parameters(batch) and are_parameters(other):
        rows = [
            {name: column[each : each + 1] for name, column in batch.items()}
            for each in range(samples)
        ]
        return stacked([*rows[:row], other, *rows[row + 1 :]])
    if type(other) is not type(batch):
        raise ValueError("the sample that was drawn in a bad one's place has another structure")
    if _is_column(batch, samples):
        return type(batch)([*batch[:row], other[0], *batch[row + 1 :]])
    others = _inside(other)
    if len(others) != len(_inside(batch)):
        raise ValueError("the sample that was drawn in a bad one's place has another structure")
    rest = iter(others)
    return _opened(batch, _inside(batch), lambda each: with_row(each, samples, row, next(rest)))


def _is_column(value: Any, samples: int) -> bool:
    """Whether it is a column of strings, which are not stacked."""
    return (
        type(value) in (list, tuple)
        and len(value) == samples
        and all(isinstance(each, str | bytes) for each in value)
    )


def _inside(value: Any) -> list[Any]:
    if isinstance(value, Mapping):
        return list(value.values())
    return list(value) if isinstance(value, list | tuple) else []


def _opened(value: Any, inside: list[Any], made: Any) -> Any:
    """A container with ``made(each)`` in the place of each value in it."""
    if isinstance(value, Mapping):
        items = {key: made(each) for key, each in zip(value, inside)}
        try:
            return type(value)(items)  # type: ignore[call-arg]
        except TypeError:
            return items
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*map(made, inside))
    if isinstance(value, list | tuple):
        return type(value)(map(made, inside))
    return value
