"""The reader of chains of transforms: torchvision's (v1 and v2), timm's and ours.

If a step is not known, or not in its place, `NotNative` names it.
"""

from __future__ import annotations

import copy
import dataclasses
import math
from collections.abc import Callable, Iterable
from typing import Any

import torch

from fastloader import transforms
from fastloader._core.machine import identity
from fastloader.errors import NotNative
from fastloader.transforms import (
    AugMix,
    CenterCrop,
    Compose,
    Grayscale,
    RandomApply,
    RandomChoice,
    RandomErasing,
    RandomHorizontalFlip,
    RandomOrder,
    RandomResizedCrop,
    RandomVerticalFlip,
    Resize,
)
from fastloader.transforms._chain import Chain
from fastloader.transforms._normalization import Normalization
from fastloader.transforms._reader import timm, torchvision
from fastloader.transforms._reader.kinds import (
    HOLDERS,
    KNOWN,
    check_unchanged,
    home_of,
    is_ours,
    kind_of,
    kind_of_class,
    known_class,
)
from fastloader.transforms._reader.torchvision import is_v2
from fastloader.transforms._recipe.recipe import MOST_STEPS
from fastloader.transforms.timm import CenterCropOrPad, ResizeKeepRatio
from fastloader.transforms.transform import RecipeTransform, shown, step_of

# ---- The head of a chain: the steps that decide what of a picture is decoded.


def put_into_head(chain: Chain, step: RecipeTransform) -> bool:
    """Puts a step into the head of the chain, if it stands where the head has it: crop, resize, centre
    crop, flips, each of them once. Returns whether it did."""
    put = _HEAD.get(type(step))
    return put is not None and not chain.recipe and put(chain, step)


def _random_resized_crop(chain: Chain, step: RandomResizedCrop) -> bool:
    if not _may_resize(chain, step.interpolation):
        return False
    chain.random_crop = (*step.scale, *step.ratio)
    chain.exact, chain.filter = step.size, step.interpolation
    return True


def _resize(chain: Chain, step: Resize) -> bool:
    if not _may_resize(chain, step.interpolation):
        return False
    if len(step.size) == 1:
        chain.shorter, chain.max_size = step.size[0], step.max_size
    else:
        chain.exact = (step.size[0], step.size[1])
    chain.filter = step.interpolation
    return True


def _resize_keep_ratio(chain: Chain, step: ResizeKeepRatio) -> bool:
    if step.random_scale_prob or step.random_aspect_prob or step.longest not in (0.0, 1.0):
        return False
    if not _may_resize(chain, step.interpolation):
        return False
    chain.filter = step.interpolation
    setattr(chain, "fit" if step.longest else "cover", step.size)
    return True


def _center_crop(chain: Chain, step: CenterCrop) -> bool:
    if not _may_crop(chain):
        return False
    chain.center_crop = step.size
    return True


def _center_crop_or_pad(chain: Chain, step: CenterCropOrPad) -> bool:
    if step.padding_mode != "constant" or not _may_crop(chain):
        return False
    chain.center_crop, chain.fill = step.size, step.colour
    return True


def _horizontal_flip(chain: Chain, step: RandomHorizontalFlip) -> bool:
    if chain.horizontal_flip:
        return False
    chain.horizontal_flip = step.p
    return True


def _vertical_flip(chain: Chain, step: RandomVerticalFlip) -> bool:
    if chain.vertical_flip:
        return False
    chain.vertical_flip = step.p
    return True


def _may_crop(chain: Chain) -> bool:
    return not (chain.center_crop or chain.horizontal_flip or chain.vertical_flip)


def _may_resize(chain: Chain, interpolation: str) -> bool:
    # Rows are resized while they are decoded. Pillow's "nearest" is no filter of rows.
    return _may_crop(chain) and not chain.scaled and interpolation != "nearest"


_HEAD: dict[type, Callable[[Chain, Any], bool]] = {
    RandomResizedCrop: _random_resized_crop,
    Resize: _resize,
    ResizeKeepRatio: _resize_keep_ratio,
    CenterCrop: _center_crop,
    CenterCropOrPad: _center_crop_or_pad,
    RandomHorizontalFlip: _horizontal_flip,
    RandomVerticalFlip: _vertical_flip,
}


# ---- Steps on pictures of one channel, which Pillow's mode L has.
#
# The native path makes them as RGB pictures of three equal channels, and delivers one of these.
# Each step that passes here gives such a picture what Pillow gives the grey one. A test
# compares the two step by step.


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
        for held, counterpart in zip(getattr(step, "transforms", ()), ours.transforms, strict=True):
            if isinstance(counterpart, Grayscale):
                raise NotNative(f"{shown(step)} holds {shown(held)}; on its own that is native")
            assert isinstance(counterpart, RecipeTransform)
            check_on_grey(held, counterpart)
    elif not is_ours(step):
        _check_fill(step)


def _check_fill(step: Any) -> None:
    """Raises ValueError where torchvision does, which refuses a colour of three numbers for a picture of
    one channel."""
    if not (hasattr(step, "fill") or hasattr(step, "_fill")):
        return
    fill = torchvision.fill_of(step)
    if isinstance(fill, list | tuple) and len(fill) != 1:
        raise NotNative(f"{shown(step)} fills pictures of one channel with {len(fill)} numbers")


# ---- The reader of random erasing, torchvision's (v1 and v2) and ours.


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
    """Converts the value that a whole chain erases with: it stands in what comes out of the chain,
    because steps behind the erasing may have converted and normalised it.

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


# ---- Our transform of the same meaning as a step of torchvision's or timm's.
#
# `kinds.py` says which class a step is of, and nothing of torchvision or timm is imported.


Children = list[RecipeTransform]

# The steps that hold others, by their names in both versions of torchvision.
_MAKE_HOLDER: dict[str, Callable[[Any, Children], RecipeTransform]] = {
    "Compose": lambda step, children: transforms.Compose(children),
    "RandomApply": lambda step, children: transforms.RandomApply(children, step.p),
    "RandomChoice": lambda step, children: transforms.RandomChoice(children, step.p),
    "RandomOrder": lambda step, children: transforms.RandomOrder(children),
}
# A size to try a step with, which nothing depends on.
_SOME_SIZE = (64, 64)


def counterpart(step: Any) -> RecipeTransform:
    """Returns our transform that does the same to a Pillow picture of mode RGB as ``step``, with the
    same distribution. A transform of ours is its own, but what it holds is read.

    Raises:
        NotNative: which names the step, for a class that is not known and for attributes that mean
            something else.
    """
    check_unchanged(step)
    if is_ours(step) and isinstance(step, RecipeTransform):
        return _with_counterparts(step)
    home = home_of(step)
    make = KNOWN.get(home)
    if make is None and home not in HOLDERS:
        raise NotNative(f"{shown(step)} is not a native transform")
    try:
        if make is None:
            made = _MAKE_HOLDER[HOLDERS[home]](step, _children(step))
        else:
            made = make(step)
    except (AttributeError, KeyError, OverflowError, TypeError, ValueError) as error:
        raise NotNative(f"{shown(step)}: {error}") from None
    if isinstance(made, transforms.Grayscale):
        return made  # which may change the channels: the chain looks after that
    try:
        step_of(made, _SOME_SIZE)
    except NotNative as error:
        raise NotNative(f"{shown(step)}: {error}") from None
    return made


def _with_counterparts(step: RecipeTransform) -> RecipeTransform:
    if home_of(step)[1] not in _MAKE_HOLDER:
        return step
    made: Any = copy.copy(step)
    made.transforms = _children(step)
    return made


def _children(step: Any) -> Children:
    held = step.transforms
    if type(held) not in (list, tuple, torch.nn.ModuleList):
        raise NotNative(f"{shown(step)} holds a {type(held).__name__}, which may do anything")
    return [counterpart(each) for each in held]


_TO_BYTES = ("PILToTensor", "ToImage", "timm MaybePILToTensor")
_TO_FLOATS = ("ToTensor", "timm MaybeToTensor")
_TO_DTYPE = ("ToDtype", "ConvertImageDtype")
_BEHIND = ("timm ToTensor", *_TO_DTYPE, "ToPureTensor", "Normalize")
_AFTER = (*_TO_DTYPE, "Normalize", "RandomErasing")  # which need a tensor

DIFFERENT_SIZES = "the transform gives pictures of different sizes"


def read_chain(
    transform: Any, ours_ends_in_tensor: bool, of: Chain | None = None, sized: bool = True
) -> Chain:
    """Reads the steps of a transform into a chain. ``of``: a chain without a step, which says what is
    known of the pictures that come. ``sized``: whether all pictures have to come out in one size.

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
    if chain.size is None and sized:
        raise NotNative(DIFFERENT_SIZES)
    in_delivered_units(chain)
    return chain


def refused_steps(transform: Any, of: Chain | None = None) -> tuple[list[str], str]:
    """Returns the reason for each step that is not known in its place, where the steps before it are
    read without those that were refused; and in words what the others come to, empty if that is not
    native either. A refused step still converts, if that is what its class is for, and so may a step of
    which nothing is known. ``of``: as in `read_chain`."""
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
    """Lists the steps of a transform, with those of chains within chains. A chain that does more than
    that, by hooks or a method of its own, is one step."""
    if kind_of(transform) != "Compose":
        return [transform]
    return [step for each in transform.transforms for step in steps_of(each)]


def with_plain_end(transform: Any) -> Any:
    """Returns the transform without its steps that erase, and with its flips before the conversion,
    where they do the same: what is left behind that draws nothing and moves no pixel."""
    steps = [step for step in steps_of(transform) if kind_of(step) != "RandomErasing"]
    begin = next((place for place, step in enumerate(steps) if is_conversion(step)), len(steps))
    behind = steps[begin:]
    flips = [step for step in behind if is_flip(step)]
    return transforms.Compose(
        [*steps[:begin], *flips, *(step for step in behind if not is_flip(step))]
    )


def is_flip(step: Any) -> bool:
    """Returns whether a step does the same before and behind the conversion."""
    return home_of(step)[1] in ("RandomHorizontalFlip", "RandomVerticalFlip")


def begins_with_rgb(transform: Any) -> bool:
    """Returns whether the first step makes an RGB picture of any."""
    return transform is not None and any(
        kind_of(step) == "RGB" for step in [*steps_of(transform)][:1]
    )


def is_conversion(step: Any) -> bool:
    """Returns whether a step converts, or works behind the conversion."""
    return kind_of(step) in (*_TO_BYTES, *_TO_FLOATS, *_BEHIND)


def step_to_floats(transform: Any) -> Any | None:
    """Finds the step by which the samples of a transform are tensors of floats; None if they are bytes,
    or may be anything."""
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


def wrapper(transform: Any) -> Any | None:
    """Returns torchvision's class of tensors in which a transform wraps what it makes; None for a plain
    tensor.

    Raises:
        NotNative: if a step of the older kind stands behind that: torchvision decides what it returns.
    """
    wrap = None
    for step in steps_of(transform):
        kind = kind_of(step)
        if kind == "ToImage":
            wrap = identity.found("torchvision.tv_tensors._image", "Image")
        elif kind == "ToPureTensor":
            wrap = None
        elif wrap is not None and not is_v2(step):
            raise NotNative(f"{shown(step)} comes after ToImage(), and is no step of transforms.v2")
    return wrap


def own_normalization(step: Any) -> Normalization | None:
    """Returns the normalisation of the step that `step_to_floats` found, if it is a Normalize; None for
    any other step."""
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
    elif is_flip(step):
        read_on_pixels(chain, step)
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
    """Returns the normalisation of a chain that ends in ToTensor and, if it is given, ``normalize``."""
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
