"""The beginning of a chain that the native path knows, before a step that it does not."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from fastloader.errors import NotNative
from fastloader.transforms._chain import Chain
from fastloader.transforms._pillow import image_module
from fastloader.transforms._python_chain import as_tensor_chain
from fastloader.transforms._reader.chain import is_conversion, read_on_pixels, steps_of
from fastloader.transforms._reader.kinds import check_unchanged, is_ours
from fastloader.transforms.structure import Compose


@dataclasses.dataclass
class Beginning:
    """A chain that is done natively as far as ``chain`` goes, which gives a picture; ``rest`` are the
    steps behind it, which Python does one after the other. ``last`` is the name of the last step of the
    chain, ``unknown`` those of the steps behind it that may be anything."""

    chain: Chain
    rest: list[Callable[[Any], Any]]
    last: str
    unknown: str

    @property
    def reach(self) -> str:
        """Words that say how far the chain goes."""
        return f"up to {self.last}" + (f", then Python: {self.unknown}" if self.unknown else "")


def read_beginning(transform: Any, ours_ends_in_tensor: bool, of: Chain | None = None) -> Beginning:
    """Reads as many steps of a transform as are known and give a Pillow picture.

    ``ours_ends_in_tensor``: whether the dataset gives a chain of ours the end that it has in a batch.
    ``of``: a chain without a step, which says what is known of the pictures that come.

    Raises:
        NotNative: if the first step is not known.
    """
    steps = list(steps_of(transform))
    start = Chain() if of is None else of
    chain = dataclasses.replace(start)
    known = 0
    reason = ""
    for step in steps:
        if is_conversion(step):
            break
        try:
            check_unchanged(step)
            read_on_pixels(chain, step)
        except NotNative as refusal:
            reason = str(refusal)
            break
        known += 1
    if chain == start:
        raise NotNative(reason or "the transform begins with the conversion to a tensor")
    rest = steps[known:]
    if ours_ends_in_tensor and all(is_ours(step) for step in steps):
        rest = [as_tensor_chain(Compose(rest))]  # its end is the one that it has in a batch
    last = type(steps[known - 1]).__name__
    then = ", ".join(_name(step) for step in steps[known:] if not is_conversion(step))
    return Beginning(chain, rest, last, then)


@dataclasses.dataclass(frozen=True)
class TensorEnd:
    """Describes what a transform makes of the pixels of a picture, once it converts that to a tensor.

    ``table``: the float of each byte, for one channel after the other; empty if it leaves bytes.
    ``planar``: whether the planes of the tensor lie one after the other, and not the pixels, as those of
    the picture do.
    """

    table: tuple[float, ...]
    planar: bool


_SIDE = 16  # of a square that has each byte once


def read_end(transform: Any, ours_ends_in_tensor: bool, whole: Chain) -> TensorEnd:
    """Finds what a transform makes of pixels, by doing its steps to a picture that has each byte once.
    ``transform``: as `with_plain_end` gives it. ``whole``: the chain that it comes to.

    Raises:
        NotNative: if they make something else than one float32 or one byte of each byte.
    """
    steps = list(steps_of(transform))
    behind: list[Any] = list(itertools.dropwhile(lambda step: not is_conversion(step), steps))
    if ours_ends_in_tensor and all(is_ours(step) for step in steps):
        behind = [as_tensor_chain(Compose(behind))]
    pixels = np.arange(_SIDE * _SIDE, dtype=np.uint8).reshape(_SIDE, _SIDE, 1)
    pixels = pixels.repeat(whole.channels, axis=2)
    made: Any = image_module().fromarray(pixels[:, :, 0] if whole.grey else pixels)
    for step in behind:
        try:
            made = step(made)
        except Exception as error:  # which the dataset's own code raises for a picture, too
            raise NotNative(f"{_name(step)} raises {type(error).__name__}: {error}") from None
    wanted = torch.float32 if whole.floating else torch.uint8
    if made.dtype != wanted or tuple(made.shape) != (whole.channels, _SIDE, _SIDE):
        raise NotNative(
            f"the transform ends in {made.dtype}, {tuple(made.shape)} of {_SIDE} x {_SIDE} pixels"
        )
    planar = made.is_contiguous()
    if not planar and not made.permute(1, 2, 0).is_contiguous():
        raise NotNative(f"the transform ends in a tensor with strides {made.stride()}")
    return TensorEnd(tuple(made.flatten().tolist()) if whole.floating else (), planar)


def _name(step: Any) -> str:
    return str(getattr(step, "__qualname__", type(step).__name__))  # the first is a function's
