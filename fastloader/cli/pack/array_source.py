"""Samples of arrays, as ``fastloader pack`` packs them."""

from __future__ import annotations

import dataclasses
import numbers
from collections.abc import Callable
from typing import Any

import numpy as np

from fastloader.cli.pack.source_error import SourceError
from fastloader.datasets.arrays import KINDS, ArrayFolder, PackedArray


@dataclasses.dataclass(frozen=True)
class ArraySource:
    """A dataset whose samples are arrays, or tuples of arrays and numbers, of the same dtypes and
    shapes. ``folder``: what of it is packed, nothing so far. ``sample``: gives one by its
    number."""

    folder: ArrayFolder
    sample: Callable[[int], Any]

    @classmethod
    def of(cls, sample: Callable[[int], Any], count: int, identity: str, first: Any) -> ArraySource:
        """``first``: the dataset's first sample, which the others have to be like."""
        arrays = [
            PackedArray(f"{number}.npy", array.dtype.str, array.shape)
            for number, array in enumerate(_arrays(first, 0))
        ]
        single = not isinstance(first, tuple | list)
        return cls(ArrayFolder(arrays, single, identity, count), sample)

    def read(self, index: int) -> list[bytes]:
        """The bytes of each array of a sample.

        Raises:
            SourceError: which names the sample, if it is not like the first one.
        """
        sample = self.sample(index)
        found = _arrays(sample, index)
        wanted = self.folder.arrays
        if isinstance(sample, tuple | list) == self.folder.single or len(found) != len(wanted):
            raise SourceError(f"sample {index} is {_said(found)}, and sample 0 is {_said(wanted)}")
        for number, (array, packed) in enumerate(zip(found, wanted, strict=True)):
            if array.dtype.str != packed.dtype or array.shape != packed.shape:
                raise SourceError(
                    f"sample {index}: array {number} is {_said([array])}, and that of sample 0 is "
                    f"{_said([packed])}: arrays of one dtype and shape can be packed"
                )
        return [array.tobytes() for array in found]

    def __str__(self) -> str:
        return _said(self.folder.arrays)


def holds_arrays(sample: Any) -> bool:
    """Whether a sample is an array, or a tuple of arrays and numbers."""
    parts = list(sample) if isinstance(sample, tuple | list) else [sample]
    return any(map(_is_array, parts)) and all(_is_array(each) or _is_number(each) for each in parts)


def _is_array(value: Any) -> bool:
    import torch

    return isinstance(value, torch.Tensor | np.ndarray) and value.ndim > 0


def _is_number(value: Any) -> bool:
    if isinstance(value, numbers.Number | np.generic):
        return True
    return hasattr(value, "ndim") and value.ndim == 0


def _arrays(sample: Any, index: int) -> list[Any]:
    parts = sample if isinstance(sample, tuple | list) else [sample]
    return [_array(each, f"sample {index}: array {number}") for number, each in enumerate(parts)]


def _array(value: Any, where: str) -> Any:
    """The array in the machine's byte order, of a dtype that torch has."""
    import torch

    try:
        if isinstance(value, torch.Tensor):
            value = value.detach().cpu().numpy()
        array = np.asarray(value)
        if array.dtype.kind not in KINDS:
            raise TypeError(f"arrays of {array.dtype}")
        array = array.astype(array.dtype.newbyteorder("="), copy=False)
        torch.from_numpy(np.empty(0, array.dtype))
    except (TypeError, ValueError, RuntimeError) as error:
        raise SourceError(
            f"{where} is a {type(value).__name__}, which numpy and torch do not both have ({error}): "
            "arrays of numbers, and numbers, can be packed"
        ) from None
    return array


def _said(arrays: Any) -> str:
    return ", ".join(f"{np.dtype(each.dtype)} {tuple(each.shape)}" for each in arrays)
