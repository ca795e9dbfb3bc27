"""Taking a batch of any nesting apart into tensors, and putting it together again. A *leaf* is a plain
dense CPU tensor; everything else travels as it is."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from fastloader._core.batch.containers import Key, Movable, Placeholder, moves_itself, rebuild
from fastloader.transforms._normalization import Normalization


@dataclasses.dataclass
class Parts:
    """A batch taken apart: ``template`` is the batch with Placeholders and Movables in it."""

    template: Any
    leaves: list[torch.Tensor]
    keys: list[Key]  # the outermost index or key that leads to each leaf


# The first ones, made once: a batch rarely has more leaves.
_PLACEHOLDERS = tuple(Placeholder(index) for index in range(64))


def take_apart(batch: Any) -> Parts:
    leaves: list[torch.Tensor] = []
    keys: list[Key] = []

    def leave(value: Any, key: Key) -> Any:
        if is_leaf(value):
            number = len(leaves)
            leaves.append(value)
            keys.append(key)
            return _PLACEHOLDERS[number] if number < len(_PLACEHOLDERS) else Placeholder(number)
        if moves_itself(value):
            return Movable(value)
        return value

    return Parts(rebuild(batch, leave, None), leaves, keys)


def put_together(template: Any, outputs: Sequence[torch.Tensor], move: Callable[[Any], Any]) -> Any:
    """The batch again, with ``outputs`` for its leaves and ``move(value)`` for what moves itself."""

    def fill(value: Any, _key: Key) -> Any:
        kind = type(value)
        if kind is Placeholder:
            return outputs[value.index]
        if kind is Movable:
            return move(value.value)
        return value

    return rebuild(template, fill, None)


def is_leaf(value: Any) -> bool:
    """Whether the bytes of ``value`` are all there is to it."""
    return (
        type(value) is torch.Tensor
        and value.is_cpu
        and value.layout is torch.strided
        and not value.requires_grad
        and not value.is_quantized
        and not value.is_conj()
        and not value.is_neg()
        and not value.is_nested
    )


@dataclasses.dataclass(frozen=True)
class Image:
    """How an image leaf lies in memory. ``shape`` is (N, C, H, W) whatever the order of the bytes."""

    shape: tuple[int, int, int, int]
    nhwc: bool
    pixels: torch.Tensor  # uint8, contiguous in the order that `nhwc` says


def find_images(parts: Parts, normalization: Normalization) -> dict[int, Image]:
    """The image leaves by leaf number. Raises TypeError or ValueError when there is none: silence
    would deliver raw bytes to a model that expects normalised floats."""
    images = {}
    for index, (leaf, key) in enumerate(zip(parts.leaves, parts.keys, strict=True)):
        if normalization.image_key is not None and key != normalization.image_key:
            continue
        image = as_image(leaf, normalization)
        if image is not None:
            images[index] = image
    if not images:
        raise _no_image(parts, normalization)
    return images


def as_image(leaf: torch.Tensor, normalization: Normalization) -> Image | None:
    if leaf.dtype is not torch.uint8 or leaf.dim() != 4:
        return None
    if normalization.allows_channels(leaf.shape[1]):
        nchw = leaf
    elif normalization.allows_channels(leaf.shape[3]):
        nchw = leaf.permute(0, 3, 1, 2)
    else:
        return None
    n, c, h, w = nchw.shape
    if nchw.is_contiguous():
        return Image((n, c, h, w), False, nchw)
    if nchw.is_contiguous(memory_format=torch.channels_last):
        return Image((n, c, h, w), True, nchw)
    # Any other stride order (a crop, a flip by negative step is impossible in torch) is copied once.
    return Image((n, c, h, w), False, nchw.contiguous())


def _no_image(parts: Parts, normalization: Normalization) -> Exception:
    described = [
        f"[{key!r}] {str(leaf.dtype).removeprefix('torch.')} {tuple(leaf.shape)}"
        for leaf, key in zip(parts.leaves, parts.keys, strict=True)
    ]
    channels = (
        "1 to 4 channels" if normalization.mean is None else f"{len(normalization.mean)} channels"
    )
    wanted = f"a uint8 tensor of 4 dimensions, NCHW or NHWC, with {channels}"
    where = "" if normalization.image_key is None else f" under {normalization.image_key!r}"
    text = (
        f"mean, std or dtype asks for normalised images, but the batch has no image{where}: "
        f"an image leaf is {wanted}; this batch holds {', '.join(described) or 'no tensor at all'}. "
    )
    if any(leaf.is_floating_point() and leaf.dim() == 4 for leaf in parts.leaves):
        return TypeError(
            text
            + "Let the dataset return uint8 (drop ToTensor and Normalize from its transform), or "
            "drop mean, std and dtype here."
        )
    if any(leaf.dtype is torch.uint8 and leaf.dim() == 4 for leaf in parts.leaves):
        return ValueError(text + "Give mean and std one value per channel of the images.")
    return TypeError(
        text + "Collate images into one uint8 batch, or drop mean, std and dtype here."
    )


def is_dense(leaf: torch.Tensor) -> bool:
    """Whether the elements fill their memory without gaps or overlap, in whatever order. Lets a
    channels_last or transposed tensor arrive with the strides it left with, as ``.to()`` does."""
    if leaf.is_contiguous():
        return True
    strides = leaf.stride()
    order = sorted(range(leaf.dim()), key=lambda d: (-strides[d], d))
    return leaf.permute(order).is_contiguous()


def cloned(batch: Any) -> Any:
    """The batch with copies of its tensors; what else is in it is shared."""

    def visit(value: Any, _key: Key) -> Any:
        return value.clone() if isinstance(value, torch.Tensor) else value

    return rebuild(batch, visit, None)


def tensors_in(batch: Any) -> Iterator[torch.Tensor]:
    """Every tensor of a batch, for ``record_stream``."""
    found: list[torch.Tensor] = []

    def visit(value: Any, _key: Key) -> Any:
        if isinstance(value, torch.Tensor):
            found.append(value)
        return value

    rebuild(batch, visit, None)
    return iter(found)
