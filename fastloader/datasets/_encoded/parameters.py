"""What was drawn for pictures, as tensors."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from fastloader.transforms._chain import Chain
from fastloader.transforms._recipe.operations import RESAMPLINGS
from fastloader.transforms.tensors import numbered


def parameters(
    chains: Sequence[Chain],
    drawn: Sequence[Mapping[str, Any] | None],
    keys: Sequence[tuple[int, int]],
    number: int,
) -> dict[str, torch.Tensor]:
    """The tensors that `EncodedImage` documents, a row for each picture.

    Args:
        chains: what is done to each picture.
        drawn: what its chain draws for each, as the native module's ``ImageJob.draw`` gives it. None
            for a picture that could not be read, whose row says nothing.
        keys: (seed, sample) of each.
        number: which picture of its sample each is.
    """
    rows: list[list[list[float]]] = []
    for chain, each, (seed, sample) in zip(chains, drawn, keys, strict=True):
        named = [] if each is None else [*chain.steps(each), *chain.erased(seed, sample, number)]
        rows.append([numbered(step) for step in named])
    longest = max((len(steps) for steps in rows), default=0)
    widest = max((len(step) for steps in rows for step in steps), default=1)
    table = torch.full((len(rows), longest, widest), math.nan, dtype=torch.float64, device="cpu")
    for row, steps in zip(table, rows):
        for place, step in zip(row, steps):
            place[: len(step)] = torch.tensor(step, dtype=torch.float64, device="cpu")
    known = [_UNREAD if each is None else each for each in drawn]
    return {
        "size": _whole([each["size"] for each in known]),
        "box": _whole([each["box"] for each in known]),
        "hflip": _whole([each["hflip"] for each in known]).bool(),
        "vflip": _whole([each["vflip"] for each in known]).bool(),
        "interpolation": _whole([RESAMPLINGS.index(each["interpolation"]) for each in known]),
        "steps": table,
    }


_UNREAD = {
    "size": (0, 0),
    "box": (0, 0, 0, 0),
    "hflip": False,
    "vflip": False,
    "interpolation": RESAMPLINGS[0],
}
_NAMES = {*_UNREAD, "steps"}


def are_parameters(value: Any) -> bool:
    """Whether a value in a batch is what `parameters` gives."""
    return type(value) is dict and value.keys() == _NAMES


def stacked(rows: Sequence[Mapping[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
    """Parameters of single pictures in one dict. Their steps differ in number."""
    steps = [row["steps"][0] for row in rows]
    high, wide = (max(each.shape[axis] for each in steps) for axis in (0, 1))
    table = torch.full((len(steps), high, wide), math.nan, dtype=torch.float64, device="cpu")
    for place, each in zip(table, steps):
        place[: each.shape[0], : each.shape[1]] = each
    return {name: torch.cat([row[name] for row in rows]) for name in rows[0] if name != "steps"} | {
        "steps": table
    }


def _whole(values: Sequence[Any]) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int64, device="cpu")
