"""The reader of chains of transforms: torchvision's (v1 and v2), timm's and ours.

If a step is not known, or not in its place, `NotNative` names it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

import torch

from fastloader.errors import NotNative
from fastloader.transforms import Compose, Grayscale
from fastloader.transforms._chain import Chain
from fastloader.transforms._normalization import Normalization
from fastloader.transforms._reader.counterpart import counterpart
from fastloader.transforms._reader.erasing import in_delivered_units, read_erasing
from fastloader.transforms._reader.grey import check_on_grey
from fastloader.transforms._reader.head import put_into_head
from fastloader.transforms._reader.kinds import (
    KNOWN,
    check_unchanged,
    home_of,
    is_ours,
    kind_of,
    kind_of_class,
    known_class,
)
from fastloader.transforms._recipe.recipe import MOST_STEPS
from fastloader.transforms.steps.transform import shown, step_of

_TO_BYTES = ("PILToTensor", "ToImage", "timm MaybePILToTensor")
_TO_FLOATS = ("ToTensor", "timm MaybeToTensor")
_TO_DTYPE = ("ToDtype", "ConvertImageDtype")
_BEHIND = ("timm ToTensor", *_TO_DTYPE, "ToPureTensor", "Normalize")
_AFTER = (*_TO_DTYPE, "Normalize", "RandomErasing")  # which need a tensor


def read_chain(transform: Any, ours_ends_in_tensor: bool, of: Chain | None = None) -> Chain:
    """Reads the steps of a transform into a chain. ``of``: a chain without a step, which says what is
    known of the pictures that come.

    Raises:
        NotNative: which names the first step that is not known, or not known in its place.
    """
    if transform is None:
        raise NotNative("the dataset has no transform: its samples are Pillow images")
    chain = Chain() if of is None else dataclasses.replace(of)
    ours = True
    for step in steps_of(transform):
        ours = ours and is_ours(step)
        _read_step(chain, step)
    if not chain.tensor and not (ours and ours_ends_in_tensor):
        raise NotNative("the transform ends in a Pillow image, which is not collated")
    if chain.size is None:
        raise NotNative("the transform gives pictures of different sizes")
    in_delivered_units(chain)
    return chain


def refused_steps(transform: Any, of: Chain | None = None) -> tuple[list[str], str]:
    """The reason for each step that is not known in its place, where the steps before it are read
    without those that were refused; and in words what the others come to, empty if that is not native
    either. A refused step still converts, if that is what its class is for, and so may a step of which
    nothing is known. ``of``: as in `read_chain`."""
    chain = Chain() if of is None else dataclasses.replace(of)
    refused, kept = [], []
    may_convert = False  # whether nothing is known of a step before
    for step in steps_of(transform):
        kind = kind_of_class(step)
        if may_convert and kind in _AFTER:
            chain.tensor = chain.floating = True
        trial = dataclasses.replace(chain)
        try:
            _read_step(trial, step)
        except NotNative as reason:
            refused.append(str(reason))
            chain.tensor |= kind in (*_TO_BYTES, *_TO_FLOATS, "timm ToTensor")
            chain.floating |= kind in _TO_FLOATS or (chain.tensor and kind in _TO_DTYPE)
            may_convert |= known_class(step) is None
        else:
            chain = trial
            kept.append(step)
    try:
        return refused, str(read_chain(Compose(kept), ours_ends_in_tensor=True, of=of))
    except NotNative:
        return refused, ""


def steps_of(transform: Any) -> Iterable[Any]:
    """The steps of a transform, with those of chains within chains. A chain that does more than that, by
    hooks or a method of its own, is one step."""
    if kind_of(transform) != "Compose":
        return [transform]
    return [step for each in transform.transforms for step in steps_of(each)]


def begins_with_rgb(transform: Any) -> bool:
    """Whether the first step makes an RGB picture of any."""
    return transform is not None and any(
        kind_of(step) == "RGB" for step in [*steps_of(transform)][:1]
    )


def is_conversion(step: Any) -> bool:
    """Whether a step converts, or works behind the conversion."""
    return kind_of(step) in (*_TO_BYTES, *_TO_FLOATS, *_BEHIND)


def step_to_floats(transform: Any) -> Any | None:
    """The step by which the samples of a transform are tensors of floats; None if they are bytes, or may
    be anything."""
    for step in reversed([*steps_of(transform)]):
        kind = kind_of(step)
        if kind in ("Normalize", *_TO_FLOATS):
            return step
        if kind in _TO_DTYPE:
            dtype = getattr(step, "dtype", None)
            return step if isinstance(dtype, torch.dtype) and dtype.is_floating_point else None
        if kind not in ("ToPureTensor", "RandomErasing"):
            return None
    return None


def own_normalization(step: Any) -> Normalization | None:
    """What `step_to_floats` normalises by, if it is a Normalize; None for any other step."""
    if kind_of(step) != "Normalize":
        return None
    mean, std = _mean_and_std(step)
    count = max(len(mean), len(std))
    if not {len(mean), len(std)} <= {1, count} or 0.0 in std:
        return None  # torchvision raises for each picture
    mean, std = mean * (count // len(mean)), std * (count // len(std))
    return Normalization(mean, std, torch.float32, False, None)


def _read_step(chain: Chain, step: Any) -> None:
    if isinstance(step, torch.nn.Sequential):
        raise NotNative(f"{shown(step)}: only the steps of a Compose are looked at")
    check_unchanged(step)
    kind = kind_of(step)
    if kind == "RGB" and not (chain.grey and chain.tensor):
        chain.grey = False  # every other picture is RGB from the start
    elif home_of(step)[1] in ("RandomHorizontalFlip", "RandomVerticalFlip"):
        read_on_pixels(chain, step)  # which does the same before and after the conversion
    elif chain.tensor:
        _read_behind_tensor(chain, step, kind)
    elif kind in _TO_BYTES:
        chain.tensor = True
    elif kind in _TO_FLOATS:
        default = torch.get_default_dtype()
        if default != torch.float32 and not is_ours(step):
            raise NotNative(
                f"{shown(step)} gives torch's default dtype, {default}; float32 is native"
            )
        chain.tensor = chain.floating = True
    elif kind == "timm ToTensor":
        raise NotNative(f"{shown(step)}, timm's, gives floats in 0..255")
    elif kind in _AFTER:
        raise NotNative(f"{shown(step)} comes before the conversion to a tensor")
    else:
        read_on_pixels(chain, step)


def read_on_pixels(chain: Chain, step: Any) -> None:
    """Reads a step that works on a picture: into the head of the chain or, behind that, the recipe.

    Raises:
        NotNative: if the step is not known.
    """
    if kind_of(step) == "RGB":
        chain.grey = False  # every other picture is RGB from the start
        return
    ours = counterpart(step)
    if chain.grey:
        check_on_grey(step, ours)
    before = chain.size
    after = ours.size_after(before)
    if after is not None and min(after) < 1:
        raise NotNative(f"{shown(step)} leaves nothing of the pictures")
    if isinstance(ours, Grayscale):
        was_grey, chain.grey = chain.grey, ours.num_output_channels == 1
        if was_grey:
            return  # three channels were equal already
        ours = Grayscale(3)
    if put_into_head(chain, ours):
        chain.size = after
        return
    tree = step_of(ours, before)
    if sum(each.size for each in chain.recipe) + tree.size > MOST_STEPS:
        raise NotNative(f"{shown(step)}: a recipe of more than {MOST_STEPS} steps")
    chain.size = after
    chain.recipe += (tree,)
    chain.recipe_names += (type(ours).__name__,)


def _read_behind_tensor(chain: Chain, step: Any, kind: str) -> None:
    if kind in ("ToImage", "ToPureTensor", "timm MaybeToTensor", "timm MaybePILToTensor"):
        return  # because on a tensor they change nothing that is collated
    if kind in _TO_DTYPE:
        _read_dtype(chain, step, scale=kind == "ConvertImageDtype" or step.scale)
    elif kind == "Normalize" and not chain.floating:
        raise NotNative(f"{shown(step)} comes after uint8: convert to float before it")
    elif kind == "Normalize" and chain.mean is None:
        _read_normalize(chain, step)
    elif kind == "RandomErasing":
        read_erasing(chain, step)
    elif is_ours(step) or home_of(step) in KNOWN:
        raise NotNative(
            f"{shown(step)} comes after the conversion to a tensor: torchvision changes tensors by "
            "other rules than Pillow images. Move the conversion, such as ToImage(), behind it"
        )
    else:
        raise NotNative(f"{shown(step)} comes after the conversion to a tensor")


def _read_dtype(chain: Chain, step: Any, scale: bool) -> None:
    if chain.floating and step.dtype == torch.float32:
        return
    if not chain.floating and step.dtype == torch.uint8:
        return
    if chain.floating or step.dtype != torch.float32:
        raise NotNative(f"{shown(step)} gives {step.dtype}; uint8 and then float32 are native")
    if not scale:
        raise NotNative(f"{shown(step)} gives floats in 0..255: scale=True is not set")
    chain.floating = True


def normalization_of(normalize: Any | None) -> Normalization:
    """The normalisation of a chain that ends in ToTensor and, if it is given, ``normalize``."""
    chain = Chain(tensor=True, floating=True)
    if normalize is not None:
        _read_normalize(chain, normalize)
    return chain.normalization


def _mean_and_std(step: Any) -> Any:
    return (
        tuple(torch.as_tensor(v, dtype=torch.float64, device="cpu").flatten().tolist())
        for v in (step.mean, step.std)
    )


def _read_normalize(chain: Chain, step: Any) -> None:
    mean, std = _mean_and_std(step)
    channels = chain.channels
    if not {len(mean), len(std)} <= {1, channels} or 0.0 in std:
        raise NotNative(
            f"{shown(step)} is not of {'one channel' if chain.grey else 'three channels'}"
        )
    chain.mean = mean * (channels // len(mean))
    chain.std = std * (channels // len(std))
