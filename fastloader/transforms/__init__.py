"""The transforms of torchvision that the native image path knows, under torchvision's names.

They describe what to do: a loader reads them and does it in C++. Called on a Pillow image, they do the
same with Pillow, and so they work in a plain DataLoader. The distribution is torchvision's, but the
draws are not: one number from torch's default generator seeds a counter-based generator.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch

from fastloader.transforms import _arguments, _geometry, _pillow

__all__ = [
    "CenterCrop",
    "Compose",
    "Normalize",
    "PILToTensor",
    "RandomHorizontalFlip",
    "RandomResizedCrop",
    "RandomVerticalFlip",
    "Resize",
    "ToTensor",
]


class Transform:
    def __call__(self, image: Any) -> Any:
        return self.apply(image, _geometry.fresh_draw())

    def apply(self, image: Any, draw: _geometry.Draw) -> Any:
        """Does the transform. ``draw(operation)`` gives the random numbers of that operation."""
        raise NotImplementedError

    def __repr__(self) -> str:
        inner = ", ".join(f"{name}={value!r}" for name, value in vars(self).items())
        return f"{type(self).__name__}({inner})"


class Compose(Transform):
    """Does the transforms one after the other."""

    def __init__(self, transforms: Sequence[Callable[[Any], Any]]) -> None:
        self.transforms = list(transforms)

    def apply(self, image: Any, draw: _geometry.Draw) -> Any:
        for transform in self.transforms:
            image = (
                transform.apply(image, draw)
                if isinstance(transform, Transform)
                else transform(image)
            )
        return image


class RandomResizedCrop(Transform):
    """Takes a random part of the image and resizes it to ``size``.

    Args:
        size: The (height, width) of the result; an int is a square.
        scale: The range of the part's share of the area; default (0.08, 1).
        ratio: The range of the part's width / height, drawn log-uniformly; default (3/4, 4/3).
        interpolation: "bilinear" (default) or "bicubic", also as torchvision's InterpolationMode or
            Pillow's constant. "random" takes one of the two for each picture, as timm does.
        antialias: Images are always antialiased, as Pillow does it. False raises ValueError.
    """

    def __init__(
        self,
        size: int | Sequence[int],
        scale: tuple[float, float] = (0.08, 1.0),
        ratio: tuple[float, float] = (3.0 / 4.0, 4.0 / 3.0),
        interpolation: Any = "bilinear",
        antialias: bool | None = True,
    ) -> None:
        self.size = _arguments.pair(size)
        self.scale = _arguments.checked_range("scale", scale, 0.0)
        self.ratio = _arguments.checked_range("ratio", ratio, math.ulp(0.0))
        self.interpolation = (
            "random" if interpolation == "random" else _arguments.interpolation_name(interpolation)
        )
        self.antialias = _arguments.antialias(antialias)

    def apply(self, image: Any, draw: _geometry.Draw) -> Any:
        left, top, width, height = _geometry.random_resized_crop(
            image.height, image.width, self.scale, self.ratio, draw(_geometry.CROP)
        )
        cropped = image.crop((left, top, left + width, top + height))
        return cropped.resize(self.size[::-1], _geometry.resample(self.interpolation, draw))


class Resize(Transform):
    """Resizes the image to ``size``. An int, or a sequence of one, is the shorter edge: the longer edge
    follows and is at most ``max_size``. A pair is (height, width)."""

    def __init__(
        self,
        size: int | Sequence[int],
        interpolation: Any = "bilinear",
        max_size: int | None = None,
        antialias: bool | None = True,
    ) -> None:
        if isinstance(size, int) and not isinstance(size, bool):
            self.size: tuple[int, ...] = (size,)
        elif isinstance(size, Sequence) and not isinstance(size, str) and len(size) in (1, 2):
            self.size = tuple(operator.index(edge) for edge in size)
        elif isinstance(size, Sequence) and not isinstance(size, str):
            raise ValueError("If size is a sequence, it should have 1 or 2 values")
        else:
            raise TypeError(f"Size should be int or sequence. Got {type(size)}")
        if any(edge < 1 for edge in self.size):
            raise ValueError(f"size={size}: edges must be at least 1 pixel")
        if max_size is not None:
            if len(self.size) == 2:
                raise ValueError(
                    "max_size should only be passed if size specifies the length of the smaller edge"
                )
            if max_size <= self.size[0]:
                raise ValueError(
                    f"max_size = {max_size} must be strictly greater than the requested size for the "
                    f"smaller edge size = {size}"
                )
        self.max_size = max_size
        self.interpolation = _arguments.interpolation_name(interpolation)
        self.antialias = _arguments.antialias(antialias)

    def apply(self, image: Any, draw: _geometry.Draw) -> Any:
        height, width = _geometry.resized(image.height, image.width, self.size, self.max_size)
        return image.resize((width, height), _geometry.resample(self.interpolation, draw))


class CenterCrop(Transform):
    """Takes the central (height, width) of the image. What is missing around it is black."""

    def __init__(self, size: int | Sequence[int]) -> None:
        self.size = _arguments.pair(size)

    def apply(self, image: Any, draw: _geometry.Draw) -> Any:
        height, width = self.size
        left = _geometry.center(image.width, width)
        top = _geometry.center(image.height, height)
        return image.crop((left, top, left + width, top + height))


class RandomHorizontalFlip(Transform):
    """Mirrors left and right with probability ``p``."""

    def __init__(self, p: float = 0.5) -> None:
        self.p = _arguments.probability(p)

    def apply(self, image: Any, draw: _geometry.Draw) -> Any:
        if draw(_geometry.HORIZONTAL_FLIP).uniform() >= self.p:
            return image
        return image.transpose(_pillow.image_module().Transpose.FLIP_LEFT_RIGHT)


class RandomVerticalFlip(Transform):
    """Mirrors top and bottom with probability ``p``."""

    def __init__(self, p: float = 0.5) -> None:
        self.p = _arguments.probability(p)

    def apply(self, image: Any, draw: _geometry.Draw) -> Any:
        if draw(_geometry.VERTICAL_FLIP).uniform() >= self.p:
            return image
        return image.transpose(_pillow.image_module().Transpose.FLIP_TOP_BOTTOM)


class PILToTensor(Transform):
    """Makes a uint8 tensor of shape (channels, height, width), 0..255."""

    def apply(self, image: Any, draw: _geometry.Draw) -> torch.Tensor:
        import numpy

        if isinstance(image, torch.Tensor):
            raise TypeError(f"{type(self).__name__} takes a Pillow image, not a tensor")
        array = numpy.array(image, copy=True)
        if array.ndim == 2:
            array = array[:, :, None]
        return torch.from_numpy(array).permute(2, 0, 1).contiguous()


class ToTensor(Transform):
    """Makes a float32 tensor of shape (channels, height, width), 0..1. Images that do not hold bytes,
    such as those of modes I and F, keep their values, as with torchvision."""

    def apply(self, image: Any, draw: _geometry.Draw) -> torch.Tensor:
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

    def apply(self, image: Any, draw: _geometry.Draw) -> torch.Tensor:
        if not isinstance(image, torch.Tensor) or not image.is_floating_point():
            raise TypeError("Normalize takes a float tensor: put ToTensor before it")
        mean = torch.as_tensor(self.mean, dtype=image.dtype, device=image.device).view(-1, 1, 1)
        std = torch.as_tensor(self.std, dtype=image.dtype, device=image.device).view(-1, 1, 1)
        if (std == 0).any():
            raise ValueError(f"std={self.std} contains a zero")
        result = image if self.inplace else image.clone()
        return result.sub_(mean).div_(std)
