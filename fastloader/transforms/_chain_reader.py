"""The reader of chains of transforms: torchvision's (v1 and v2), timm's and ours.

Only exact types are known, because a subclass may do anything. A class is known by its module and name,
so that nothing of torchvision or timm is imported. If a step is not known, or not in its place,
`NotNative` names it.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import torch

from fastloader import transforms
from fastloader.errors import NotNative
from fastloader.transforms._arguments import HEAD_INTERPOLATIONS, interpolation_name
from fastloader.transforms._chain import Chain
from fastloader.transforms._normalization import Normalization
from fastloader.transforms.steps.transform import RecipeTransform

T = TypeVar("T")


# The modules whose steps are read, with the prefix that their names get here, because some classes of
# timm do something else than torchvision's of the same name.
_HOMES = {
    "fastloader.transforms.steps.conversion": "",
    "fastloader.transforms.steps.crop": "",
    "fastloader.transforms.steps.flip": "",
    "fastloader.transforms.steps.resize": "",
    "fastloader.transforms.steps.structure": "",
    "torchvision.transforms.transforms": "",
    "torchvision.transforms.v2._geometry": "",
    "torchvision.transforms.v2._container": "",
    "torchvision.transforms.v2._misc": "",
    "torchvision.transforms.v2._color": "",
    "torchvision.transforms.v2._type_conversion": "",
    "torchvision.transforms.v2._deprecated": "",
    "timm.data.transforms": "timm ",
    "fastloader.compat.timm.geometry": "timm ",
}
_GEOMETRIC = (
    "RandomResizedCrop",
    "Resize",
    "CenterCrop",
    "timm RandomResizedCropAndInterpolation",
    "timm ResizeKeepRatio",
    "timm CenterCropOrPad",
)


def read_chain(transform: Any, ours_ends_in_tensor: bool) -> Chain:
    """Reads the steps of a transform into a chain.

    Raises:
        NotNative: which names the first step that is not known, or not known in its place.
    """
    if transform is None:
        raise NotNative("the dataset has no transform: its samples are Pillow images")
    chain = Chain()
    ours = True
    for step in steps_of(transform):
        ours = ours and is_ours(step)
        _read_step(chain, step)
    if not chain.tensor and not (ours and ours_ends_in_tensor):
        raise NotNative("the transform ends in a Pillow image, which is not collated")
    if chain.size is None:
        raise NotNative("the transform gives pictures of different sizes")
    return chain


def steps_of(transform: Any) -> Iterable[Any]:
    """The steps of a transform, with those of chains within chains."""
    if _kind(transform) != "Compose":
        return [transform]
    return [step for each in transform.transforms for step in steps_of(each)]


def is_ours(step: Any) -> bool:
    """Whether a step is one of fastloader.transforms."""
    return type(step).__module__.startswith("fastloader.transforms.steps.")


def _kind(step: Any) -> str:
    kind = type(step)
    if kind.__module__ not in _HOMES:
        return ""
    return _HOMES[kind.__module__] + kind.__qualname__


def _read_step(chain: Chain, step: Any) -> None:
    kind = _kind(step)
    if isinstance(step, torch.nn.Sequential):
        raise NotNative(f"{_shown(step)}: only the steps of a Compose are looked at")
    if isinstance(step, torch.nn.Module) and (step._forward_hooks or step._forward_pre_hooks):
        raise NotNative(f"{_shown(step)} has hooks")
    if "forward" in getattr(step, "__dict__", ()):
        raise NotNative(f"{_shown(step)} has a forward() of its own")
    if kind in ("RandomHorizontalFlip", "RandomVerticalFlip"):
        _read_flip(chain, step, kind)  # which does the same before and after the conversion
    elif kind in ("RGB", "Identity"):
        pass  # every picture is RGB from the start
    elif chain.tensor:
        _read_behind_tensor(chain, step, kind)
    elif kind in _GEOMETRIC and _head_takes(chain, kind):
        _read_geometric(chain, step, kind)
    elif kind in ("PILToTensor", "ToImage", "timm MaybePILToTensor"):
        chain.tensor = True
    elif kind in ("ToTensor", "timm MaybeToTensor"):
        default = torch.get_default_dtype()
        if default != torch.float32 and not is_ours(step):
            raise NotNative(
                f"{_shown(step)} gives torch's default dtype, {default}; float32 is native"
            )
        chain.tensor = chain.floating = True
    elif kind == "timm ToTensor":
        raise NotNative(f"{_shown(step)}, timm's, gives floats in 0..255")
    elif kind in ("ToDtype", "ConvertImageDtype"):
        raise NotNative(f"{_shown(step)} stands before the conversion to a tensor")
    else:
        _read_behind_head(chain, step)


def _head_takes(chain: Chain, kind: str) -> bool:
    """Whether a step that crops or resizes stands where the head of a chain has it."""
    if chain.recipe or chain.horizontal_flip or chain.vertical_flip or chain.center_crop:
        return False
    return kind in ("CenterCrop", "timm CenterCropOrPad") or not chain.scaled


def _read_flip(chain: Chain, step: Any, kind: str) -> None:
    name = "horizontal_flip" if kind == "RandomHorizontalFlip" else "vertical_flip"
    if chain.recipe or getattr(chain, name):
        _read_behind_head(chain, step)
    else:
        setattr(chain, name, _made(step, lambda: transforms.RandomHorizontalFlip(step.p)).p)


def _read_behind_head(chain: Chain, step: Any) -> None:
    """Reads a step that works on the pixels that come out of the head."""
    ours = step if is_ours(step) else None
    if not isinstance(ours, RecipeTransform):
        raise _unknown(step)
    before = chain.size
    tree = _made(step, lambda: ours.step(before))
    chain.recipe_size = ours.size_after(before)
    chain.recipe += (tree,)
    chain.recipe_names += (type(ours).__name__,)


def _read_geometric(chain: Chain, step: Any, kind: str) -> None:
    """Reads a step that crops or resizes. Our own transform of the same meaning checks its arguments."""
    if kind == "CenterCrop":
        chain.center_crop = _made(step, lambda: transforms.CenterCrop(step.size)).size
    elif kind == "timm CenterCropOrPad":
        if step.padding_mode != "constant":
            raise NotNative(f"{_shown(step)} pads by {step.padding_mode!r}")
        chain.center_crop = _made(step, lambda: transforms.CenterCrop(step.size)).size
        fill = (step.fill,) * 3 if isinstance(step.fill, int) else tuple(step.fill)
        if len(fill) != 3 or not all(isinstance(v, int) and 0 <= v <= 255 for v in fill):
            raise NotNative(f"{_shown(step)} pads with {step.fill!r}, which is no colour")
        chain.fill = fill
    elif kind in ("RandomResizedCrop", "timm RandomResizedCropAndInterpolation"):
        crop = _made(
            step,
            lambda: transforms.RandomResizedCrop(
                step.size, step.scale, step.ratio, _interpolation(step)
            ),
        )
        chain.random_crop = (*crop.scale, *crop.ratio)
        chain.exact, chain.filter = crop.size, crop.interpolation
    elif kind == "timm ResizeKeepRatio":
        if step.random_scale_prob or step.random_aspect_prob:
            raise NotNative(f"{_shown(step)} scales at random")
        if step.longest not in (0.0, 1.0):
            raise NotNative(f"{_shown(step)} lies between covering and fitting")
        # Our RandomResizedCrop checks what this one takes: a pair, and "random".
        pair = _made(
            step,
            lambda: transforms.RandomResizedCrop(step.size, interpolation=_interpolation(step)),
        )
        chain.filter = pair.interpolation
        setattr(chain, "fit" if step.longest else "cover", pair.size)
    else:
        resize = _made(
            step, lambda: transforms.Resize(step.size, step.interpolation, step.max_size)
        )
        if len(resize.size) == 1:
            chain.shorter, chain.max_size = resize.size[0], resize.max_size
        else:
            chain.exact = (resize.size[0], resize.size[1])
        chain.filter = resize.interpolation
    if chain.filter not in (*HEAD_INTERPOLATIONS, "random"):
        raise NotNative(
            f"{_shown(step)}: interpolation={chain.filter!r}: use 'bilinear' or 'bicubic'"
        )


def _read_behind_tensor(chain: Chain, step: Any, kind: str) -> None:
    if kind in ("ToImage", "ToPureTensor", "timm MaybeToTensor", "timm MaybePILToTensor"):
        return  # because on a tensor they change nothing that is collated
    if kind in ("ToDtype", "ConvertImageDtype"):
        _read_dtype(chain, step, scale=kind == "ConvertImageDtype" or step.scale)
    elif kind in _GEOMETRIC:
        raise NotNative(
            f"{_shown(step)} stands behind the conversion to a tensor: torchvision resizes and crops "
            "tensors by other rules than Pillow images; convert at the end"
        )
    elif kind == "Normalize" and not chain.floating:
        raise NotNative(f"{_shown(step)} stands behind uint8: convert to float before")
    elif kind == "Normalize" and chain.mean is None:
        _read_normalize(chain, step)
    else:
        raise NotNative(f"{_shown(step)} stands behind the conversion to a tensor")


def _read_dtype(chain: Chain, step: Any, scale: bool) -> None:
    if chain.floating and step.dtype == torch.float32:
        return
    if not chain.floating and step.dtype == torch.uint8:
        return
    if chain.floating or step.dtype != torch.float32:
        raise NotNative(f"{_shown(step)} gives {step.dtype}; uint8 and then float32 are native")
    if not scale:
        raise NotNative(f"{_shown(step)} gives floats in 0..255: scale=True is not set")
    chain.floating = True


def normalization_of(normalize: Any | None) -> Normalization:
    """The normalisation of a chain that ends in ToTensor and, if it is given, ``normalize``."""
    chain = Chain(tensor=True, floating=True)
    if normalize is not None:
        _read_normalize(chain, normalize)
    return chain.normalization


def _read_normalize(chain: Chain, step: Any) -> None:
    mean, std = (
        tuple(torch.as_tensor(v, dtype=torch.float64, device="cpu").flatten().tolist())
        for v in (step.mean, step.std)
    )
    if len(mean) not in (1, 3) or len(std) not in (1, 3) or 0.0 in std:
        raise NotNative(f"{_shown(step)} is not of three channels")
    chain.mean = mean * (3 // len(mean))
    chain.std = std * (3 // len(std))


def _interpolation(step: Any) -> Any:
    """The interpolation of a step. timm's "random" is a tuple of the two."""
    if not isinstance(step.interpolation, tuple | list):
        return step.interpolation
    names = [interpolation_name(each) for each in step.interpolation]
    return "random" if names == ["bilinear", "bicubic"] else step.interpolation


def _made(step: Any, make: Callable[[], T]) -> T:
    try:
        return make()
    except (TypeError, ValueError) as error:
        raise NotNative(f"{_shown(step)}: {error}") from None


def _unknown(step: Any) -> NotNative:
    return NotNative(f"{_shown(step)} is not a native transform, or not in this place")


def _shown(step: Any) -> str:
    """A step on one line, because modules of torch print on several."""
    return textwrap.shorten(repr(step), 150, placeholder=" ...")
