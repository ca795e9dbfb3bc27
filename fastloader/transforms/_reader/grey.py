"""Steps on pictures of one channel, which Pillow's mode L has.

The native path makes them as RGB pictures of three equal channels, and delivers one of these. Each step
that passes here gives such a picture what Pillow gives the grey one. A test compares the two step by
step.
"""

from __future__ import annotations

from typing import Any

from fastloader.errors import NotNative
from fastloader.transforms import (
    AugMix,
    Compose,
    Grayscale,
    RandomApply,
    RandomChoice,
    RandomOrder,
)
from fastloader.transforms._reader import timm, torchvision
from fastloader.transforms._reader.kinds import is_ours
from fastloader.transforms.steps.transform import RecipeTransform, shown

_HOLDERS = (Compose, RandomApply, RandomChoice, RandomOrder)


def check_on_grey(step: Any, ours: RecipeTransform) -> None:
    """Checks a step of a chain, and its counterpart of ours.

    Raises:
        NotNative: which names the step, if it would give a grey picture something else.
    """
    if type(ours) in timm.OURS:
        raise NotNative(f"{shown(step)}, timm's, stands on pictures of one channel")
    if type(ours) is AugMix:
        raise NotNative(f"{shown(step)} stands on pictures of one channel")
    if isinstance(ours, _HOLDERS):
        for each, counterpart in zip(getattr(step, "transforms", ()), ours.transforms, strict=True):
            if isinstance(counterpart, Grayscale):
                raise NotNative(f"{shown(step)} holds {shown(each)}; on its own that is native")
            assert isinstance(counterpart, RecipeTransform)
            check_on_grey(each, counterpart)
    elif not is_ours(step):
        _check_fill(step)


def _check_fill(step: Any) -> None:
    """Torchvision refuses a colour of three numbers for a picture of one channel."""
    if not (hasattr(step, "fill") or hasattr(step, "_fill")):
        return
    fill = torchvision.fill_of(step)
    if isinstance(fill, list | tuple) and len(fill) != 1:
        raise NotNative(f"{shown(step)} fills pictures of one channel with {len(fill)} numbers")
