"""The reader of random erasing, torchvision's (v1 and v2) and ours."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import torch

from fastloader.errors import NotNative
from fastloader.transforms import RandomErasing
from fastloader.transforms._chain import Chain
from fastloader.transforms._reader.kinds import check_unchanged, is_ours
from fastloader.transforms._reader.torchvision import is_v2
from fastloader.transforms.steps.transform import shown


def read_erasing(chain: Chain, step: Any) -> None:
    """Reads a step that erases, behind the conversion to a tensor. What it has read of the chain by then
    says in which units the value is.

    Raises:
        NotNative: which names the step and says what cannot be done natively.
    """
    if chain.erasing is not None:
        raise NotNative(f"{shown(step)} is a second one that erases; one is native")
    check_unchanged(step)
    try:
        ours = step if is_ours(step) else _counterpart(step)
        erasing = ours.erasing(chain.channels)
    except (AttributeError, OverflowError, TypeError, ValueError) as error:
        raise NotNative(f"{shown(step)}: {error}") from None
    chain.erasing = erasing
    chain.erased_in = "bytes" if not chain.floating else "floats" if chain.mean is None else "end"
    if chain.floating:
        return
    if erasing.value is None:
        raise NotNative(f"{shown(step)} cuts normal deviates to bytes: convert to float before")
    if not all(-1 < value < 256 for value in erasing.value):
        raise NotNative(f"{shown(step)} comes after uint8, which holds 0 to 255")
    # As torch cuts them.
    cut = tuple(float(math.trunc(value)) for value in erasing.value)
    chain.erasing = dataclasses.replace(erasing, value=cut)


def _counterpart(step: Any) -> RandomErasing:
    value, ratio = step.value, step.ratio
    if value is None or isinstance(value, str):
        value = "random"
    elif type(value) not in (int, float, bool, list, tuple):
        raise TypeError(f"its value is of the type {type(value).__name__}")
    if is_v2(step):
        # It draws from what it has made of the ratio.
        low, high = step._log_ratio.tolist()
        ratio = (math.exp(low), math.exp(high))
    return RandomErasing(step.p, step.scale, ratio, value)


def in_delivered_units(chain: Chain) -> None:
    """Makes the value of what a whole chain erases what comes out of the chain in its place: steps
    behind the erasing may have converted and normalised it.

    Raises:
        NotNative: for normal deviates that are normalised.
    """
    erasing, place = chain.erasing, chain.erased_in
    if erasing is None or place == "end":
        return
    if place == "bytes" and chain.floating:
        assert erasing.value is not None
        values = chain.normalization.of_pixel([int(value) for value in erasing.value])
    elif place == "floats" and chain.mean is not None:
        if erasing.value is None:
            raise NotNative("RandomErasing(value='random') stands before Normalize: put it behind")
        # As Normalize does it, and not by the definition of normalise, which is of bytes.
        given, mean, std = (
            torch.tensor(each, dtype=torch.float32, device="cpu")
            for each in (erasing.value, chain.mean, chain.std)
        )
        values = tuple(given.sub(mean).div(std).tolist())
    else:
        return
    chain.erasing = dataclasses.replace(erasing, value=values)
