"""The head of a chain: the steps that decide what of a picture is decoded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fastloader.transforms import (
    CenterCrop,
    RandomHorizontalFlip,
    RandomResizedCrop,
    RandomVerticalFlip,
    Resize,
)
from fastloader.transforms._chain import Chain
from fastloader.transforms.steps.timm.geometry import CenterCropOrPad, ResizeKeepRatio
from fastloader.transforms.steps.transform import RecipeTransform


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
