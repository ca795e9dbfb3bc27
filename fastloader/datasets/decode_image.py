"""``decode_image``: the pixels of one encoded picture."""

from __future__ import annotations

import operator
import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from fastloader._core.machine import extension
from fastloader._core.machine.eager import eager
from fastloader.datasets.picture_source import PictureSource
from fastloader.errors import Error
from fastloader.transforms import _pillow
from fastloader.transforms._job import make_job, make_pixels
from fastloader.transforms._pillow import naming

_FILTERS = ("box", "bilinear", "bicubic", "hamming", "lanczos")


@eager
def decode_image(
    source: str | os.PathLike[str] | bytes | bytearray | memoryview | Any,
    region: Sequence[int] | None = None,
    size: Sequence[int] | None = None,
    *,
    interpolation: str = "bilinear",
    as_tensor: bool = False,
) -> Any:
    """Decodes a picture to the pixels that Pillow has after ``convert("RGB")``, ``crop`` and ``resize``.
    The calling thread decodes no more than the region, and releases the GIL meanwhile.

    Args:
        source: A path (str or os.PathLike), or the encoded bytes: bytes, bytearray, memoryview, a numpy
            array or a tensor of uint8.
        region: (left, top, width, height) in pixels, within the picture; None (default) is all of it.
        size: (height, width) to which the region is resized; None (default) leaves it as it is.
        interpolation: The filter of the resize: "box", "bilinear" (default), "bicubic", "hamming" or
            "lanczos", with antialiasing, as Pillow has them.
        as_tensor: False (default) gives a numpy array of uint8, 0..255, of shape (height, width, 3);
            True a torch tensor of shape (3, height, width).

    Raises:
        TypeError: for an argument of another type.
        ValueError: for a region that is not in the picture, a size below 1, an interpolation that there
            is not.
        OSError: for a file that cannot be read, or that neither the native decoder nor Pillow decodes.
    """
    picture = PictureSource(source)
    box = None if region is None else _numbers("region", region, 4, (0, 0, 1, 1))
    made = None if size is None else _numbers("size", size, 2, (1, 1))
    if interpolation not in _FILTERS:
        raise ValueError(f"interpolation={interpolation!r}: use one of {', '.join(_FILTERS)}")
    pixels = _native_pixels(picture, box, made, interpolation)
    if pixels is None:
        pixels = _pillow_pixels(picture, box, made, interpolation)
    return torch.from_numpy(pixels).permute(2, 0, 1).contiguous() if as_tensor else pixels


def _numbers(name: str, given: Sequence[int], count: int, least: Sequence[int]) -> list[int]:
    try:
        numbers = [operator.index(each) for each in given]
    except TypeError:
        raise TypeError(f"{name} is a sequence of {count} whole numbers, got {given!r}") from None
    if len(numbers) != count:
        raise ValueError(f"{name}={given!r}: {count} whole numbers are needed")
    if any(number < low for number, low in zip(numbers, least)):
        raise ValueError(f"{name}={given!r}: at least {tuple(least)} is needed")
    return numbers


def _native_pixels(
    picture: PictureSource, box: list[int] | None, size: list[int] | None, interpolation: str
) -> Any | None:
    """Decodes natively; None if Pillow is to decode the picture, or to say what is wrong."""
    if extension.load() is None:
        return None
    try:
        native = extension.native
        transform = native.ImageTransform(
            box=box,
            exact=None if size is None else (size[0], size[1]),
            filter=getattr(native.Interpolation, interpolation.upper()),
            pass_order=getattr(native.PassOrder, _pillow.pass_order()),
        )
        job = make_job(picture.opened(), transform)
        with naming(picture.name):
            pixels, (height, width) = make_pixels(job, 0)
    except (Error, ValueError):
        return None
    return np.frombuffer(pixels, dtype=np.uint8).reshape(height, width, 3)


def _pillow_pixels(
    picture: PictureSource, box: list[int] | None, size: list[int] | None, interpolation: str
) -> Any:
    decoded = picture.open_rgb()
    if box is not None:
        left, top, width, height = box
        if left + width > decoded.width or top + height > decoded.height:
            raise ValueError(
                f"region={tuple(box)} is not in {picture.name}, a picture of "
                f"{decoded.width}x{decoded.height}"
            )
        decoded = decoded.crop((left, top, left + width, top + height))
    if size is not None:
        resampling = getattr(_pillow.image_module().Resampling, interpolation.upper())
        decoded = decoded.resize((size[1], size[0]), resampling)
    return np.array(decoded)
