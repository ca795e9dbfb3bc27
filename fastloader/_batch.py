"""Taking a batch of any nesting apart into tensors, and putting it together again.

The containers that are opened: mappings, namedtuples, tuples, lists (and what derives from them), and
dataclasses. A *leaf* is a plain dense CPU tensor; everything else travels as it is.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch

from fastloader._normalization import Normalization

Key = int | str | None


@dataclasses.dataclass(frozen=True)
class Placeholder:
    """Stands where leaf number ``index`` stood."""

    index: int


@dataclasses.dataclass(frozen=True)
class Movable:
    """An object with a ``to`` of its own: a tensor subclass, a sparse tensor, a PackedSequence."""

    value: Any


@dataclasses.dataclass
class Parts:
    """A batch taken apart: ``template`` is the batch with Placeholders and Movables in it."""

    template: Any
    leaves: list[torch.Tensor]
    keys: list[Key]  # the outermost index or key that leads to each leaf


def take_apart(batch: Any) -> Parts:
    leaves: list[torch.Tensor] = []
    keys: list[Key] = []

    def leave(value: Any, key: Key) -> Any:
        if is_leaf(value):
            leaves.append(value)
            keys.append(key)
            return Placeholder(len(leaves) - 1)
        if _moves_itself(value):
            return Movable(value)
        return value

    return Parts(_rebuild(batch, leave, None), leaves, keys)


def put_together(template: Any, outputs: Sequence[torch.Tensor], move: Callable[[Any], Any]) -> Any:
    """The batch again, with ``outputs`` for its leaves and ``move(value)`` for what moves itself."""

    def fill(value: Any, _key: Key) -> Any:
        if type(value) is Placeholder:
            return outputs[value.index]
        if type(value) is Movable:
            return move(value.value)
        return value

    return _rebuild(template, fill, None)


def is_leaf(value: Any) -> bool:
    """Whether the bytes of ``value`` are all there is to it."""
    return (
        type(value) is torch.Tensor
        and value.layout is torch.strided
        and value.device.type == "cpu"
        and not value.requires_grad
        and not value.is_quantized
        and not value.is_conj()
        and not value.is_neg()
        and not value.is_nested
    )


def _moves_itself(value: Any) -> bool:
    return callable(getattr(value, "to", None)) and not isinstance(value, type)


def _rebuild(value: Any, visit: Callable[[Any, Key], Any], key: Key) -> Any:
    """A copy of the containers with ``visit(leaf, outermost key)`` for everything else."""
    kind = type(value)
    if kind is torch.Tensor or kind is Placeholder or kind is Movable:
        return visit(value, key)
    if value is None or isinstance(value, str | bytes | int | float):
        return value
    # Before the containers: a PackedSequence is a namedtuple, a BatchEncoding a mapping, and both
    # know better than we how to move.
    if _moves_itself(value):
        return visit(value, key)

    def inner(each: Any, own: Key) -> Any:
        return _rebuild(each, visit, own if key is None else key)

    if kind is dict:
        return {own: inner(each, own) for own, each in value.items()}
    if kind is list or kind is tuple:
        return kind([inner(each, i) for i, each in enumerate(value)])
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return kind(*(inner(each, i) for i, each in enumerate(value)))
    if isinstance(value, Mapping):
        return _rebuild_mapping(value, {own: inner(each, own) for own, each in value.items()})
    if isinstance(value, list | tuple):
        return _rebuild_sequence(value, [inner(each, i) for i, each in enumerate(value)])
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        filled = copy.copy(value)
        for field in dataclasses.fields(value):
            # object.__setattr__ also serves frozen dataclasses, and runs no user code.
            object.__setattr__(filled, field.name, inner(getattr(value, field.name), field.name))
        return filled
    return visit(value, key)


def _rebuild_mapping(value: Any, items: dict[Any, Any]) -> Any:
    if isinstance(value, dict) or hasattr(value, "__copy__"):
        # Keeps what the class holds besides its items, such as defaultdict's factory.
        clone = copy.copy(value)
        clone.update(items)
        return clone
    # A mapping of the user's own may share its items with its shallow copy, and updating that one
    # would change the batch that the dataset may still hold.
    try:
        return type(value)(items)
    except TypeError:  # no such constructor: a dict, as torch's pin_memory gives
        return items


def _rebuild_sequence(value: Any, items: list[Any]) -> Any:
    if isinstance(value, list):
        clone = copy.copy(value)
        clone[:] = items
        return clone
    return type(value)(items)


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
        image = _as_image(leaf, normalization)
        if image is not None:
            images[index] = image
    if not images:
        raise _no_image(parts, normalization)
    return images


def _as_image(leaf: torch.Tensor, normalization: Normalization) -> Image | None:
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

    return _rebuild(batch, visit, None)


def tensors_in(batch: Any) -> Iterator[torch.Tensor]:
    """Every tensor of a batch, for ``record_stream``."""
    found: list[torch.Tensor] = []

    def visit(value: Any, _key: Key) -> Any:
        if isinstance(value, torch.Tensor):
            found.append(value)
        return value

    _rebuild(batch, visit, None)
    return iter(found)
