"""The index batches of an epoch over arrays, as int64 without a Python int for each index."""

from __future__ import annotations

import array
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch.utils.data import BatchSampler, RandomSampler, SequentialSampler

from fastloader._core.machine import identity

CHUNK = 1 << 16  # indices of a sequential sampler that are made at a time

_TOGETHER = 32  # index batches that are cut at a time

_MASKS = frozenset([bool, torch.Tensor])


def index_batches(sampler: Any) -> Iterator[Any]:
    """``iter(sampler)``, but with int64 tensors for torch's own samplers in torch's own BatchSampler.
    They hold the same indices, drawn from the same generators at the same moments."""
    if type(sampler) is BatchSampler and type(sampler.sampler) in (
        RandomSampler,
        SequentialSampler,
    ):
        kinds = (BatchSampler, type(sampler.sampler))
        if not any(identity.change(kind, kind) for kind in kinds):
            return _batched(sampler)
    return iter(sampler)


def _batched(sampler: Any) -> Iterator[torch.Tensor]:
    """What BatchSampler.__iter__ gives. No index is pulled before it is needed, as there."""
    size = sampler.batch_size
    parts: list[torch.Tensor] = []  # the parts of a batch that is not full yet
    missing = size
    for chunk in _drawn(sampler.sampler):
        begin, count = 0, chunk.numel()
        if parts:
            begin = min(missing, count)
            parts.append(chunk[:begin])
            missing -= begin
            if missing:
                continue
            yield torch.cat(parts)
            parts, missing = [], size
        end = begin + (count - begin) // size * size
        # Views are made together, because one at a time costs as much as gathering a small batch.
        for at in range(begin, end, _TOGETHER * size):
            yield from chunk[at : min(end, at + _TOGETHER * size)].split(size)
        if end < count:
            parts, missing = [chunk[end:]], size - (count - end)
    if parts and not sampler.drop_last:
        yield parts[0] if len(parts) == 1 else torch.cat(parts)


def _drawn(sampler: Any) -> Iterator[torch.Tensor]:
    """What RandomSampler and SequentialSampler of torch 2.4 to 2.13 give, a tensor at a time."""
    n = len(sampler.data_source)
    if type(sampler) is SequentialSampler:
        for begin in range(0, n, CHUNK):
            yield torch.arange(begin, min(begin + CHUNK, n), dtype=torch.int64, device="cpu")
        return
    if sampler.generator is None:
        seed = int(torch.empty((), dtype=torch.int64).random_().item())
        generator = torch.Generator()
        generator.manual_seed(seed)
    else:
        generator = sampler.generator
    if sampler.replacement:
        for _ in range(sampler.num_samples // 32):
            yield torch.randint(high=n, size=(32,), dtype=torch.int64, generator=generator)
        yield torch.randint(
            high=n, size=(sampler.num_samples % 32,), dtype=torch.int64, generator=generator
        )
    else:
        for _ in range(sampler.num_samples // n):
            yield torch.randperm(n, generator=generator)
        yield torch.randperm(n, generator=generator)[: sampler.num_samples % n]


def as_indices(batch: Any) -> Any | None:
    """A batch of indices as a buffer of int64; None if it holds anything but whole numbers."""
    kind = type(batch)
    try:
        if kind is torch.Tensor:
            if batch.dtype is not torch.int64 or batch.dim() != 1 or batch.device.type != "cpu":
                return None
            return batch.detach().contiguous().numpy()
        if kind in (list, tuple):
            # A bool, or a tensor of one, is a mask to tensors but a number to array.array.
            if not batch or not _MASKS.isdisjoint(map(type, batch)):
                return None
            return np.frombuffer(array.array("q", batch), dtype=np.int64)
        if kind is np.ndarray and batch.ndim == 1 and batch.dtype.kind in "iu":
            return np.ascontiguousarray(batch, dtype=np.int64)
    except (TypeError, OverflowError):
        pass
    return None
