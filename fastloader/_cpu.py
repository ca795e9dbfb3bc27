"""Delivery to the CPU: images are normalised into recycled memory on the consumer's thread."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from fastloader import _extension
from fastloader._batch import Image, find_images, put_together, take_apart
from fastloader._normalization import Normalization
from fastloader._statistics import Statistics


class CpuDelivery:
    """With the native module or without it: the same tensors to the bit."""

    def __init__(self, normalization: Normalization, statistics: Statistics) -> None:
        self._native = _extension.load()
        self._normalization = normalization
        self.statistics = statistics
        self._pool = None if self._native is None else self._native.BufferPool()
        # One spec per shape seen; varying shapes are few, and a spec is cheap to make again.
        self._specs: dict[tuple[tuple[int, ...], bool], Any] = {}

    def iterate(self, source: Iterator[Any]) -> Iterator[Any]:
        return CpuIterator(source, self)

    def deliver(self, batch: Any) -> Any:
        parts = take_apart(batch)
        outputs = list(parts.leaves)
        for index, image in find_images(parts, self._normalization).items():
            outputs[index] = self._normalized(image)
        return put_together(parts.template, outputs, lambda value: value)

    def _normalized(self, image: Image) -> torch.Tensor:
        if self._pool is None:
            out = self._normalization.output(image.shape, image.pixels.device)
            return self._normalization.apply(image.pixels, out)
        key = (image.shape, image.nhwc)
        spec = self._specs.get(key)
        if spec is None:
            if len(self._specs) >= 64:
                self._specs.clear()
            spec = self._specs[key] = make_spec(self._native, image, self._normalization)
        capsule = self._pool.normalized(spec, source=image.pixels.data_ptr())
        return torch.from_dlpack(capsule)

    def stats(self) -> dict[str, Any]:
        return {} if self._pool is None else {"buffers": self._pool.stats()}


def make_spec(native: Any, image: Image, normalization: Normalization) -> Any:
    scale, bias = normalization.constants(image.shape[1])
    return native.NormalizeSpec(
        nchw=image.shape,
        in_nhwc=image.nhwc,
        out_nhwc=normalization.channels_last,
        dtype=normalization.dtype_name,
        scale=scale,
        bias=bias,
    )


class CpuIterator(Iterator[Any]):
    """Owns no thread and no look-ahead: whatever runs ahead is torch's workers."""

    def __init__(self, source: Iterator[Any], delivery: CpuDelivery) -> None:
        self._source: Iterator[Any] | None = source
        self._delivery = delivery

    def __next__(self) -> Any:
        if self._source is None:
            raise StopIteration
        statistics = self._delivery.statistics
        with statistics.waiting():
            delivered = self._delivery.deliver(next(self._source))
        statistics.batches += 1
        return delivered

    def close(self) -> None:
        """Ends the epoch early; further calls of next() raise StopIteration."""
        self._source = None

    def __len__(self) -> int:
        if self._source is None:
            raise TypeError("this iterator has ended and knows no length any more")
        return len(self._source)  # type: ignore[arg-type]

    def __reduce__(self) -> Any:
        raise NotImplementedError(f"{type(self).__name__} cannot be pickled")
