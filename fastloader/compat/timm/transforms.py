"""timm's chains of transforms. Those that the native path knows are made here, others by timm."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from fastloader.compat.timm.original import import_timm
from fastloader.transforms import (
    CenterCrop,
    Compose,
    Normalize,
    PILToTensor,
    RandomHorizontalFlip,
    RandomResizedCrop,
    RandomVerticalFlip,
    Resize,
    ToTensor,
)
from fastloader.transforms._pillow import image_module
from fastloader.transforms._recipe.draw import Draw
from fastloader.transforms.steps.transform import Transform

_NATIVE_FILTERS = ("bilinear", "bicubic", "random")
_TIMM_FILTERS = (*_NATIVE_FILTERS, "nearest", "box", "hamming", "lanczos")


class ResizeKeepRatio(Transform):
    """Resizes in shape, to cover ``size`` (height, width) or, with ``longest=1``, to fit into it."""

    # Attributes of timm's class of this name, which the reader of chains asks for.
    random_scale_prob = random_aspect_prob = 0.0

    def __init__(
        self, size: tuple[int, int], interpolation: str = "bilinear", longest: float = 0.0
    ) -> None:
        checked = RandomResizedCrop(size, interpolation=interpolation)
        self.size = checked.size
        self.interpolation = checked.interpolation
        self.longest = longest

    def apply(self, image: Any, draw: Draw) -> Any:
        times = (image.height / self.size[0], image.width / self.size[1])
        by = max(times) if self.longest else min(times)
        size = round(image.width / by), round(image.height / by)
        return image.resize(size, draw.resampling(self.interpolation))


class CenterCropOrPad(Transform):
    """Takes the central ``size`` (height, width) of the image. What is missing around it is ``fill``,
    one number for all channels or one for each."""

    def __init__(self, size: int | Sequence[int], fill: tuple[int, ...]) -> None:
        self.size = CenterCrop(size).size
        self.fill = fill
        self.padding_mode = "constant"

    def apply(self, image: Any, draw: Draw) -> Any:
        height, width = max(self.size[0], image.height), max(self.size[1], image.width)
        if (height, width) != (image.height, image.width):
            bands = len(image.getbands())
            fill = self.fill * bands if len(self.fill) == 1 else self.fill
            padded = image_module().new(image.mode, (width, height), fill)
            padded.paste(image, ((width - image.width) // 2, (height - image.height) // 2))
            image = padded
        return CenterCrop(self.size).apply(image, draw)


def create_transform(input_size: int | Sequence[int], options: Mapping[str, Any]) -> Any:
    """Does as timm's ``create_transform(input_size, **options)``. ``options`` must hold everything that
    `create_loader` passes on.

    Raises:
        ImportError: if timm is needed and is not installed; the error names the option.
    """
    _check_interpolation(options)
    needed, instead = what_needs_timm(options)
    if needed:
        return import_timm(needed, instead).create_transform(input_size, **options)
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
    if name not in _TIMM_FILTERS:
        raise ValueError(f"interpolation={name!r}: use one of {', '.join(_TIMM_FILTERS)}")
    in_shape = options["crop_mode"] == "border"
    if name == "random" and not options["is_training"] and not in_shape:
        raise ValueError("interpolation='random' is for training; name one filter for evaluation")


def what_needs_timm(options: Mapping[str, Any]) -> tuple[str, str]:
    """The option that needs timm, and what to give instead, in words; both empty if the native path
    knows the chain."""
    names: list[str] = []
    if options["tf_preprocessing"] and options["use_prefetcher"]:
        names = ["tf_preprocessing"]
    elif options["separate"]:
        return "num_aug_splits", ""
    elif not options["is_training"]:
        names = ["crop_border_pixels"]
    elif not options["no_aug"]:
        names = ["auto_augment", "grayscale_prob", "gaussian_blur_prob"]
        if options["train_crop_mode"] != "rrc":
            names.append("train_crop_mode")
        if not options["use_prefetcher"]:
            names.append("re_prob")
        if _jitters(options):
            names.append("color_jitter")
    for name in names:
        if options[name]:
            instead = "color_jitter=None" if name == "color_jitter" else ""
            return f"{name}={options[name]!r}", instead
    if options["interpolation"] not in _NATIVE_FILTERS:
        return f"interpolation={options['interpolation']!r}", "'bilinear' or 'bicubic'"
    return "", ""


def _jitters(options: Mapping[str, Any]) -> bool:
    """Whether colours are changed at all. Factors of 0 change nothing."""
    factors = options["color_jitter"]
    if factors is None or options["color_jitter_prob"] == 0:
        return False
    return any(factors) if isinstance(factors, Sequence) else bool(factors)


def _without_augmentation(size: Any, options: Mapping[str, Any]) -> list[Any]:
    filter = "bilinear" if options["interpolation"] == "random" else options["interpolation"]
    return [Resize(size, filter), CenterCrop(size)]


def _training(size: Any, options: Mapping[str, Any]) -> list[Any]:
    scale, ratio = options["scale"] or (0.08, 1.0), options["ratio"] or (3.0 / 4.0, 4.0 / 3.0)
    steps: list[Any] = [RandomResizedCrop(size, scale, ratio, options["interpolation"])]
    if options["hflip"] > 0:
        steps.append(RandomHorizontalFlip(options["hflip"]))
    if options["vflip"] > 0:
        steps.append(RandomVerticalFlip(options["vflip"]))
    return steps


def _evaluation(size: Any, options: Mapping[str, Any]) -> list[Any]:
    height, width = CenterCrop(size).size
    crop_pct, filter = options["crop_pct"] or 0.875, options["interpolation"]
    scaled = (math.floor(height / crop_pct), math.floor(width / crop_pct))
    if options["crop_mode"] == "squash":
        return [Resize(scaled, filter), CenterCrop(size)]
    if options["crop_mode"] == "border":
        fill = tuple(round(255 * value) for value in options["mean"])
        return [ResizeKeepRatio(scaled, filter, longest=1.0), CenterCropOrPad(size, fill)]
    if scaled[0] == scaled[1]:
        return [Resize(scaled[0], filter), CenterCrop(size)]
    return [ResizeKeepRatio(scaled, filter), CenterCrop(size)]
