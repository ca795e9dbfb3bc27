"""``DevicePrefetcher``: delivers the batches of any iterable to a device."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from types import TracebackType
from typing import Any, Generic, Literal, TypeVar

import torch

from fastloader._core.delivery.delivery import Delivery
from fastloader._core.delivery.path import DeliverySpec
from fastloader._core.machine.eager import eager
from fastloader._core.sources.iterable import IterablePlan

T_co = TypeVar("T_co", covariant=True)


class DevicePrefetcher(Generic[T_co]):
    """Delivers the batches of any iterable to a device, normalised on the way.

    It does for a loader that you already have what `FastLoader` does with its own batches::

        for images, labels in DevicePrefetcher(loader, "cuda", mean=MEAN, std=STD):
            ...

    Args:
        iterable: Gives batches of any nesting (tensors, tuples, lists, mappings, namedtuples,
            dataclasses). If it has ``num_workers > 0``, as a DataLoader may, batches are taken ahead of
            the training loop, for CUDA on a thread. Otherwise they are taken on the loop's own thread,
            batch by batch.
        device: The device, as in `FastLoader`. ``"auto"`` (default) takes the accelerator if there is
            one.
        mean, std: One number per channel, in 0..1; None (default) for none. Image leaves (uint8, 4
            dimensions, ``len(mean)`` channels, NCHW or NHWC, values 0..255) arrive as
            ``(x/255 - mean)/std`` of shape (N, C, H, W). So do clips of 5 dimensions, of shape
            (N, T, C, H, W).
        dtype: The type of the normalised images: float32 (default), float16 or bfloat16. If only this is
            given, images arrive in 0..1.
        channels_last: Whether normalised images lie channels_last in memory; default False.
        image_key: The index or key of the image in the batch, or a list of these; None (default) finds
            the images.
        depth: How many batches are in the ring and under way on the device. None (default) leaves the
            choice to fastloader, and "auto" does as in `FastLoader`.

    Iterating again calls ``iter(iterable)`` again. ``len()`` is the iterable's.

    Raises:
        TypeError, ValueError: for an argument that cannot work, at once; for a batch without an image
            leaf, from ``next()`` and in the batch's place.
        BackendError: from ``next()``, if the device failed.
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
        image_key: int | str | Sequence[int | str] | None = None,
        depth: int | Literal["auto"] | None = None,
    ) -> None:
        if not hasattr(iterable, "__iter__"):
            raise TypeError(f"iterable must yield batches, got {type(iterable).__name__}")
        self.iterable = iterable
        spec = DeliverySpec(device, mean, std, dtype, channels_last, image_key, depth)
        self._delivery = Delivery(spec)

    @property
    def device(self) -> torch.device | None:
        """The device where batches arrive; None if they stay as the iterable made them."""
        return self._delivery.device

    @eager
    def __iter__(self) -> Iterator[T_co]:
        return self._delivery.begin(IterablePlan(self.iterable))

    def __len__(self) -> int:
        return len(self.iterable)  # type: ignore[arg-type]

    def stats(self) -> dict[str, Any]:
        """Returns the counters since the prefetcher was made; see `FastLoader.stats`."""
        return self._delivery.stats()

    def close(self) -> None:
        """Ends live iterators and threads, and frees pinned memory. Idempotent. Iterating afterwards
        starts anew. Batches that were delivered stay valid."""
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
