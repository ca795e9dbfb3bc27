"""``FastLoader``: torch's DataLoader that delivers to the device."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import TracebackType
from typing import Any, Generic, TypeVar

import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    DistributedSampler,
    RandomSampler,
    Sampler,
    SequentialSampler,
    SubsetRandomSampler,
)

from fastloader import _extension, _torch
from fastloader._delivery import Delivery
from fastloader._images import ImageIterator, ImageSource, available_threads, make_policy
from fastloader._lowering import Lowered, Unlowered, lower
from fastloader._normalization import Normalization
from fastloader._statistics import Statistics

_log = logging.getLogger("fastloader")

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
        native: take the native image path where the dataset and its transform are known (`plan` says
            so): pictures are then read, decoded, cropped and resized by C++ threads, to the bit as
            Pillow does it; ``num_workers`` is the number of threads, 0 one for each processor. False:
            the dataset's own Python code, in torch's workers.
        truncated: on the native path, a picture whose bytes end early is an "error", or "pad": what
            is there counts, the rest is grey.
        on_error: on the native path, for a sample that neither we nor Pillow can read: "raise" its
            exception in the batch's place, "skip" it (the batch shrinks; a batch left empty raises
            fastloader.Error), or "replace" it by another sample drawn from the epoch's seed.
        max_errors: how many samples may be skipped or replaced in the loader's life: a count (int), a
            share of the samples seen (float), None (default) for any number.
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
        native: bool = True,
        truncated: str = "error",
        on_error: str = "raise",
        max_errors: int | float | None = None,
    ) -> None:
        if not isinstance(native, bool):
            raise TypeError(f"native must be a bool, got {native!r}")
        if truncated not in ("error", "pad"):
            raise ValueError(f"truncated={truncated!r}: use 'error' or 'pad'")
        self._delivery = Delivery(device, mean, std, dtype, channels_last, image_key, depth)
        # As given, under their own names: frameworks rebuild loaders from constructor arguments.
        self.device = device
        self.mean = mean
        self.std = std
        self.dtype = dtype
        self.channels_last = channels_last
        self.image_key = image_key
        self.depth = depth
        self.native = native
        self.truncated = truncated
        self.on_error = on_error
        self.max_errors = max_errors
        self._policy = make_policy(on_error, max_errors)
        self._images: ImageIterator | None = None  # of the epoch begun last, for replay()
        self._said = ""  # the reason for the Python path that was logged last
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
        try:
            lowered = self._lower()
        except Unlowered as reason:
            if self.on_error != "raise" or self.truncated != "error":
                raise ValueError(
                    f"on_error={self.on_error!r} and truncated={self.truncated!r} are for pictures on "
                    f"the native path, and this dataset takes the Python path: {reason}"
                ) from None
            if str(reason) != self._said:  # once, not at every epoch
                self._said = str(reason)
                _log.info("fastloader: Python path: %s", reason)
            return self._iterate_python()
        return self._iterate_images(lowered)

    def _iterate_python(self) -> Any:
        if self._delivery.path == "torch":
            return super().__iter__()
        if self.persistent_workers:
            # There is one torch iterator for life: the pump of the last epoch must let go of it.
            self._delivery.end_iterators()
        return self._delivery.iterate(self._torch_iterator, ahead=self.num_workers > 0)

    def _lower(self) -> Lowered:
        if not self.native:
            raise Unlowered("native=False")
        if _extension.load() is None:
            raise Unlowered("the native module is not in use")
        lowered = lower(self)
        if lowered.chain.floating and self._delivery.normalization is not None:
            raise Unlowered("the transform ends in floats, but mean, std or dtype ask for uint8")
        if self._delivery.normalization is not None:
            mean = self._delivery.normalization.mean
            if mean is not None and len(mean) != 3:
                raise Unlowered(f"mean and std are of {len(mean)} channels, decoded images have 3")
        return lowered

    def _iterate_images(self, lowered: Lowered) -> Any:
        normalization = self._delivery.normalization
        if lowered.chain.floating:
            normalization = Normalization(
                lowered.chain.mean, lowered.chain.std, torch.float32, False, None
            )
        on_device = self._delivery.path in ("engine", "streams")
        source = ImageSource(
            lowered,
            self.num_workers or available_threads(),
            # On a device the kernel there normalises; here it is done while the sample is in cache.
            None if on_device else normalization,
            planar=not (on_device and normalization is not None),
            truncated=self.truncated,
            policy=self._policy,
        )
        # The order of torch's iterators: the sampler first, then the seed, then the first index.
        index_batches = iter(self._index_sampler)
        base_seed = int(torch.empty((), dtype=torch.int64).random_(generator=self.generator).item())
        images = ImageIterator(
            source,
            index_batches,
            base_seed,
            self._may_repeat(),
            length=lambda: len(self._index_sampler),
            # On a device the delivery counts what arrives there.
            statistics=Statistics() if on_device else self._delivery.statistics,
            pin=self.pin_memory and not on_device and _torch.accelerator_type() is not None,
        )
        self._images = images
        if not on_device:
            return self._delivery.adopt(images)
        return self._delivery.iterate(lambda: images, ahead=True, normalization=normalization)

    def _may_repeat(self) -> bool:
        """Whether the sampler may visit an index twice in an epoch, as far as we can know."""
        sampler = self.sampler
        if type(self.batch_sampler) is not BatchSampler:
            return True
        if type(sampler) is RandomSampler:
            return sampler.replacement or sampler.num_samples > len(self.dataset)  # type: ignore
        # DistributedSampler repeats a few at the end, which get the same crop.
        return type(sampler) not in (SequentialSampler, SubsetRandomSampler, DistributedSampler)

    def plan(self) -> str:
        """Which path the next epoch will take, and why, in words."""
        where = {
            "torch": "delivered as they are",
            "cpu": "on the CPU",
            "engine": f"delivered to {self._delivery.device} by the native prefetch thread",
            "streams": f"delivered to {self._delivery.device} through torch's streams",
        }[self._delivery.path]
        try:
            lowered = self._lower()
        except Unlowered as reason:
            return f"Python path: {reason}; batches are {where}"
        threads = self.num_workers or available_threads()
        return (
            f"native images: {lowered.name}, {len(lowered)} samples, {threads} decode threads; "
            f"{lowered.chain}; batches are {where}"
        )

    def replay(self, index: int) -> dict[str, Any]:
        """What became of sample ``index`` in the epoch begun last, so that Pillow can redo it:
        ``{"box": (left, top, width, height), "hflip": bool, "vflip": bool}``.

        Raises ValueError when the native path is not in use or has not come to that sample.
        """
        if self._images is None:
            raise ValueError(f"no epoch was begun on the native path: {self.plan()}")
        return self._images.replay(index)

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
        ``delivered``, ``producer_wait_s`` (ring full), ``consumer_wait_s`` (ring empty). On the native
        image path ``images``: ``seen``, ``bad`` and ``last_bad`` samples, ``threads``, ``buffers``.
        """
        counted = self._delivery.stats()
        if self._images is not None:
            counted["images"] = {
                "bad": self._policy.bad,
                "seen": self._policy.seen,
                "last_bad": list(self._policy.last),
                **self._images.stats(),
            }
        return counted

    def close(self) -> None:
        """Ends live iterators and their threads and frees pinned memory. Idempotent. Delivered batches
        stay valid, and iterating afterwards starts anew."""
        self._delivery.close()
        if self.persistent_workers:
            self._iterator = None  # its workers with it

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
        # Threads and pinned memory stay where they are.
        del state["_delivery"], state["_images"], state["_policy"]
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
        self._policy = make_policy(self.on_error, self.max_errors)
        self._images = None
