"""The reader of torchvision's steps (v1 and v2): each becomes our transform of the same meaning.

Nothing of torchvision is imported: `kinds.py` says which class a step is of. What is read are the
attributes that torchvision itself looks at when a picture comes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fastloader import transforms
from fastloader._core.machine import identity
from fastloader.transforms.policies import MIXED_NAMES, NAMES, POLICIES
from fastloader.transforms.transform import RecipeTransform

V2 = "torchvision.transforms.v2."

Policy = (
    transforms.AugMix
    | transforms.AutoAugment
    | transforms.RandAugment
    | transforms.TrivialAugmentWide
)


def is_v2(step: Any) -> bool:
    base = identity.found(V2 + "_transform", "Transform")
    return base is not None and isinstance(step, base)


def fill_of(step: Any) -> Any:
    """Returns the colour that torchvision gives to Pillow."""
    fill = step._fill if is_v2(step) else step.fill
    if isinstance(fill, dict):
        # Torchvision looks for the picture's exact type. It fills with 0 where it finds neither that nor
        # "others", whatever there is for other kinds of pictures.
        kinds = [each for each in (identity.found("PIL.Image", "Image"), "others") if each in fill]
        if not kinds:
            raise ValueError("its fill has no colour for Pillow's pictures")
        fill = fill[kinds[0]]
    # Pillow takes another number, such as one of numpy's, for the red channel only.
    if type(fill) not in (type(None), int, float, list, tuple):
        raise TypeError(f"its fill is of the type {type(fill).__name__}")
    return fill


def _pair(values: Any) -> Any:
    """Returns a range, or None. Raises TypeError for a number in its place, which our constructor would
    take for something else."""
    if values is not None and not isinstance(values, list | tuple):
        raise TypeError(f"{values!r} is no range")
    return values


def _color_jitter(step: Any) -> transforms.ColorJitter:
    kinds = ("brightness", "contrast", "saturation", "hue")
    return transforms.ColorJitter(*[_pair(getattr(step, kind)) for kind in kinds])


def _pad(step: Any) -> transforms.Pad:
    return transforms.Pad(step.padding, fill_of(step), step.padding_mode)


def _random_crop(step: Any) -> transforms.RandomCrop:
    padding = step.padding
    if is_v2(step) and padding is not None:
        left, right, top, bottom = padding
        padding = (left, top, right, bottom)
    made = transforms.RandomCrop(
        step.size, padding, step.pad_if_needed, fill_of(step), step.padding_mode
    )
    if is_v2(step) and made.pad_if_needed and made.padding_mode in ("reflect", "symmetric"):
        made._pads_at_once = True
    return made


def _random_rotation(step: Any) -> transforms.RandomRotation:
    return transforms.RandomRotation(
        _pair(step.degrees), step.interpolation, step.expand, _pair(step.center), fill_of(step)
    )


def _random_affine(step: Any) -> transforms.RandomAffine:
    made = transforms.RandomAffine(
        _pair(step.degrees),
        _pair(step.translate),
        _pair(step.scale),
        _pair(step.shear),
        step.interpolation,
        fill_of(step),
        _pair(step.center),
    )
    made._second_version = is_v2(step)
    return made


def _random_perspective(step: Any) -> transforms.RandomPerspective:
    return transforms.RandomPerspective(
        step.distortion_scale, step.p, step.interpolation, fill_of(step)
    )


def _auto_augment(step: Any) -> Policy:
    made = transforms.AutoAugment(step.policy, step.interpolation, fill_of(step))
    if (step._policies if is_v2(step) else step.policies) != POLICIES[made.policy]:
        raise ValueError("its policies are not those of its policy")
    return _with_thresholds(step, made)


def _rand_augment(step: Any) -> Policy:
    made = transforms.RandAugment(
        step.num_ops, step.magnitude, step.num_magnitude_bins, step.interpolation, fill_of(step)
    )
    return _with_thresholds(step, made)


def _trivial_augment(step: Any) -> Policy:
    made = transforms.TrivialAugmentWide(step.num_magnitude_bins, step.interpolation, fill_of(step))
    return _with_thresholds(step, made)


def _aug_mix(step: Any) -> Policy:
    made = transforms.AugMix(
        step.severity,
        step.mixture_width,
        step.chain_depth,
        step.alpha,
        step.all_ops,
        step.interpolation,
        fill_of(step),
    )
    if step._PARAMETER_MAX != 10:
        raise ValueError("its _PARAMETER_MAX is not 10")
    return _with_thresholds(step, made)


def _with_thresholds(step: Any, made: Policy) -> Policy:
    if is_v2(step):
        _check_space(step)
        made._scaled_thresholds = True
    return made


def _check_space(step: Any) -> None:
    """Raises ValueError unless v2's policy draws from the operations of torchvision's source."""
    spaces = {"_AUGMENTATION_SPACE": NAMES, "_PARTIAL_AUGMENTATION_SPACE": MIXED_NAMES[:9]}
    for attribute, names in spaces.items():
        drawn = getattr(type(step), attribute, None)
        if drawn is None:
            continue
        # Those of no policy of its own are left out of AutoAugment's and AugMix's.
        others = {"Identity", "Invert"}
        known = {*drawn} - others == {*names} - others
        if not known or not all(identity.is_librarys(function) for function, _ in drawn.values()):
            raise ValueError(f"its {attribute} is not torchvision's")


def _same(
    make: Callable[..., RecipeTransform], *attributes: str
) -> Callable[[Any], RecipeTransform]:
    """Reads a step whose attributes are the arguments of our transform."""
    return lambda step: make(*(getattr(step, name) for name in attributes))


# By the module of v2; all of v1 stands in two.
_MAKERS: dict[str, dict[str, Callable[[Any], RecipeTransform]]] = {
    "_color": {
        "ColorJitter": _color_jitter,
        "Grayscale": _same(transforms.Grayscale, "num_output_channels"),
        "RandomAdjustSharpness": _same(transforms.RandomAdjustSharpness, "sharpness_factor", "p"),
        "RandomAutocontrast": _same(transforms.RandomAutocontrast, "p"),
        "RandomEqualize": _same(transforms.RandomEqualize, "p"),
        "RandomGrayscale": _same(transforms.RandomGrayscale, "p"),
        "RandomInvert": _same(transforms.RandomInvert, "p"),
        "RandomPosterize": _same(transforms.RandomPosterize, "bits", "p"),
        "RandomSolarize": _same(transforms.RandomSolarize, "threshold", "p"),
    },
    "_geometry": {
        "CenterCrop": _same(transforms.CenterCrop, "size"),
        "Pad": _pad,
        "RandomAffine": _random_affine,
        "RandomCrop": _random_crop,
        "RandomHorizontalFlip": _same(transforms.RandomHorizontalFlip, "p"),
        "RandomPerspective": _random_perspective,
        # Without their antialias, which torchvision ignores on Pillow's pictures.
        "RandomResizedCrop": _same(
            transforms.RandomResizedCrop, "size", "scale", "ratio", "interpolation"
        ),
        "RandomRotation": _random_rotation,
        "RandomVerticalFlip": _same(transforms.RandomVerticalFlip, "p"),
        "Resize": _same(transforms.Resize, "size", "interpolation", "max_size"),
    },
    "_misc": {
        "GaussianBlur": lambda step: transforms.GaussianBlur(step.kernel_size, _pair(step.sigma)),
    },
    "_auto_augment": {
        "AugMix": _aug_mix,
        "AutoAugment": _auto_augment,
        "RandAugment": _rand_augment,
        "TrivialAugmentWide": _trivial_augment,
    },
}


def _known() -> dict[tuple[str, str], Callable[[Any], RecipeTransform]]:
    found: dict[tuple[str, str], Callable[[Any], RecipeTransform]] = {}
    for family, makers in _MAKERS.items():
        first = "autoaugment" if family == "_auto_augment" else "transforms"
        for name, make in makers.items():
            found[f"torchvision.transforms.{first}", name] = make
            found[V2 + family, name] = make
    found[V2 + "_misc", "Identity"] = lambda step: transforms.Compose([])
    return found


KNOWN = _known()
