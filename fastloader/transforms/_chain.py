"""A chain of transforms as it was read: what is done to each picture."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch

from fastloader.transforms._normalization import Normalization
from fastloader.transforms._pillow import pass_order


@dataclasses.dataclass
class Chain:
    """A chain of transforms in the only native order; see csrc/image/image_transform.h."""

    random_crop: tuple[float, float, float, float] | None = None
    shorter: int | None = None
    max_size: int | None = None
    exact: tuple[int, int] | None = None
    cover: tuple[int, int] | None = None
    fit: tuple[int, int] | None = None
    center_crop: tuple[int, int] | None = None
    fill: tuple[int, int, int] = (0, 0, 0)
    horizontal_flip: float = 0.0
    vertical_flip: float = 0.0
    filter: str = "bilinear"  # or "bicubic", or "random": one of them for each sample
    tensor: bool = False  # whether it ends in a tensor
    floating: bool = False  # whether that is of floats in 0..1, normalised if mean is set
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None

    @property
    def scaled(self) -> bool:
        """Whether a step resizes."""
        return any(each is not None for each in (self.exact, self.shorter, self.cover, self.fit))

    @property
    def normalization(self) -> Normalization:
        """The normalisation of a chain that ends in floats."""
        return Normalization(self.mean, self.std, torch.float32, False, None)

    def native(self, module: Any) -> Any:
        return module.ImageTransform(
            random_crop=None if self.random_crop is None else list(self.random_crop),
            shorter=self.shorter,
            max_size=self.max_size,
            exact=self.exact,
            cover=self.cover,
            fit=self.fit,
            center_crop=self.center_crop,
            fill=list(self.fill),
            horizontal_flip=self.horizontal_flip,
            vertical_flip=self.vertical_flip,
            filter=getattr(module.Interpolation, self.filter.upper()),
            pass_order=getattr(module.PassOrder, pass_order()),
        )

    def __str__(self) -> str:
        """What is done in words, with sizes as height x width."""
        words = []
        if self.random_crop is not None:
            low, high, thin, wide = self.random_crop
            words.append(f"random crop of {low:g} to {high:g} (ratio {thin:.3g} to {wide:.3g})")
        for size, what in (
            (self.exact, "to"),
            (self.cover, "in shape, to cover"),
            (self.fit, "in shape, to fit into"),
        ):
            if size is not None:
                words.append(f"resize {what} {size[0]}x{size[1]}")
        if self.shorter is not None:
            limit = "" if self.max_size is None else f", the longer one to at most {self.max_size}"
            words.append(f"resize the shorter edge to {self.shorter}{limit}")
        if self.scaled:
            words[-1] += f" ({self.filter})"
        if self.center_crop is not None:
            words.append(f"centre crop {self.center_crop[0]}x{self.center_crop[1]}")
            if any(self.fill):
                words[-1] += f" on {self.fill}"
        for probability, name in (
            (self.horizontal_flip, "horizontal"),
            (self.vertical_flip, "vertical"),
        ):
            if probability:
                words.append(f"{name} flip ({probability:g})")
        if self.mean is not None:
            words.append("normalised float32")
        else:
            words.append("float32 in 0..1" if self.floating else "uint8")
        return ", ".join(words)
