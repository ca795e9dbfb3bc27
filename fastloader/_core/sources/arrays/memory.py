"""Memory of batches of arrays."""

from __future__ import annotations

import collections
import math
import warnings
from typing import TYPE_CHECKING, Any

import torch

from fastloader._core.machine import extension
from fastloader._core.sources.arrays.recognize import FEW_BYTES

if TYPE_CHECKING:
    from fastloader import _native


class ArrayMemory:
    """Memory of batches, which the loader keeps over its epochs. Small tensors are torch's. Large ones
    come from a pool for each array, and go back when the last view of them dies."""

    def __init__(self) -> None:
        self._pools: dict[int, _native.BufferPool] = {}
        self.torch_batches = 0  # batches that were fetched and collated in torch's way
        self.gathered = 0  # all other batches
        self.gather_s = 0.0  # the thread time that gathering these took

    def empty(self, number: int, shape: tuple[int, ...], dtype: torch.dtype, pin: bool) -> Any:
        count = math.prod(shape) * dtype.itemsize
        if pin or count < FEW_BYTES or extension.load() is None:
            return torch.empty(shape, dtype=dtype, device="cpu", pin_memory=pin)
        pool = self._pools.get(number)
        if pool is None:
            pool = self._pools[number] = extension.native.BufferPool()
        storage = torch.from_dlpack(pool.bytes(count)).untyped_storage()
        # Not made as a view of the bytes, because views share a version counter and cannot be detached
        # in place.
        return torch.empty(0, dtype=dtype, device="cpu").set_(storage, 0, shape, _contiguous(shape))

    def stats(self) -> dict[str, Any]:
        counted: collections.Counter[str] = collections.Counter()
        for pool in self._pools.values():
            counted.update(pool.stats())
        return {"torch_batches": self.torch_batches, "buffers": dict(counted)}


def _contiguous(shape: tuple[int, ...]) -> list[int]:
    strides = [1] * len(shape)
    for i in range(len(shape) - 1, 0, -1):
        strides[i - 1] = strides[i] * shape[i]
    return strides


def warn_unpinned() -> None:
    """Warns as torch, from 2.6 on, warns of pin_memory=True without an accelerator."""
    if not hasattr(torch, "accelerator"):  # torch < 2.6
        return
    warnings.warn(
        "'pin_memory' argument is set as true but no accelerator is found, then device pinned memory "
        "won't be used.",
        stacklevel=4,
    )
