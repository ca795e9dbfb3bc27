"""``FastLoader``: torch's DataLoader that delivers to the device."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import TracebackType
from typing import Any, Generic, TypeVar

import torch
from torch.utils.data import DataLoader, Dataset, Sampler

from fastloader._delivery import Delivery

T_co = TypeVar("T_co", covariant=True)

# torch < 2.6 has no in_order; everything else is the same in every torch from 2.4.
_TORCH_HAS_IN_ORDER = "in_order" in inspect.signature(DataLoader.__init__).parameters


class FastLoader(DataLoader, Generic[T_co]):  # type: ignore[type-arg]
    """A drop-in ``torch.utils.data.DataLoader`` whose batches arrive on the device, normalised.

    Every argument of DataLoader has its meaning, default and errors, and the order of samples is the
    same for the same seed. Without the arguments below it *is* DataLoader. ::

        loader = FastLoader(dataset, batch_size=256, shuffle=True, num_workers=8,
                            device="cuda", mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225),
                            dtype=torch.bfloat16, channels_last=True)
        for images, labels in loader:  # both on the GPU, images normalised
            ...

    Args:
        device: where batches arrive. None (default): on the CPU, as DataLoader leaves them. ``"auto"``:
            the accelerator if there is one, else the CPU. ``"cuda"`` (``"cuda:1"``, a torch.device,
            any accelerator torch knows): there; without such a device it is a ValueError.
        mean, std: one number per channel (1 to 4), in 0..1, as in torchvision and timm; one without
            the other means mean 0 or std 1. Given, every *image leaf* of a batch, that is a uint8
            tensor of 4 dimensions whose channel dimension is ``len(mean)`` (NCHW wins ties with NHWC),
            values 0..255, arrives as ``(x/255 - mean)/std`` of shape (N, C, H, W). The definition is
            ``fma(x, 1/(255*std), -mean/std)`` in float32, rounded once to ``dtype``; it is within
            2e-6 of torchvision in float32, 4e-3 in float16, 3e-2 in bfloat16. Other leaves arrive
            untouched, strides included.
        dtype: torch.float32 (default), torch.float16 or torch.bfloat16. Given without mean and std,
            images arrive in 0..1 (torchvision's ToTensor).
        channels_last: normalised images arrive in ``torch.channels_last`` memory format.
        image_key: index or key of the image in the batch (in a nested batch, the outermost one), for
            batches in which something else is shaped like an image; None (default) takes all.
        depth: batches in the pinned ring and, at the same time, on the device; more smooths over
            uneven batches and costs memory. None (default): 3, or 2 with ``num_workers=0``.

    With ``num_workers=0`` the dataset runs on the caller's thread when a batch is asked for, as with
    DataLoader; with workers, a thread takes their batches ahead of time. Batches on the device are
    ordinary tensors of torch's allocator on the stream current at ``next()``; CPU batches that were
    normalised live in memory that is recycled once the last tensor or view of it is gone.
    ``pin_memory`` is not needed (the ring is pinned) and ignored for CUDA.

    Raises:
        TypeError, ValueError: for an argument that cannot work, at construction. For a batch that
            cannot be delivered (no image leaf though mean, std or dtype ask for one; larger than half
            the machine's memory / depth), from ``next()`` in the batch's place; the loader goes on.
        BackendError: from ``next()`` when the device failed.
        Exception: whatever dataset, sampler and collate_fn raise, in order, with its traceback.
    """

    def __init__(
        self,
        dataset: Dataset[T_co],
        batch_size: int | None = 1,
        shuffle: bool | None = None,
        sampler: Sampler[Any] | Iterable[Any] | None = None,
        batch_sampler: Sampler[list[Any]] | Iterable[list[Any]] | None = None,
        num_workers: int = 0,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Callable[[int], None] | None = None,
        multiprocessing_context: Any = None,
        generator: torch.Generator | None = None,
        *,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
        pin_memory_device: str = "",
        in_order: bool = True,
        device: str | int | torch.device | None = None,
        mean: Sequence[float] | None = None,
        std: Sequence[float] | None = None,
        dtype: torch.dtype | None = None,
        channels_last: bool = False,
        image_key: int | str | None = None,
        depth: int | None = None,
    ) -> None:
        self._delivery = Delivery(device, mean, std, dtype, channels_last, image_key, depth)
        # As given, under their own names: frameworks rebuild loaders from constructor arguments.
        self.device = device
        self.mean = mean
        self.std = std
        self.dtype = dtype
        self.channels_last = channels_last
        self.image_key = image_key
        self.depth = depth
        newer: dict[str, Any] = {}
        if _TORCH_HAS_IN_ORDER:
            newer["in_order"] = in_order
        elif not in_order:
            raise ValueError(
                f"in_order=False needs torch 2.6 or later; this is {torch.__version__}"
            )
        super().__init__(
            dataset,
            batch_size,
            shuffle,
            sampler,
            batch_sampler,
            num_workers,
            collate_fn,
            pin_memory,
            drop_last,
            timeout,
            worker_init_fn,
            multiprocessing_context,
            generator,
            prefetch_factor=prefetch_factor,
            persistent_workers=persistent_workers,
            pin_memory_device=pin_memory_device,
            **newer,
        )

    def __iter__(self) -> Any:
        if self._delivery.path == "torch":
            return super().__iter__()
        if self.persistent_workers:
            # There is one torch iterator for life: the pump of the last epoch must let go of it.
            self._delivery.end_iterators()
        return self._delivery.iterate(self._torch_iterator, ahead=self.num_workers > 0)

    def _torch_iterator(self) -> Iterator[Any]:
        if self._delivery.path != "engine" or not self.pin_memory:
            return super().__iter__()
        # The ring is pinned already: torch's pin thread would copy every batch once more and take
        # the GIL from the training loop. Its iterator reads the flag once, when it is made.
        self.pin_memory = False
        try:
            return super().__iter__()
        finally:
            self.pin_memory = True

    def stats(self) -> dict[str, Any]:
        """Counters since construction, cheap enough to ask at every step.

        ``path``: "torch" (plain DataLoader: nothing else is counted), "cpu", "engine" (native prefetch
        thread) or "streams"; ``device``; ``batches`` delivered; ``errors`` raised; ``wait_s``: seconds
        the consumer spent in ``next()``. On the CPU path ``buffers``: ``made``, ``recycled``, ``free``,
        ``in_use`` and ``bytes`` of recycled memory. On the engine path ``ring``: ``depth``, ``pinned``
        and ``why_not_pinned``, ``ring_bytes``, ``slot_growths``, ``bytes`` copied, ``filled``,
        ``delivered``, ``producer_wait_s`` (ring full), ``consumer_wait_s`` (ring empty).
        """
        return self._delivery.stats()

    def close(self) -> None:
        """Ends live iterators and their threads and frees pinned memory. Idempotent. Delivered batches
        stay valid, and iterating afterwards starts anew."""
        self._delivery.close()

    def __enter__(self) -> FastLoader[T_co]:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __getstate__(self) -> dict[str, Any]:
        state = self.__dict__.copy()
        del state["_delivery"]  # threads and pinned memory stay where they are
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._delivery = Delivery(
            self.device,
            self.mean,
            self.std,
            self.dtype,
            self.channels_last,
            self.image_key,
            self.depth,
        )
