"""Lays out the samples of a batch without a function of the user's: the argument ``batch``.

The samples are collated where a user's collate_fn would run. What differs in size from sample to sample
goes into one tensor there, a `Ragged`, which any delivery normalises and brings to the device as it does
with every other tensor. What the loop is to see is made of it only then, by `opened`.
"""

from __future__ import annotations

import copy
import dataclasses
import inspect
from collections.abc import (
    Callable,
    Iterable,
    Mapping,
    MutableMapping,
    MutableSequence,
    Sequence,
)
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.utils.data import default_collate

from fastloader._core.batch.tree import StoredMask, open_dataclass
from fastloader._core.machine import identity

LAYOUTS = ("stack", "list", "pad", "nested", "packed")


class Padded(NamedTuple):
    """Pictures of several sizes in one tensor, as ``batch="pad"`` gives them.

    Attributes: ``tensor``, of shape (N, C, H, W), in which each picture stands at the top left;
    ``mask``, torch.bool of shape (N, H, W), True where there is padding.
    """

    tensor: torch.Tensor
    mask: torch.Tensor


class Packed(NamedTuple):
    """Parts of several lengths, one after the other, as ``batch="packed"`` gives them.

    Attributes: ``values``, of shape (total, ...): the rows of all samples, or the pixels of all
    pictures, (total, C); ``cu_seqlens``, int32 of shape (N + 1,), where each sample begins and the last
    one ends; ``shapes``, int64 of shape (N, D), the shape of each sample's own tensor.
    """

    values: torch.Tensor
    cu_seqlens: torch.Tensor
    shapes: torch.Tensor


@dataclasses.dataclass
class Ragged:
    """A part of a batch whose samples differ in size, on its way to the loop.

    ``values``: pictures as (1, C, 1, total), of which every delivery takes bytes for a picture, or the
    rows of other parts, (total, ...). ``sizes``: the shape of each sample's tensor, in a tensor that
    goes to the device with it, and ``shapes``, in numbers. ``layout``: what is to be made of it.
    """

    values: torch.Tensor
    sizes: torch.Tensor
    shapes: tuple[tuple[int, ...], ...]
    pictures: bool
    layout: Layout

    def to(self, *args: Any, **kwargs: Any) -> Ragged:
        """Moves it as a batch does that moves its own parts."""
        return dataclasses.replace(
            self, values=self.values.to(*args, **kwargs), sizes=self.sizes.to(*args, **kwargs)
        )

    def pin_memory(self) -> Ragged:
        return dataclasses.replace(
            self, values=self.values.pin_memory(), sizes=self.sizes.pin_memory()
        )


@dataclasses.dataclass(frozen=True)
class Parts:
    """What an `EncodedImage` and its companions have become, on their way to a layout, which lays each
    of them out. ``made``: a dict, or a tuple. ``ignore``: with what each mask among them is padded, by
    its key or place."""

    made: Any
    ignore: Mapping[Any, int]


open_dataclass(Ragged)  # its `to` is for batches that move themselves


@dataclasses.dataclass(frozen=True)
class Layout:
    """Collates samples as the loader's ``batch`` says. It takes the place of its collate_fn.

    Args:
        kind: one of `LAYOUTS`, but for "stack", which is default_collate.
        pad_to, pad_value: the arguments of the loader.
        image_key: the keys of the loader's; None takes every picture.
        normalized: how many channels pictures have of which the delivery makes floats; empty if it makes
            none.
        plain: whether the loop gets batches as they are collated, with nothing done on the way.
    """

    kind: str
    pad_to: int
    pad_value: float
    image_key: tuple[int | str, ...] | None
    normalized: tuple[int, ...]
    plain: bool

    @property
    def joins(self) -> bool:
        """Whether pictures go into one tensor. Else the loop gets those of the samples."""
        return not (self.plain and self.kind == "list")

    def __str__(self) -> str:
        return f"batch={self.kind!r}"

    def __call__(self, samples: list[Any]) -> Any:
        batch = transposed(samples, self._collated)
        if self.kind == "pad":
            self._check_pictures(batch, samples)
        return batch

    def _check_pictures(self, batch: Any, samples: list[Any]) -> None:
        """Checks that there are pictures to pad, where they are asked for.

        Raises:
            ValueError: if there is nothing to pad, or nothing under a key of ``image_key``.
        """
        pads = _holds_ragged(batch) or any(map(_are_parts, _of_top(batch)))
        where = "" if pads else " to pad"
        for key in self.image_key or ():
            try:
                found = type(batch[key]) is Ragged or _are_parts(batch[key])
            except (TypeError, LookupError):
                found = False
            if not found:
                where = f" under image_key={key!r} to pad"
                break
        if where:
            raise ValueError(
                f"{self}: there is no picture{where}. A picture is a tensor (C, H, W) of bytes or "
                f"floats with one or three channels; a sample holds {_described(samples[0])}"
            )

    def _collated(self, values: list[Any], key: Any) -> Any:
        """Collates what stands in one place of every sample."""
        if any(type(each) is Parts for each in values):
            return self._parts(values, key)
        if all(isinstance(each, torch.Tensor | np.ndarray) for each in values):
            if not any(isinstance(each, np.ndarray) and _is_text(each) for each in values):
                return self._tensors(list(map(_as_tensor, values)), key)
        if all(isinstance(each, Mapping | list | tuple) for each in values):
            return values
        return default_collate(values)

    def _parts(self, values: list[Parts], key: Any) -> Any:
        first = values[0]
        form = _form_of(first)
        unlike = next((each for each in values if _form_of(each) != form), None)
        if unlike is not None:
            where = "" if key is None else f" under {key!r}"
            raise TypeError(
                f"{self}: the EncodedImages{where} have several kinds of companions: "
                f"{_kinds(first)}, and {_kinds(unlike)}. Give each the same keys and kinds in with_"
            )
        named = isinstance(first.made, Mapping)
        columns = {}
        for part in first.made if named else range(len(first.made)):
            column = [each.made[part] for each in values]
            if part not in first.ignore:
                # What stands in no container has no key but those that come out.
                columns[part] = self._collated(column, part if key is None else key)
            elif self.kind == "pad":
                columns[part] = self._padded_masks(column, [each.ignore[part] for each in values])
            else:
                columns[part] = column
        return columns if named else list(columns.values())

    def padded_size(self, shapes: Sequence[tuple[int, ...]]) -> tuple[int, int]:
        """Returns the (height, width) in which tensors of the shapes (..., H, W) find room."""
        height, width = (
            -(-max(shape[side] for shape in shapes) // self.pad_to) * self.pad_to
            for side in (-2, -1)
        )
        return height, width

    def _padded_masks(
        self, masks: list[torch.Tensor | StoredMask], ignore: list[int]
    ) -> torch.Tensor | StoredMask:
        """Pads masks of shape (H, W) on the right and below, each by its own number."""
        stored = [each for each in masks if type(each) is StoredMask]
        alike = len({(each.dtype, each.bits.dtype) for each in stored}) == 1
        if alike and len(stored) == len(masks):
            return StoredMask(self._padded([each.bits for each in stored], ignore), stored[0].dtype)
        finished = [each.finished() if isinstance(each, StoredMask) else each for each in masks]
        return self._padded(finished, ignore)

    def _padded(self, masks: list[torch.Tensor], ignore: list[int]) -> torch.Tensor:
        height, width = self.padded_size([tuple(each.shape) for each in masks])
        made = empty_elsewhere((len(masks), height, width), masks[0].dtype)
        for place, mask, number in zip(made, masks, ignore, strict=True):
            # As the index itself: 255 is -1 in int8.
            padding = torch.tensor(number, device="cpu").to(mask.dtype)
            place[: mask.shape[0], : mask.shape[1]] = mask
            place[: mask.shape[0], mask.shape[1] :] = padding
            place[mask.shape[0] :] = padding
        return made

    def _tensors(self, values: list[torch.Tensor], key: Any) -> Any:
        if not self.joins:
            return values
        named = self.image_key is None or key in self.image_key
        pictures = named and all(map(_is_picture, values))
        if pictures and self._are_alike(values, key):
            return self._ragged(values, pictures=True)
        if self.kind in ("list", "pad"):
            return values
        if all(each.dim() == 0 for each in values):
            return default_collate(values)
        if any(each.dim() == 0 or each.shape[1:] != values[0].shape[1:] for each in values):
            raise ValueError(
                f"{self}: the tensors under {key!r} differ in more than their first dimension: "
                f"{_shapes(values)}. Give batch='list', or make them of one size"
            )
        if len({each.dtype for each in values}) > 1:
            kinds = ", ".join(sorted({str(each.dtype) for each in values}))
            raise TypeError(f"{self}: the tensors under {key!r} have several dtypes: {kinds}")
        return self._ragged(values, pictures=False)

    def _are_alike(self, pictures: list[torch.Tensor], key: Any) -> bool:
        """Returns whether pictures go into one tensor. Raises ValueError if they have to, and cannot."""
        if self.kind == "nested":
            raise ValueError(
                f"{self}: the pictures under {key!r} are ragged in two dimensions, height and width, "
                "and a nested tensor has one. Give batch='pad' or batch='packed'"
            )
        stay = pictures[0].dtype is torch.uint8 and pictures[0].shape[0] not in self.normalized
        if self.kind == "pad" and stay and self.pad_value not in range(256):
            raise ValueError(f"pad_value={self.pad_value}: the pictures under {key!r} are bytes")
        forms = {(each.dtype, each.shape[0]) for each in pictures}
        if len(forms) == 1:
            return True
        if self.kind == "list" and not self.normalized:
            return False  # each as it is
        found = " and ".join(
            f"{str(dtype).removeprefix('torch.')} of {channels} channels"
            for dtype, channels in sorted(forms, key=str)
        )
        raise ValueError(
            f"{self}: the pictures under {key!r} are {found}. Let the transform make one kind of them, "
            "as convert('RGB') does, or name the picture by image_key"
        )

    def _ragged(self, values: list[torch.Tensor], pictures: bool) -> Ragged:
        shapes = tuple(tuple(each.shape) for each in values)
        joined = _joined_pixels(values) if pictures else torch.cat(values)
        total = joined.shape[-1 if pictures else 0]
        if self.kind == "packed" and total >= 1 << 31:
            raise ValueError(
                f"{self}: {total} rows or pixels; cu_seqlens, int32, counts fewer than 2^31"
            )
        return Ragged(joined, torch.tensor(shapes, device="cpu"), shapes, pictures, self)


def _form_of(value: Any) -> Any:
    """Returns the form of `Parts`: their keys, or how many they are, and which are masks."""
    if type(value) is not Parts:
        return None
    made = value.made.keys() if isinstance(value.made, Mapping) else len(value.made)
    return made, value.ignore.keys()


def _kinds(value: Any) -> str:
    """Says in words what follows a picture."""
    if type(value) is not Parts:
        return "none"
    made = value.made if isinstance(value.made, Mapping) else range(len(value.made))
    return " and ".join(
        f"a {'mask' if key in value.ignore else 'picture'} {key!r}"
        for key in list(made)[1:]  # the first one is what they follow
    )


def _as_tensor(value: Any) -> torch.Tensor:
    # A tensor stays where it is, whatever the default device is.
    return value if isinstance(value, torch.Tensor) else torch.as_tensor(value, device="cpu")


def _described(sample: Any) -> str:
    parts = []
    sample = sample.made if type(sample) is Parts else sample

    def note(value: Any, key: Any) -> Any:
        value = value.made if type(value) is Parts else value
        shape = getattr(value, "shape", None)
        of = f"{value.dtype} {tuple(shape)}" if shape is not None else type(value).__name__
        parts.append(f"[{key!r}] {of}")
        return value

    transposed([sample], lambda values, key: note(values[0], key))
    return ", ".join(parts)


def _holds_ragged(batch: Any) -> bool:
    inside = batch.values() if isinstance(batch, Mapping) else batch
    return type(batch) is Ragged or (
        isinstance(inside, Iterable) and any(type(each) is Ragged for each in inside)
    )


def _is_text(array: Any) -> bool:
    return array.dtype.kind in "SU"


def _shapes(values: Sequence[torch.Tensor]) -> str:
    return ", ".join(str(shape) for shape in dict.fromkeys(tuple(each.shape) for each in values))


# What stands for a picture besides plain tensors.
_IMAGE = ("torchvision.tv_tensors._image", "Image")


def _is_picture(value: torch.Tensor) -> bool:
    """Returns whether a sample's tensor is a picture: (C, H, W) of bytes or floats, of one or three
    channels, and not of a kind of its own, such as tv_tensors.Mask."""
    return (
        value.dim() == 3
        and value.shape[0] in (1, 3)
        and (value.dtype is torch.uint8 or value.is_floating_point())
        and (type(value) is torch.Tensor or identity.is_a(value, _IMAGE))
        and value.layout is torch.strided
        and value.is_cpu
        and not value.requires_grad
    )


def empty_elsewhere(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    return torch.empty(shape, dtype=dtype, device="cpu")


# What makes the memory of pictures that are joined: a worker process that has slots sets its own.
empty = empty_elsewhere


def _plain(picture: torch.Tensor) -> torch.Tensor:
    return picture.as_subclass(torch.Tensor)


def _joined_pixels(pictures: list[torch.Tensor]) -> torch.Tensor:
    """Puts pictures of one type and number of channels into one of shape (1, C, 1, total): planes behind
    planes or, if all have theirs so, pixels behind pixels."""
    channels = pictures[0].shape[0]
    counts = [each.shape[1] * each.shape[2] for each in pictures]
    by_pixel = channels > 1 and all(
        each.permute(1, 2, 0).is_contiguous() and not each.is_contiguous() for each in pictures
    )
    if by_pixel:
        pixels = [_plain(each.permute(1, 2, 0)).view(-1, channels) for each in pictures]
        rows = empty((sum(counts), channels), pixels[0].dtype)
        return torch.cat(pixels, out=rows).T.view(1, channels, 1, -1)
    joined = empty((1, channels, 1, sum(counts)), pictures[0].dtype)
    planes = joined.view(channels, -1)
    begin = 0
    for picture, count in zip(pictures, counts, strict=True):
        planes[:, begin : begin + count] = _plain(picture).reshape(channels, count)
        begin += count
    return joined


def transposed(samples: list[Any], collate: Callable[[list[Any], Any], Any]) -> Any:
    """Transposes the outermost container of samples as default_collate does it, with ``collate(values,
    key)`` in each place."""
    first = samples[0]
    kind: Any = type(first)
    if isinstance(first, Mapping):
        made = {key: collate([each[key] for each in samples], key) for key in first}
        try:
            if isinstance(first, MutableMapping):  # it may have more than its items
                clone = copy.copy(first)
                clone.update(made)
                return clone
            return kind(made)
        except TypeError:
            return made
    if not isinstance(first, Sequence) or isinstance(first, str | bytes):
        return collate(samples, None)
    if any(len(each) != len(first) for each in samples):
        raise RuntimeError("each element in list of batch should be of equal size")
    columns = [
        collate(list(column), place) for place, column in enumerate(zip(*samples, strict=True))
    ]
    if isinstance(first, tuple):
        return kind(*columns) if hasattr(first, "_fields") else columns
    try:
        if isinstance(first, MutableSequence):
            sequence = copy.copy(first)
            for place, column in enumerate(columns):
                sequence[place] = column
            return sequence
        return kind(columns)
    except TypeError:
        return columns


# ---- What the loop sees.


def opened(batch: Any) -> Any:
    """Makes of each `Ragged` in a delivered batch what its layout says."""
    if not isinstance(batch, Mapping | Sequence) or isinstance(batch, str | bytes):
        return _opened(batch)
    if not _holds_ragged(batch) and not any(map(_are_parts, _of_top(batch))):
        return batch
    kind: Any = type(batch)
    if isinstance(batch, Mapping):
        made = {
            key: _opened(each)
            for key, each in batch.items()
            if type(each) is Ragged or _are_parts(each)
        }
        if not isinstance(batch, MutableMapping):
            return kind({**batch, **made})
        for key, each in made.items():  # not by update(): a Counter adds to what is there
            batch[key] = each
        return batch
    columns = [_opened(each) for each in batch]
    if hasattr(batch, "_fields"):
        return kind(*columns)
    if not isinstance(batch, MutableSequence):
        return kind(columns)
    for place, column in enumerate(columns):
        batch[place] = column
    return batch


def _of_top(batch: Any) -> Iterable[Any]:
    return batch.values() if isinstance(batch, Mapping) else batch


def _opened(part: Any) -> Any:
    """Opens what stands in one place of a batch: a `Ragged`, or what was made of `Parts`."""
    if type(part) is Ragged:
        return _MADE[part.layout.kind](part)
    return opened(part) if _are_parts(part) else part


def _are_parts(value: Any) -> bool:
    return type(value) in (dict, list) and _holds_ragged(value)


def _views(part: Ragged) -> list[torch.Tensor]:
    """Returns the pictures, of shape (C, H, W), as views of one tensor."""
    values = part.values[0, :, 0]  # (C, total)
    ends = np.cumsum([height * width for _, height, width in part.shapes]).tolist()
    return [
        values[:, end - height * width : end].unflatten(1, (height, width))
        for end, (_, height, width) in zip(ends, part.shapes, strict=True)
    ]


def _pad(part: Ragged) -> Padded:
    views, layout = _views(part), part.layout
    height, width = layout.padded_size(part.shapes)
    values = part.values
    # As the pictures lie: a delivery with channels_last has made it so.
    last = values.shape[1] > 1 and values.stride(1) == 1
    tensor = torch.full(
        (len(views), values.shape[1], height, width),
        layout.pad_value,
        dtype=values.dtype,
        device=values.device,
    )
    if last:
        tensor = tensor.contiguous(memory_format=torch.channels_last)
    for place, view in zip(tensor, views, strict=True):
        place[:, : view.shape[1], : view.shape[2]] = view
    rows = torch.arange(height, device=values.device)
    columns = torch.arange(width, device=values.device)
    below = rows[None, :, None] >= part.sizes[:, 1, None, None]
    beside = columns[None, None, :] >= part.sizes[:, 2, None, None]
    return Padded(tensor, below | beside)


def _ends(part: Ragged) -> torch.Tensor:
    lengths = part.sizes[:, 1] * part.sizes[:, 2] if part.pictures else part.sizes[:, 0]
    return torch.nn.functional.pad(lengths.cumsum(0), (1, 0))


def _nest(part: Ragged) -> torch.Tensor:
    make = torch.nested.nested_tensor_from_jagged
    lengths = [shape[0] for shape in part.shapes]
    known: dict[str, Any] = {}
    if "min_seqlen" in inspect.signature(make).parameters:  # torch 2.5 and newer
        # Else they would be read from the device, which waits for it.
        known = {"min_seqlen": min(lengths), "max_seqlen": max(lengths)}
    return make(part.values, _ends(part), **known)


def _pack(part: Ragged) -> Packed:
    values = part.values[0, :, 0].T if part.pictures else part.values
    return Packed(values, _ends(part).to(torch.int32), part.sizes)


_MADE: dict[str, Callable[[Ragged], Any]] = {
    "list": _views,
    "pad": _pad,
    "nested": _nest,
    "packed": _pack,
}
