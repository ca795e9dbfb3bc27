"""The only definition of normalise, and its pure-Python form.

y = fma(float(x), scale[c], bias[c]) in float32, rounded once to the output dtype, with
scale = 1/(255*std) and bias = -mean/std computed in float64 and rounded once to float32.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from fastloader._core.machine import extension

if TYPE_CHECKING:
    from fastloader import _native


MAX_CHANNELS = 4
_DTYPES = {torch.float32: "float32", torch.float16: "float16", torch.bfloat16: "bfloat16"}


@dataclasses.dataclass(frozen=True)
class Normalization:
    """Says how the image leaves of a batch are normalised.

    ``mean`` and ``std`` are in 0..1. If both are None, they are 0 and 1 for any number of channels,
    which is torchvision's ToTensor. ``image_key`` holds the outermost keys of the image leaves; None
    finds every leaf that looks like one. ``done``: the samples come as floats already, which the
    dataset's own transform has normalised by the same mean and std; dtype and memory format are left to
    do.
    """

    mean: tuple[float, ...] | None
    std: tuple[float, ...] | None
    dtype: torch.dtype
    channels_last: bool
    image_key: tuple[int | str, ...] | None
    done: bool = False

    def names(self, key: Any) -> bool:
        """Returns whether a leaf under this outermost key may be an image leaf."""
        return self.image_key is None or key in self.image_key

    def same_values(self, other: Normalization) -> bool:
        """Returns whether both make the same floats of a picture, apart from dtype and memory format."""
        own, others = len(self.mean or (0.0,)), len(other.mean or (0.0,))
        channels = max(own, others)
        if not {own, others} <= {1, channels}:
            return False
        return all(
            bool(np.all(np.asarray(one) == np.asarray(another)))
            for one, another in zip(self.constants(own), other.constants(others), strict=True)
        )

    @property
    def dtype_name(self) -> str:
        return _DTYPES[self.dtype]

    def allows_channels(self, channels: int) -> bool:
        if self.mean is None:
            return 1 <= channels <= MAX_CHANNELS
        return channels == len(self.mean)

    def constants(self, channels: int) -> tuple[list[float], list[float]]:
        """Returns (scale, bias), each of ``channels`` float32 values."""
        mean = np.asarray(self.mean or (0.0,) * channels, dtype=np.float64)
        std = np.asarray(self.std or (1.0,) * channels, dtype=np.float64)
        scale = (1.0 / (255.0 * std)).astype(np.float32)
        bias = (-mean / std).astype(np.float32)
        return scale.tolist(), bias.tolist()

    def output(self, shape: Sequence[int], device: torch.device) -> torch.Tensor:
        """Makes uninitialised memory for normalised images of ``shape``, (N, C, H, W) or
        (N, T, C, H, W). The current stream of ``device`` owns it."""
        if len(shape) == 5 and self.channels_last:  # each frame, for which torch has no format
            n, t, c, h, w = shape
            images = torch.empty((n, t, h, w, c), dtype=self.dtype, device=device)
            return images.permute(0, 1, 4, 2, 3)
        memory_format = torch.channels_last if self.channels_last else torch.contiguous_format
        return torch.empty(
            tuple(shape), dtype=self.dtype, device=device, memory_format=memory_format
        )

    def laid_out(self, images: torch.Tensor) -> torch.Tensor:
        """Returns normalised images in the dtype and memory format that are asked for."""
        if images.dim() == 5:
            frames = self.laid_out(images.flatten(0, 1))
            return frames.view(images.shape)
        memory_format = torch.channels_last if self.channels_last else torch.contiguous_format
        return images.to(self.dtype).contiguous(memory_format=memory_format)

    def apply(self, images: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
        """Normalises uint8 (N, C, H, W) of any strides into ``out``, in pure torch and on their device.
        It looks values up in a table, which is exact on every device and in every dtype, even without
        float64."""
        channels = images.shape[1]
        table = _table(self, channels, images.device)
        for c in range(channels):
            plane = images[:, c]
            out[:, c] = table[c].index_select(0, plane.reshape(-1).int()).view(plane.shape)
        return out

    def applied(self, images: torch.Tensor) -> torch.Tensor:
        """Does as `apply`, into a new tensor."""
        return self.apply(images, self.output(images.shape, images.device))

    def of_pixel(self, pixel: Sequence[int]) -> tuple[float, ...]:
        """Normalises one pixel, given as a byte for each channel."""
        pixels = torch.tensor(pixel, dtype=torch.uint8, device="cpu").view(1, -1, 1, 1)
        made = self.applied(pixels)
        return tuple(made.flatten().tolist())


@functools.lru_cache(maxsize=32)
def _table(normalization: Normalization, channels: int, device: torch.device) -> torch.Tensor:
    """Makes the table of all results: (channels, 256) of the output dtype."""
    scale, bias = (
        np.asarray(constants, dtype=np.float64)[:, None]
        for constants in normalization.constants(channels)
    )
    results = _fused_multiply_add(np.arange(256, dtype=np.float64), scale, bias)
    return results.to(normalization.dtype).to(device)


def _fused_multiply_add(values: Any, scale: Any, bias: Any) -> torch.Tensor:
    """Returns ``values * scale + bias``, rounded once to float32. The arguments are float64 arrays of
    float32 numbers.

    Float64 holds the product exactly, but not always the sum: a bias that is tiny beside the product is
    rounded away, although it decides which way a tie goes. The sum is therefore rounded to odd. Float64
    has so many more bits than float32 that an odd sum then rounds as the exact sum does.
    """
    product = values * scale
    total = product + bias
    part = total - product
    error = (product - (total - part)) + (bias - part)  # what the rounded sum lacks, exactly
    even = total.view(np.int64) % 2 == 0
    neighbour = np.nextafter(total, np.copysign(np.inf, error))
    return torch.from_numpy(np.where(even & (error != 0), neighbour, total)).float()


def check_same_values(own: Normalization, wanted: Normalization, whose: str, step: str) -> None:
    """
    Raises:
        ValueError: if a transform, which ends in ``step``, normalises otherwise than the loader.
    """
    if own.same_values(wanted):
        return
    if wanted.mean is None:
        given = f"dtype={wanted.dtype} without mean and std, which asks for images in 0..1"
        advice = (
            "Give FastLoader the same mean and std, too, or take Normalize out of the transform"
        )
    else:
        given = f"mean={wanted.mean}, std={wanted.std}"
        advice = (
            "Remove one of the two: mean and std from FastLoader's arguments, or ToTensor() and "
            "Normalize(...) from the transform, which then ends in PILToTensor()"
        )
    raise ValueError(
        f"{whose} normalises already, by {step}, and FastLoader is given {given}. {advice}"
    )


def make_spec(
    shape: tuple[int, int, int, int], nhwc: bool, normalization: Normalization
) -> _native.NormalizeSpec:
    """Makes the spec that the native kernels take. ``shape`` is (N, C, H, W), whatever the order of the
    bytes. ``nhwc`` says that order."""
    scale, bias = normalization.constants(shape[1])
    native = extension.native
    return native.NormalizeSpec(
        nchw=shape,
        in_nhwc=nhwc,
        out_nhwc=normalization.channels_last,
        dtype=getattr(native.FloatType, normalization.dtype_name.upper()),
        scale=scale,
        bias=bias,
    )


def make_normalization(
    mean: Sequence[float] | None,
    std: Sequence[float] | None,
    dtype: torch.dtype | None,
    channels_last: bool,
    image_key: int | str | Sequence[int | str] | None,
) -> Normalization | None:
    """Checks the arguments and makes the normalisation; None if mean, std and dtype are all None."""
    if not isinstance(channels_last, bool):
        raise TypeError(f"channels_last must be a bool, got {channels_last!r}")
    keys = checked_keys(image_key)
    if mean is None and std is None and dtype is None:
        if channels_last or image_key is not None:
            given = "channels_last=True" if channels_last else f"image_key={image_key!r}"
            raise ValueError(
                f"{given} describes normalised images, but none of mean, std and dtype is given; "
                "add dtype=torch.float32 for images in 0..1, or mean and std"
            )
        return None
    if dtype is None:
        dtype = torch.float32
    if not isinstance(dtype, torch.dtype):
        raise TypeError(f"dtype must be a torch.dtype, got {dtype!r}")
    if dtype not in _DTYPES:
        allowed = ", ".join(str(each) for each in _DTYPES)
        raise ValueError(f"dtype={dtype} cannot hold normalised images; use one of {allowed}")
    checked_mean = _checked("mean", mean)
    checked_std = _checked("std", std)
    if checked_std is not None and 0.0 in checked_std:
        raise ValueError(f"std={checked_std} contains a zero; every channel is divided by its std")
    _refuse_bytes(checked_mean, checked_std)
    if checked_mean is not None and checked_std is None:
        checked_std = (1.0,) * len(checked_mean)
    if checked_std is not None and checked_mean is None:
        checked_mean = (0.0,) * len(checked_std)
    if checked_mean is not None and checked_std is not None:
        if len(checked_mean) != len(checked_std):
            raise ValueError(
                f"mean has {len(checked_mean)} values and std has {len(checked_std)}; "
                "both need one per channel"
            )
    made = Normalization(checked_mean, checked_std, dtype, channels_last, keys)
    if checked_mean is not None:
        with np.errstate(over="ignore"):
            scale, bias = made.constants(len(checked_mean))
        if not all(math.isfinite(value) for value in (*scale, *bias)):
            raise ValueError(
                f"mean={checked_mean} and std={checked_std} overflow float32: "
                f"scale 1/(255*std) = {scale}, bias -mean/std = {bias}"
            )
    return made


def checked_keys(image_key: Any) -> tuple[int | str, ...] | None:
    """Checks the argument ``image_key``: returns its keys, each once, or None if it is None."""
    if image_key is None:
        return None
    keys = image_key if isinstance(image_key, list | tuple) else (image_key,)
    for key in keys:
        if isinstance(key, bool) or not isinstance(key, int | str):
            inside = "" if key is image_key else f", in which {key!r} is neither"
            raise TypeError(
                "image_key must be an index or a key of the batch, or a list of these, got "
                f"{image_key!r}{inside}"
            )
    if not keys:
        raise ValueError(
            f"image_key={image_key!r} names no image; leave it out for every image leaf"
        )
    return tuple(dict.fromkeys(keys))


def _refuse_bytes(mean: tuple[float, ...] | None, std: tuple[float, ...] | None) -> None:
    """Raises ValueError for constants of pixels in 0..255, which FFCV and DALI take. In 0..1 no mean
    and no deviation of pixels is above 1."""
    given = {name: values for name, values in (("mean", mean), ("std", std)) if values is not None}
    if not any(value > 1.0 for values in given.values() for value in values):
        return
    shown = " and ".join(f"{name}={values}" for name, values in given.items())
    divided = ", ".join(
        f"{name}={tuple(float(f'{value / 255:.6g}') for value in values)}"
        for name, values in given.items()
    )
    raise ValueError(
        f"{shown}: mean and std are per channel in 0..1 here, as in torchvision and timm; divided by "
        f"255 these are {divided}"
    )


def _checked(name: str, values: Any) -> tuple[float, ...] | None:
    if values is None:
        return None
    if isinstance(values, torch.Tensor | np.ndarray):
        values = values.reshape(-1).tolist()
    if isinstance(values, str | bytes) or not isinstance(values, Sequence):
        raise TypeError(f"{name} must be a sequence of one number per channel, got {values!r}")
    if not 1 <= len(values) <= MAX_CHANNELS:
        raise ValueError(
            f"{name} has {len(values)} values; images have 1 to {MAX_CHANNELS} channels"
        )
    try:
        numbers = tuple(float(value) for value in values)
    except (TypeError, ValueError):
        raise TypeError(f"{name} must contain numbers, got {values!r}") from None
    if not all(math.isfinite(number) for number in numbers):
        raise ValueError(f"{name}={numbers} must be finite")
    return numbers
