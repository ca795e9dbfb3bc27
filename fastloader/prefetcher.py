"""``DevicePrefetcher``: delivery for any iterable of batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from types import TracebackType
from typing import Any, Generic, Literal, TypeVar

import torch

from fastloader._core.delivery.delivery import Delivery
from fastloader._core.delivery.spec import DeliverySpec
from fastloader._core.sources.iterable import IterablePlan

T_co = TypeVar("T_co", covariant=True)


class DevicePrefetcher(Generic[T_co]):
    """Delivers the batches of any iterable to a device, normalised on the way.

    What `FastLoader` does with its own batches, for a loader that you already have::

        for images, labels in DevicePrefetcher(loader, "cuda", mean=MEAN, std=STD):
            ...

    Args:
        iterable: yields batches of any nesting (tensors, tuples, lists, mappings, namedtuples,
            dataclasses). Where it has ``num_workers > 0`` (a DataLoader), it is advanced ahead, to CUDA
            on a thread; otherwise on the consumer's own thread, batch by batch.
        device: as in `FastLoader`; ``"auto"`` takes the accelerator if there is one.
        mean, std: per channel, in 0..1. Image leaves (uint8, 4 dimensions, ``len(mean)`` channels,
            NCHW or NHWC, values 0..255) arrive as ``(x/255 - mean)/std`` of shape (N, C, H, W).
        dtype: of the normalised images: float32 (default), float16 or bfloat16. Given alone, images
            arrive in 0..1.
        channels_last: memory format of the normalised images.
        image_key: index or key of the image in the batch; None finds it.
        depth: batches in the ring and under way on the device; None chooses, "auto" as in `FastLoader`.

    Iterating again calls ``iter(iterable)`` again. ``len()`` is the iterable's.

    Raises:
        TypeError, ValueError: for an argument that cannot work, at once; for a batch without image
            leaf, from ``next()``, in its place.
        BackendError: from ``next()`` when the device failed.
    """

    def __init__(
        self,
        iterable: Iterable[T_co],
        device: str | int | torch.device | None = "auto",
        *,
        mean: Sequence[float] | None = None,
        std: Sequence[float] | None = None,
        dtype: torch.dtype | None = None,
        channels_last: bool = False,
        image_key: int | str | None = None,
        depth: int | Literal["auto"] | None = None,
    ) -> None:
        if not hasattr(iterable, "__iter__"):
            raise TypeError(f"iterable must yield batches, got {type(iterable).__name__}")
        self.iterable = iterable
        spec = DeliverySpec(device, mean, std, dtype, channels_last, image_key, depth)
        self._delivery = Delivery(spec)

    @property
    def device(self) -> torch.device | None:
        """Where batches arrive; None if they stay as the iterable made them."""
        return self._delivery.device

    def __iter__(self) -> Iterator[T_co]:
        return self._delivery.begin(IterablePlan(self.iterable))

    def __len__(self) -> int:
        return len(self.iterable)  # type: ignore[arg-type]

    def stats(self) -> dict[str, Any]:
        """Counters since construction; see `FastLoader.stats`."""
        return self._delivery.stats()

    def close(self) -> None:
        """Ends live iterators and threads and frees pinned memory. Idempotent; iterating afterwards
        starts anew. Batches already delivered stay valid."""
        self._delivery.close()

    def __enter__(self) -> DevicePrefetcher[T_co]:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
