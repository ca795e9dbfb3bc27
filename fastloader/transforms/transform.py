"""The base classes of all transforms, and those that make tensors."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Any, ClassVar

import torch

from fastloader._core.machine import identity
from fastloader.errors import NotNative
from fastloader.transforms import _arguments
from fastloader.transforms._pillow import image_module
from fastloader.transforms._recipe.draw import Draw
from fastloader.transforms._recipe.operations import Size
from fastloader.transforms._recipe.recipe import Step, apply, operation

__all__ = ["PILToTensor", "ToTensor", "Normalize"]

# ---- What all transforms have in common.


class Transform:
    def __call__(self, image: Any) -> Any:
        """Applies the transform to a Pillow image or a tensor. Of a dict of columns, which is what
        Hugging Face's ``dataset.with_transform`` gives, lists of Pillow images become lists of
        tensors."""
        if isinstance(image, dict):
            return _of_columns(self, image)
        return self.apply(image, Draw())

    def apply(self, image: Any, draw: Draw) -> Any:
        """Applies the transform. ``draw(operation)`` gives the random numbers of that operation."""
        raise NotImplementedError

    def __repr__(self) -> str:
        public = {name: value for name, value in vars(self).items() if name[0] != "_"}
        inner = ", ".join(f"{name}={value!r}" for name, value in public.items())
        return f"{type(self).__name__}({inner})"


def tensor_of(image: Any) -> torch.Tensor:
    """Returns the pixels of a Pillow image, of shape (channels, height, width)."""
    import numpy

    array = numpy.array(image, copy=True)
    if array.ndim == 2:
        array = array[:, :, None]
    return torch.from_numpy(array).permute(2, 0, 1).contiguous()


def _of_columns(transform: Transform, columns: dict[str, Any]) -> dict[str, Any]:
    picture = image_module().Image
    made = dict(columns)
    for name, values in columns.items():
        if (
            isinstance(values, list)
            and values
            and all(isinstance(each, picture) for each in values)
        ):
            done = [transform(each.convert("RGB")) for each in values]
            made[name] = [tensor_of(each) if isinstance(each, picture) else each for each in done]
    return made


class RecipeTransform(Transform):
    """A transform whose work is a tree of steps on the pixels, which the native path does as well."""

    def step(self, size: Size | None) -> Step:
        """Describes the transform as a tree of steps. ``size``: the height and width of the pictures
        that come in, if all have the same, or None.

        Raises:
            NotNative: if it cannot be said before the picture is there.
        """
        raise NotImplementedError

    def size_after(self, size: Size | None) -> Size | None:
        """Returns the height and width of the pictures that come out, if all have the same, or None.
        ``size`` says the same of the pictures that come in. Most transforms keep it."""
        return size

    def apply(self, image: Any, draw: Draw) -> Any:
        return draw.run(self.step(image.size[::-1]), image)


class WithProbability(RecipeTransform):
    """Applies one operation that takes no numbers, with probability ``p``."""

    _operation: ClassVar[str]

    def __init__(self, p: float = 0.5) -> None:
        self.p = _arguments.probability(p)

    def step(self, size: Size | None) -> Step:
        return apply(self.p, operation(self._operation))


def step_of(transform: Any, size: Size | None) -> Step:
    """Returns the step of a transform that may be of any class.

    Raises:
        NotNative: which names the transform and says why it has no step.
    """
    if not _has_step(transform):
        raise NotNative(f"{shown(transform)} is not a native transform")
    try:
        return transform.step(size)
    except ValueError as error:  # a figure that cannot be drawn from, or too many steps
        raise NotNative(f"{shown(transform)}: {error}") from None


def size_after(transform: Any, size: Size | None) -> Size | None:
    """Returns the size after a transform that may be of any class."""
    return transform.size_after(size) if _has_step(transform) else None


def shown(transform: Any) -> str:
    """Shows a transform on one line, because modules of torch print on several."""
    try:
        text = repr(transform)
    except Exception:  # a class of the user's may not know how, and is to be named all the same
        text = f"a {type(transform).__module__}.{type(transform).__qualname__}"
    text = " ".join(text.split())
    if " " not in text[:150]:  # a long word, which textwrap leaves out
        return text if len(text) <= 150 else f"{text[:146]} ..."
    return textwrap.shorten(text, 150, placeholder=" ...")


def _has_step(transform: Any) -> bool:
    # A user's class that derives from one of ours with another apply() does something else.
    return (
        isinstance(transform, RecipeTransform)
        and identity.true_name(type(transform).apply).startswith("fastloader.")
        and "apply" not in vars(transform)
    )


# ---- The end of a chain: tensors.


class PILToTensor(Transform):
    """Makes a uint8 tensor of shape (channels, height, width), 0..255."""

    def apply(self, image: Any, draw: Draw) -> torch.Tensor:
        if isinstance(image, torch.Tensor):
            raise TypeError(f"{type(self).__name__} takes a Pillow image, not a tensor")
        return tensor_of(image)


class ToTensor(Transform):
    """Makes a float32 tensor of shape (channels, height, width), 0..1. Images that do not hold bytes,
    such as those of modes I and F, keep their values, as with torchvision."""

    def apply(self, image: Any, draw: Draw) -> torch.Tensor:
        pixels = PILToTensor().apply(image, draw)
        if pixels.dtype == torch.bool:  # mode 1
            return pixels.to(torch.float32)
        if pixels.dtype == torch.uint16:  # I;16
            return pixels.to(torch.int16)
        return pixels.to(torch.float32).div_(255) if pixels.dtype == torch.uint8 else pixels


class Normalize(Transform):
    """Makes (x - mean) / std per channel of what ToTensor gives. mean and std are in 0..1."""

    def __init__(self, mean: Sequence[float], std: Sequence[float], inplace: bool = False) -> None:
        self.mean = mean
        self.std = std
        self.inplace = inplace

    def apply(self, image: Any, draw: Draw) -> torch.Tensor:
        if not isinstance(image, torch.Tensor) or not image.is_floating_point():
            raise TypeError("Normalize takes a float tensor: put ToTensor before it")
        mean = torch.as_tensor(self.mean, dtype=image.dtype, device=image.device).view(-1, 1, 1)
        std = torch.as_tensor(self.std, dtype=image.dtype, device=image.device).view(-1, 1, 1)
        if (std == 0).any():
            raise ValueError(f"std={self.std} contains a zero")
        result = image if self.inplace else image.clone()
        return result.sub_(mean).div_(std)
