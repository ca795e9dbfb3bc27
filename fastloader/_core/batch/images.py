"""The image leaves of a batch, and how they lie in memory."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

import torch

from fastloader._core.batch.tree import BatchTree
from fastloader.transforms._normalization import Normalization


@dataclasses.dataclass(frozen=True)
class Image:
    """How an image leaf lies in memory. ``shape`` is (N, C, H, W), whatever the order of the bytes."""

    shape: tuple[int, int, int, int]
    nhwc: bool
    pixels: torch.Tensor  # uint8, contiguous in the order that `nhwc` says


def find_images(tree: BatchTree, normalization: Normalization) -> dict[int, Image]:
    """Finds the image leaves, by leaf number. Where the samples come normalised, their floats get
    the dtype and the memory format that are asked for, in the tree, and are not among them.

    Raises:
        TypeError, ValueError: if there is no image leaf. Silence would deliver raw bytes to a model that
            expects normalised floats.
    """
    images: dict[int, Image] = {}
    done = False
    for index, (leaf, key) in enumerate(zip(tree.leaves, tree.keys, strict=True)):
        if normalization.image_key is not None and key != normalization.image_key:
            continue
        if normalization.done and _is_normalized(leaf, normalization):
            tree.leaves[index], done = normalization.laid_out(leaf), True
            continue
        image = as_image(leaf, normalization)
        if image is not None:
            images[index] = image
    if not images and not done:
        raise _no_image(tree, normalization)
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
    # Any other order of strides, such as a crop's, is copied once.
    return Image((n, c, h, w), False, nchw.contiguous())


def _is_normalized(leaf: torch.Tensor, normalization: Normalization) -> bool:
    """Whether ``leaf`` holds pictures that the dataset's own transform has normalised."""
    return (
        leaf.is_floating_point()
        and leaf.dim() == 4
        and normalization.allows_channels(leaf.shape[1])
    )


def described(leaves: Iterable[tuple[Any, torch.Tensor]]) -> str:
    """What a batch holds, for a message: its tensors with their keys."""
    each = [
        f"[{key!r}] {str(leaf.dtype).removeprefix('torch.')} {tuple(leaf.shape)}"
        for key, leaf in leaves
    ]
    return ", ".join(each) or "no tensor at all"


def _no_image(tree: BatchTree, normalization: Normalization) -> Exception:
    leaves = list(zip(tree.keys, tree.leaves, strict=True))
    channels = (
        "1 to 4 channels" if normalization.mean is None else f"{len(normalization.mean)} channels"
    )
    wanted = f"a uint8 tensor of 4 dimensions, NCHW or NHWC, with {channels}"
    asked = normalization.image_key
    where = "" if asked is None else f" under {asked!r}"
    text = (
        f"mean, std or dtype asks for normalised images, but the batch has no image{where}: "
        f"an image leaf is {wanted}; this batch holds {described(leaves)}. "
    )
    # Those under the key that was asked for are no images, or there would be no error.
    elsewhere = [repr(key) for key, leaf in leaves if as_image(leaf, normalization) is not None]
    if elsewhere:
        return ValueError(f"{text}Give image_key={' or '.join(elsewhere)}, or leave it out.")
    looked_at = [leaf for key, leaf in leaves if asked is None or key == asked]
    if any(leaf.is_floating_point() and leaf.dim() == 4 for leaf in looked_at):
        return TypeError(
            text
            + "Let the dataset return uint8 (drop ToTensor and Normalize from its transform), or "
            "drop mean, std and dtype here."
        )
    if any(leaf.dtype is torch.uint8 and leaf.dim() == 4 for leaf in looked_at):
        return ValueError(text + "Give mean and std one value per channel of the images.")
    return TypeError(
        text + "Collate images into one uint8 batch, or drop mean, std and dtype here."
    )
