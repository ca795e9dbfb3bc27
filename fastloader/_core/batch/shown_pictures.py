"""Finds the pictures of a batch as one looks at them: bytes, with what is known of each as its title."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fastloader._core.batch.image_leaves import described
from fastloader._core.batch.tree import Key, rebuild
from fastloader.transforms._normalization import Normalization

_LABELS = ("label", "labels", "target", "targets", "y")


@dataclasses.dataclass(frozen=True)
class ShownPictures:
    """The pictures of a batch, as a person sees them. ``pixels``: an array (H, W, 3) or (H, W, 4) of
    bytes for each picture. ``titles``: one for each; empty if the batch has no labels. ``note``: what
    else was done to the pixels."""

    pixels: list[NDArray[np.uint8]]
    titles: list[str]
    note: str


def find_pictures(
    batch: Any, normalization: Normalization | None, classes: Sequence[str] | None, count: int
) -> ShownPictures:
    """Finds the first ``count`` pictures of a batch. ``normalization``: the loader's, which is undone in
    the float leaf that it looks like. Raises ValueError for a batch without pictures."""
    leaves = _tensors(batch)
    found = _normalised(leaves, normalization)
    if found is not None and normalization is not None:
        images, note = _undone(found[:count], normalization), ""
    else:
        plain = _plain(leaves)
        if plain is None:
            raise _no_pictures(leaves)
        images, note = _as_bytes(plain[:count])
    if images.shape[1] in (1, 2):  # of two channels the first
        images = images[:, :1].expand(-1, 3, -1, -1)
    pixels = images.permute(0, 2, 3, 1).contiguous().numpy()
    return ShownPictures(list(pixels), _titles(leaves, classes, pixels.shape[0]), note)


def _tensors(batch: Any) -> list[tuple[Key, torch.Tensor]]:
    leaves: list[tuple[Key, torch.Tensor]] = []

    def visit(value: Any, key: Key) -> Any:
        if isinstance(value, torch.Tensor) and value.layout is torch.strided:
            leaves.append((key, value.detach()))
        return value

    rebuild(batch, visit, None)
    return leaves


def _normalised(
    leaves: list[tuple[Key, torch.Tensor]], normalization: Normalization | None
) -> torch.Tensor | None:
    """Finds the leaf that the loader has normalised, as (N, C, H, W): of clips the first frames."""
    if normalization is None:
        return None
    for key, leaf in leaves:
        if not normalization.names(key):
            continue
        if leaf.is_floating_point() and leaf.dim() == 5 and leaf.shape[1] > 0:
            leaf = leaf[:, 0]
        if leaf.is_floating_point() and leaf.dim() == 4:
            if normalization.allows_channels(leaf.shape[1]):
                return leaf
    return None


def _plain(leaves: list[tuple[Key, torch.Tensor]]) -> torch.Tensor | None:
    """Finds the first leaf that looks like pictures, as (N, C, H, W); else the first frames of the first
    one that looks like clips."""
    frames = [leaf[:, 0] for _, leaf in leaves if leaf.dim() == 5 and leaf.shape[1] > 0]
    for leaf in (*(leaf for _, leaf in leaves), *frames):
        if leaf.dim() == 4 and (leaf.dtype is torch.uint8 or leaf.is_floating_point()):
            if leaf.shape[1] in (1, 3):
                return leaf
            if leaf.shape[3] in (1, 3):
                return leaf.permute(0, 3, 1, 2)
    return None


def _undone(images: torch.Tensor, normalization: Normalization) -> torch.Tensor:
    images = images.float().cpu()
    if normalization.mean is not None and normalization.std is not None:
        mean, std = (
            torch.tensor(values, device="cpu").view(1, -1, 1, 1)
            for values in (normalization.mean, normalization.std)
        )
        images = images * std + mean
    return _to_bytes(images * 255)


def _as_bytes(images: torch.Tensor) -> tuple[torch.Tensor, str]:
    """Pictures that the loader has not normalised."""
    if images.dtype is torch.uint8:
        return images.cpu(), ""
    images = images.float().cpu()
    least, most = (float(images.min()), float(images.max())) if images.numel() else (0.0, 1.0)
    if least >= -1e-3 and most <= 1 + 1e-3:
        return _to_bytes(images * 255), ""
    if least >= 0 and most <= 255:
        return _to_bytes(images), ""
    stretched = (images - least) / max(most - least, 1e-12)
    return _to_bytes(stretched * 255), (
        f"brightness stretched from {least:.2f}..{most:.2f}: not normalised by this loader"
    )


def _to_bytes(images: torch.Tensor) -> torch.Tensor:
    return images.nan_to_num(0.0).round().clamp(0, 255).to(torch.uint8)


def _titles(
    leaves: list[tuple[Key, torch.Tensor]], classes: Sequence[str] | None, count: int
) -> list[str]:
    labels = [
        (key, leaf)
        for key, leaf in leaves
        if leaf.dim() == 1
        and leaf.shape[0] >= count
        and not leaf.is_floating_point()
        and not leaf.is_complex()
        and leaf.dtype is not torch.bool
    ]
    if not labels:
        return []
    _, chosen = next((each for each in labels if each[0] in _LABELS), labels[0])
    numbers = [int(number) for number in chosen[:count].tolist()]
    if classes is None:
        return [str(number) for number in numbers]
    return [
        str(classes[number]) if 0 <= number < len(classes) else str(number) for number in numbers
    ]


def _no_pictures(leaves: list[tuple[Key, torch.Tensor]]) -> ValueError:
    return ValueError(
        "the batch has no pictures to show: they are a tensor of bytes or floats of 4 dimensions, "
        f"NCHW or NHWC, with 1 or 3 channels; this batch holds {described(leaves)}"
    )
