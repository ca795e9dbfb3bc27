"""timm's chains of transforms, made of ours where these do the same, and by timm otherwise."""

from __future__ import annotations

import importlib
import math
from collections.abc import Mapping, Sequence
from typing import Any

from fastloader.transforms import (
    CenterCrop,
    ColorJitter,
    Compose,
    GaussianBlur,
    Normalize,
    PILToTensor,
    RandomApply,
    RandomGrayscale,
    RandomHorizontalFlip,
    RandomResizedCrop,
    RandomVerticalFlip,
    Resize,
    ToTensor,
)
from fastloader.transforms._arguments import RESAMPLING
from fastloader.transforms.timm import (
    CenterCropOrPad,
    RandomCropOrPad,
    ResizeKeepRatio,
    TrimBorder,
    augment_and_mix_transform,
    auto_augment_transform,
    rand_augment_transform,
)

# ---- timm itself, imported where it is needed.


def import_timm(argument: str) -> Any:
    """Imports ``timm.data``. Raises ImportError without it, which says that ``argument`` needs it."""
    try:
        return importlib.import_module("timm.data")
    except Exception as error:  # a torchvision of another torch is a RuntimeError
        raise ImportError(
            f"{argument} needs timm, which cannot be imported ({error}): install the torchvision of "
            "your torch first, which pip, left to itself, brings with another torch "
            "(torchvision==0.28.0 for torch 2.13.0), and then pip install timm"
        ) from error


_FILTERS = (*RESAMPLING, "random")


def create_transform(input_size: int | Sequence[int], options: Mapping[str, Any]) -> Any:
    """Does as timm's ``create_transform(input_size, **options)``. ``options`` must hold everything that
    `create_loader` passes on.

    Raises:
        ImportError: if timm is needed and is not installed; the error names the option.
    """
    _check_interpolation(options)
    needed = what_needs_timm(options)
    if needed:
        return import_timm(needed).create_transform(input_size, **options)
    size = tuple(input_size[-2:]) if isinstance(input_size, Sequence) else input_size
    if options["is_training"] and options["no_aug"]:
        steps = _without_augmentation(size, options)
    elif options["is_training"]:
        steps = _training(size, options)
    else:
        steps = _evaluation(size, options)
    if options["use_prefetcher"]:
        return Compose([*steps, PILToTensor()])
    return Compose([*steps, ToTensor(), Normalize(options["mean"], options["std"])])


def _check_interpolation(options: Mapping[str, Any]) -> None:
    name = options["interpolation"]
    if name not in _FILTERS:
        raise ValueError(f"interpolation={name!r}: use one of {', '.join(_FILTERS)}")
    in_shape = options["crop_mode"] == "border"
    if name == "random" and not options["is_training"] and not in_shape:
        raise ValueError("interpolation='random' is for training; name one filter for evaluation")


def what_needs_timm(options: Mapping[str, Any]) -> str:
    """Names the option that needs timm, in words; empty if the chain is made here."""
    names: list[str] = []
    if options["tf_preprocessing"] and options["use_prefetcher"]:
        names = ["tf_preprocessing"]
    elif options["separate"]:
        return "num_aug_splits"
    elif options["is_training"] and not options["no_aug"]:
        if not _one_colour(options["mean"]):
            names.append("auto_augment")
        if not options["use_prefetcher"]:
            names.append("re_prob")
    for name in names:
        if options[name]:
            return f"{name}={options[name]!r}"
    return ""


def _one_colour(mean: Sequence[float]) -> bool:
    """Returns whether the mean colour, with which policies fill what they uncover, is one of a picture
    that recipes know, grey or RGB."""
    return len(mean) in (1, 3)


def _jitters(options: Mapping[str, Any]) -> bool:
    """Returns whether colours are changed at all. Factors of 0 change nothing, and a policy takes the
    place of the jitter, unless "3a" is a part of its name."""
    factors, policy = options["color_jitter"], options["auto_augment"]
    if factors is None or options["color_jitter_prob"] == 0 or (policy and "3a" not in policy):
        return False
    return any(factors) if isinstance(factors, Sequence) else bool(factors)


def _without_augmentation(size: Any, options: Mapping[str, Any]) -> list[Any]:
    filter = "bilinear" if options["interpolation"] == "random" else options["interpolation"]
    return [Resize(size, filter), CenterCrop(size)]


def _training(size: Any, options: Mapping[str, Any]) -> list[Any]:
    steps = _cropped(size, options)
    if options["hflip"] > 0:
        steps.append(RandomHorizontalFlip(options["hflip"]))
    if options["vflip"] > 0:
        steps.append(RandomVerticalFlip(options["vflip"]))
    if options["auto_augment"]:
        steps.append(_policy(size, options))
    if _jitters(options):
        steps.append(_jitter(options))
    if options["grayscale_prob"]:
        steps.append(RandomGrayscale(p=options["grayscale_prob"]))
    if options["gaussian_blur_prob"]:
        blur = GaussianBlur(kernel_size=23)
        steps.append(RandomApply([blur], p=options["gaussian_blur_prob"]))
    return steps


def _cropped(size: Any, options: Mapping[str, Any]) -> list[Any]:
    mode, filter = options["train_crop_mode"] or "rrc", options["interpolation"]
    if mode == "rrc":
        scale, ratio = options["scale"] or (0.08, 1.0), options["ratio"] or (3.0 / 4.0, 4.0 / 3.0)
        return [RandomResizedCrop(size, scale, ratio, filter)]
    if mode not in ("rkrc", "rkrr"):
        raise ValueError(f"train_crop_mode={mode!r}: use one of rrc, rkrc, rkrr")
    resize = ResizeKeepRatio(
        size,
        interpolation=filter,
        random_scale_prob=0.5,
        random_scale_range=options["scale"] or (0.8, 1.0),
        random_scale_area=True,
        random_aspect_prob=0.5,
        random_aspect_range=options["ratio"] or (0.9, 1 / 0.9),
    )
    kind = CenterCropOrPad if mode == "rkrc" else RandomCropOrPad
    return [resize, kind(size, padding_mode="reflect")]


def _policy(size: Any, options: Mapping[str, Any]) -> Any:
    name = options["auto_augment"]
    hparams: dict[str, Any] = {
        "translate_const": int((min(size) if isinstance(size, tuple) else size) * 0.45),
        "img_mean": tuple(min(255, round(255 * value)) for value in options["mean"]),
    }
    if options["interpolation"] != "random":
        hparams["interpolation"] = RESAMPLING[options["interpolation"]]
    if name.startswith("augmix"):
        return augment_and_mix_transform(name, {**hparams, "translate_pct": 0.3})
    make = rand_augment_transform if name.startswith("rand") else auto_augment_transform
    return make(name, hparams)


def _jitter(options: Mapping[str, Any]) -> Any:
    factors, probability = options["color_jitter"], options["color_jitter_prob"]
    if not isinstance(factors, Sequence):
        factors = (float(factors),) * 3
    elif len(factors) not in (3, 4):
        raise ValueError(f"color_jitter={factors!r}: use one factor, or 3 or 4")
    jitter = ColorJitter(*factors)
    return jitter if probability is None else RandomApply([jitter], p=probability)


def _evaluation(size: Any, options: Mapping[str, Any]) -> list[Any]:
    height, width = CenterCrop(size).size
    crop_pct, filter = options["crop_pct"] or 0.875, options["interpolation"]
    scaled = (math.floor(height / crop_pct), math.floor(width / crop_pct))
    border = options["crop_border_pixels"]
    first: list[Any] = [TrimBorder(border)] if border else []
    if options["crop_mode"] == "squash":
        return [*first, Resize(scaled, filter), CenterCrop(size)]
    if options["crop_mode"] == "border":
        fill = tuple(round(255 * value) for value in options["mean"])
        resize = ResizeKeepRatio(scaled, longest=1.0, interpolation=filter)
        return [*first, resize, CenterCropOrPad(size, fill)]
    if scaled[0] == scaled[1]:
        return [*first, Resize(scaled[0], filter), CenterCrop(size)]
    return [*first, ResizeKeepRatio(scaled, interpolation=filter), CenterCrop(size)]
