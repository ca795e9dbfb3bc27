"""The companions of an `EncodedImage`: pictures and masks to which everything is done that is drawn for
it."""

from __future__ import annotations

import functools
import operator
import os
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from typing import Any

import numpy as np
import torch
from torch.utils.data._utils.collate import default_collate_fn_map

from fastloader.datasets.picture_source import PictureSource
from fastloader.datasets.put_off import PutOff, collate_taken, open_in_trees
from fastloader.transforms._arguments import interpolation_name
from fastloader.transforms._reader.torchvision import is_v2
from fastloader.transforms._recipe.operations import (
    RESAMPLINGS,
    TORCH_NEAREST,
    Following,
    Size,
)


class _Follower:
    """Lies in one file, and follows an `EncodedImage`."""

    __slots__ = ()

    _source: PictureSource

    @property
    def encoded(self) -> PictureSource:
        """The source of the file, as the loader sees it."""
        return self._source

    @property
    def sources(self) -> tuple[PictureSource, ...]:
        """The same, as of an `EncodedClip`, which has several."""
        return (self._source,)


class Companion(_Follower):
    """A picture that follows an `EncodedImage`, in its ``with_``. It goes through the same transform
    with the same draws: geometry and colour. ::

        EncodedImage(low, transform, with_={"high": Companion(high, scale=4)})

    Args:
        source: A path (str or os.PathLike), or the encoded bytes, as `EncodedImage` takes them.
        scale: How many times larger each edge of the companion is than the picture's. Boxes, sizes and
            paddings are multiplied by it. 1 (default): both have one size.
        interpolation: The filter of its resizes and warps: "nearest", "box", "bilinear", "hamming",
            "bicubic" or "lanczos", also as torchvision's InterpolationMode. None (default) takes that of
            the transform.

    Raises:
        TypeError: for a source of another type, or a ``scale`` that is no whole number.
        ValueError: for a ``scale`` below 1, or an interpolation that there is not.
    """

    __slots__ = ("_source", "interpolation", "scale")

    dtype = None  # the transform says it

    def __init__(
        self,
        source: str | os.PathLike[str] | bytes | bytearray | memoryview | Any,
        scale: int = 1,
        interpolation: Any = None,
    ) -> None:
        self._source = source if isinstance(source, PictureSource) else PictureSource(source)
        self.scale = _whole("scale", scale, 1, _MOST_SCALE)
        self.interpolation = None if interpolation is None else interpolation_name(interpolation)

    @property
    def following(self) -> Following:
        resampling = None if self.interpolation is None else RESAMPLINGS.index(self.interpolation)
        return Following(self.scale, resampling)

    def opened(self, why: str) -> Any:
        """Opens it for torchvision's v2: as a Pillow picture. ``why``: why it is not made natively.

        Raises:
            TypeError: if v2 has no form for it.
        """
        if self.scale != 1 or self.interpolation is not None:
            raise TypeError(
                f"{self}: scale and interpolation are for transforms that are native to the end, and "
                f"this one is not: {why}"
            )
        return self._source.open_rgb()

    def __reduce__(self) -> Any:
        return Companion, (self._source, self.scale, self.interpolation)

    def __repr__(self) -> str:
        return f"Companion({self._source.name!r}, {self.scale}, {self.interpolation!r})"


class EncodedMask(_Follower, PutOff):
    """A mask that follows an `EncodedImage`, in its ``with_``: a PNG of a palette or of grey values,
    which are indices of classes or instances. They are moved as the picture's pixels are, by
    torchvision's v2 for masks: a resize takes the nearest one (which is another than Pillow's), what a
    padding or a crop adds has the transform's fill, and colours and erasing leave them alone. It becomes
    a tensor of shape (H, W), in a batch (N, H, W). ::

        EncodedImage(jpg, transform, with_={"mask": EncodedMask(png, dtype=torch.int64)})

    One that stands in a sample by itself becomes that tensor, too, with nothing moved, under any loader
    and any collate_fn: what `decode` makes. Who looks into one gets it, as with an `EncodedImage`.

    Args:
        source: A path (str or os.PathLike), or the encoded bytes, as `EncodedImage` takes them. Modes
            1, L, P and I;16 of Pillow are masks. PNGs are decoded natively, other files by Pillow.
        classes: What stands for each index in the tensor: a sequence whose places are indices, or a dict
            {index: class}; an index that it lacks becomes ``ignore``. None (default) leaves the indices.
            So ``{0: 255, **{i: i - 1 for i in range(1, 151)}}`` is ADE20K's reduce_zero_label.
        ignore: The class of the indices that ``classes`` lacks. ``batch="pad"`` pads masks with it.
            Default 255.
        dtype: The type of the tensor, torch.int64 for a loss of torch; None (default) is uint8, or
            uint16 with ``bits=16``. A loader that delivers to a device makes it there: the mask crosses
            as it is stored. A ``collate_fn`` of your own gets it made.
        bits: How many bits the file's indices have: 8 (default) or 16. A larger index is an error.

    Raises:
        TypeError: for a source of another type, or classes that are no whole numbers.
        ValueError: for ``bits`` that are not 8 or 16, and for an index, a class or an ``ignore`` that
            has more of them.
    """

    __slots__ = ("_source", "bits", "classes", "dtype", "ignore")

    scale = 1  # torchvision moves masks of the picture's own size

    def __init__(
        self,
        source: str | os.PathLike[str] | bytes | bytearray | memoryview | Any,
        classes: Mapping[int, int] | Sequence[int] | None = None,
        ignore: int = 255,
        dtype: torch.dtype | None = None,
        bits: int = 8,
    ) -> None:
        if not isinstance(source, PictureSource):
            source = PictureSource(source, indices=True)
        self._source = source
        if type(bits) is not int or bits not in (8, 16):
            raise ValueError(f"bits={bits!r}: the indices of a mask have 8 or 16")
        if dtype is not None and not isinstance(dtype, torch.dtype):
            raise TypeError(f"dtype={dtype!r} is no torch.dtype")
        self.bits = bits
        self.ignore = _whole("ignore", ignore, 0, (1 << bits) - 1)
        self.classes: _Table | None = None
        if isinstance(classes, _Table):
            self.classes = classes
        elif classes is not None:
            self.classes = _table_of(classes, self.ignore, bits)
        self.dtype = dtype
        self.kept = None
        PutOff.any_made = True

    @property
    def following(self) -> Following:
        classes = () if self.classes is None else self.classes
        return Following(1, TORCH_NEAREST, True, self.bits == 16, classes)

    def opened(self, _why: str) -> Any:
        """Opens it for torchvision's v2: as a tv_tensors.Mask of (1, H, W)."""
        from torchvision import tv_tensors

        return tv_tensors.Mask(self._indices()[None])

    def decode(self) -> torch.Tensor:
        """Decodes the mask by itself, as it lies in its file: of shape (H, W), with its classes, in its
        dtype.

        Raises:
            OSError: for a file that cannot be read or decoded.
            ValueError: for one that is no mask, or has an index of more bits.
        """
        return self.named(self._indices()[None])

    def _indices(self) -> torch.Tensor:
        carried = np.asarray(self._source.open_rgb())
        indices = carried[..., 0].astype(np.int32) | carried[..., 1].astype(np.int32) << 8
        return torch.from_numpy(indices)

    def named(self, indices: torch.Tensor) -> torch.Tensor:
        """Returns the classes of indices that came out of v2, which are of shape (1, H, W).

        Raises:
            ValueError: for an index of more bits.
        """
        plain = indices.as_subclass(torch.Tensor)
        if plain.numel() and int(plain.max()) >> self.bits:
            raise ValueError(
                f"{self._source.name}: a mask with the index {int(plain.max())} has more than 8 "
                "bits: give EncodedMask(..., bits=16)"
            )
        if self.classes is not None:
            plain = torch.tensor(self.classes, dtype=torch.int32)[plain.long()]
        return finish_mask(plain.to(torch.uint16 if self.bits == 16 else torch.uint8), self.dtype)

    def __reduce__(self) -> Any:
        args = self._source, self.classes, self.ignore, self.dtype, self.bits
        return EncodedMask, args, *self._state()

    def __repr__(self) -> str:
        return f"EncodedMask({self._source.name!r}, bits={self.bits}, dtype={self.dtype})"


default_collate_fn_map[EncodedMask] = collate_taken  # one that follows no picture
open_in_trees(EncodedMask)


class _Table(tuple[int, ...]):
    """A complete table of classes, which was checked. It is a key of what is made once for all masks."""

    _hash: int | None = None

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = super().__hash__()
        return self._hash


def _table_of(classes: Mapping[int, int] | Sequence[int], ignore: int, bits: int) -> _Table:
    """Returns the table of what `EncodedMask` takes. A dataset gives the same for each sample."""
    if isinstance(classes, str | bytes | Set) or not isinstance(classes, Iterable):
        kind = type(classes).__qualname__
        raise TypeError(f"classes is a sequence or a dict of whole numbers, not a {kind}")
    known = tuple(classes.items() if isinstance(classes, Mapping) else enumerate(classes))
    try:
        return _kept_table(known, ignore, bits)
    except TypeError:  # what is no number may have no hash
        return _make_table(known, ignore, bits)


@functools.lru_cache(64)
def _kept_table(known: tuple[Any, ...], ignore: int, bits: int) -> _Table:
    return _make_table(known, ignore, bits)


def _make_table(known: tuple[Any, ...], ignore: int, bits: int) -> _Table:
    count = 1 << bits
    table = [ignore] * count
    for index, each in known:
        place = _whole("an index of classes", index, 0, count - 1)
        table[place] = _whole(f"classes[{index}]", each, 0, count - 1)
    return _Table(table)


_MOST_SCALE = 64


def _whole(name: str, value: Any, least: int, most: int) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name}={value!r}: a whole number is needed") from None
    if not least <= number <= most:
        raise ValueError(f"{name}={value!r}: a whole number from {least} to {most} is needed")
    return number


def as_companions(
    given: Mapping[Any, Any] | Sequence[Any],
) -> tuple[dict[Any, Companion | EncodedMask], bool]:
    """Returns the companions that ``with_`` gives, by key or by place from 1 on, and whether by key."""
    named = isinstance(given, Mapping)
    if named and "image" in given:
        raise ValueError("with_ has the key 'image', which is that of the picture that they follow")
    if not named and (isinstance(given, str | bytes) or not isinstance(given, Sequence)):
        raise TypeError(
            f"with_ is a dict or a sequence of companions, not a {type(given).__qualname__}"
        )
    items: Any = given.items() if isinstance(given, Mapping) else enumerate(given, 1)
    return {key: _companion(each) for key, each in items}, named


def finish_mask(indices: torch.Tensor, dtype: torch.dtype | None) -> torch.Tensor:
    """Makes what comes out for masks of the indices of shape (..., 1, H, W)."""
    made = indices.squeeze(-3)
    return made if dtype is None else made.to(dtype)


def check_size(name: str, key: Any, scale: int, lead: Size, own: Size) -> None:
    """Checks the (height, width) of a companion's file against that of the picture that it follows.

    Raises:
        ValueError: if the two do not fit.
    """
    wanted = lead[0] * scale, lead[1] * scale
    if own != wanted:
        times = "" if scale == 1 else f" and scale={scale}"
        raise ValueError(
            f"{name}, the companion {key!r}, has {own[1]}x{own[0]} pixels, and the picture of "
            f"{lead[1]}x{lead[0]}{times} wants {wanted[1]}x{wanted[0]}"
        )


def unlike_frame(name: str) -> ValueError:
    """Makes the error of a frame, by its name, that has not the size of the first one of its clip."""
    return ValueError(f"{name}: a frame of another size than the first of its clip")


def _companion(value: Any) -> Companion | EncodedMask:
    return value if isinstance(value, Companion | EncodedMask) else Companion(value)


def make_jointly(
    source: PictureSource,
    transform: Callable[[Any], Any] | None,
    with_: Mapping[Any, Companion | EncodedMask],
    why: str,
    clip: bool = False,
) -> list[Any]:
    """Makes a picture and its companions by one call of a transform of torchvision's v2, which draws
    once for all of them.

    Args:
        why: why they are not made natively.
        clip: whether they are frames, and messages say so.

    Raises:
        TypeError: for another transform, which knows no companions.
    """
    if not is_v2(transform):
        kind = type(transform)
        what = "an EncodedClip without shared=False" if clip else "with_"
        raise TypeError(
            f"{what} needs a transform that is native to the end, or one of torchvision.transforms.v2, "
            f"which takes all parts of a sample at once; this is a {kind.__module__}."
            f"{kind.__qualname__}, and it is not native: {why}"
        )
    assert transform is not None
    parts = [source.open_rgb(), *(each.opened(why) for each in with_.values())]
    for key, part, each in zip(with_, parts[1:], with_.values()):
        size = part.shape[-2:] if isinstance(part, torch.Tensor) else part.size[::-1]
        own = int(size[0]), int(size[1])
        if clip and own != parts[0].size[::-1]:
            raise unlike_frame(each.encoded.name)
        check_size(each.encoded.name, key, each.scale, parts[0].size[::-1], own)
    made = list(transform(parts))
    return [made[0], *(_named(each, part) for each, part in zip(with_.values(), made[1:]))]


def _named(companion: Companion | EncodedMask, part: Any) -> Any:
    return companion.named(part) if isinstance(companion, EncodedMask) else part
