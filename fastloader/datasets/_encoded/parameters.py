"""What was drawn for pictures, as tensors."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from fastloader.transforms._chain import Chain
from fastloader.transforms._recipe.parameters import RESAMPLINGS
from fastloader.transforms.steps.tensors.named_steps import numbered


def parameters(
    chains: Sequence[Chain],
    drawn: Sequence[Mapping[str, Any]],
    keys: Sequence[tuple[int, int]],
    number: int,
) -> dict[str, torch.Tensor]:
    """The tensors that `EncodedImage` documents, a row for each picture.

    Args:
        chains: what is done to each picture.
        drawn: what its chain draws for each, as the native module's ``ImageJob.draw`` gives it.
        keys: (seed, sample) of each.
        number: which picture of its sample each is.
    """
    rows: list[list[list[float]]] = []
    for chain, each, (seed, sample) in zip(chains, drawn, keys, strict=True):
        named = [*chain.steps(each), *chain.erased(seed, sample, number)]
        rows.append([numbered(step) for step in named])
    longest = max((len(steps) for steps in rows), default=0)
    widest = max((len(step) for steps in rows for step in steps), default=1)
    table = torch.full((len(rows), longest, widest), math.nan, dtype=torch.float64, device="cpu")
    for row, steps in zip(table, rows):
        for place, step in zip(row, steps):
            place[: len(step)] = torch.tensor(step, dtype=torch.float64, device="cpu")
    return {
        "size": _whole([each["size"] for each in drawn]),
        "box": _whole([each["box"] for each in drawn]),
        "hflip": _whole([each["hflip"] for each in drawn]).bool(),
        "vflip": _whole([each["vflip"] for each in drawn]).bool(),
        "interpolation": _whole([RESAMPLINGS.index(each["interpolation"]) for each in drawn]),
        "steps": table,
    }


def _whole(values: Sequence[Any]) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int64, device="cpu")
