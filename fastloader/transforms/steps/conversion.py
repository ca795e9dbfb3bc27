"""The end of a chain: tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from fastloader.transforms._recipe.draw import Draw
from fastloader.transforms.steps.transform import Transform, tensor_of


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
