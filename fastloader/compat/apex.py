"""``data_prefetcher``, the class that tutorials copy from Apex's ImageNet example.

from fastloader.compat.apex import data_prefetcher
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch

from fastloader._core.machine import devices
from fastloader.loader import FastLoader
from fastloader.prefetcher import DevicePrefetcher

__all__ = ["data_prefetcher"]

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)

# The prefetcher on each loader with persistent workers, because such a loader has one iterator for life.
_on_persistent: weakref.WeakKeyDictionary[Any, DevicePrefetcher[Any]] = weakref.WeakKeyDictionary()


class data_prefetcher(Iterator[tuple[Any, Any]]):
    """Gives ``(input, target)`` on the device, normalised, with the next batch on its way::

        prefetcher = data_prefetcher(train_loader)
        input, target = prefetcher.next()
        while input is not None:
            ...
            input, target = prefetcher.next()

    or simply ``for input, target in data_prefetcher(train_loader)``. It makes one pass. Make another one
    for the next epoch, as with Apex's.

    Args:
        loader: Gives pairs. Inputs are (N, C, H, W), values 0..255, as uint8 (what Apex's
            ``fast_collate`` gives; NHWC too) or as floats. The native kernel normalises bytes on their
            way. Floats are normalised on the caller's stream when they are taken, so send bytes.
        mean, std: One number per channel, in 0..1; default ImageNet's.
        device: The device, as in `FastLoader`. "auto" (default) takes the accelerator if there is one
            (CUDA, NPU, XPU, ...), else the CPU.
        dtype: The type of the inputs: torch.float32 (default), torch.float16 or torch.bfloat16. In half
            precision your loop needs no ``input.half()``.

    Inputs arrive in ``dtype`` as ``(x/255 - mean)/std``, rounded once, in the memory format of the first
    batch (contiguous or channels_last). Targets arrive as they are. Both belong to the stream that is
    current when they are taken, so you need not wait for a stream or call ``record_stream``.

    Attributes: ``loader``; ``mean``, ``std``: tensors (1, C, 1, 1) on the device, in 0..255;
    ``next_input``, ``next_target``: what `next` will give, None at the end (asking takes the batch from
    the loader); ``stream``: the stream on which the batches are ordered, None on the CPU.

    Raises:
        TypeError, ValueError: for arguments that cannot work and for a loader that normalises itself, at
            once; for a batch that is no pair or has no image, in the batch's place.
        Exception: what the loader raises, in its place; for the loader's first batch, at once.
    """

    def __init__(
        self,
        loader: Iterable[Any],
        mean: Sequence[float] = IMAGENET_MEAN,
        std: Sequence[float] = IMAGENET_STD,
        device: str | int | torch.device = "auto",
        dtype: torch.dtype = torch.float32,
    ) -> None:
        if isinstance(loader, FastLoader) and any(
            value is not None for value in (loader.mean, loader.std, loader.dtype)
        ):
            raise ValueError(
                "the loader's batches are normalised by its own mean, std or dtype: iterate it, or "
                "drop those arguments"
            )
        self.loader = loader
        persistent = bool(getattr(loader, "persistent_workers", False))
        if persistent and loader in _on_persistent:
            _on_persistent.pop(loader).close()
        batches = iter(loader)
        first = list(itertools.islice(batches, 1))
        self._dtype = dtype
        self._floats = bool(first) and _has_floats(first[0])
        source = _Source(itertools.chain(first, batches), loader)
        normalization: dict[str, Any] = {"mean": mean, "std": std, "dtype": dtype, "image_key": 0}
        normalization["channels_last"] = bool(first) and _is_channels_last(first[0])
        # Made for floats too, because it checks the arguments.
        place = devices.resolve_device(device)  # at once, because the iteration begins at once
        self._delivery: DevicePrefetcher[Any] = DevicePrefetcher(source, place, **normalization)
        if self._floats:
            self._delivery = DevicePrefetcher(source, place)
        assert place is not None
        self.device = place
        self.mean, self.std = (
            torch.tensor(list(map(float, values)), dtype=torch.float32, device=self.device)
            .mul_(255)
            .view(1, -1, 1, 1)
            for values in (mean, std)
        )
        if persistent:
            _on_persistent[loader] = self._delivery
        self._batches = iter(self._delivery)
        self._ahead: list[tuple[Any, Any]] = []  # at most one batch, taken and not given yet

    def next(self) -> tuple[Any, Any]:
        """Returns the next ``(input, target)``; ``(None, None)`` for ever after the end."""
        return next(self, (None, None))

    def __next__(self) -> tuple[Any, Any]:
        self.preload()
        if not self._ahead:
            raise StopIteration
        return self._ahead.pop()

    def preload(self) -> None:
        """Takes the batch that `next` will give, unless it was taken already. The copies of later
        batches run ahead without this call."""
        if self._ahead:
            return
        batch = next(self._batches, None)
        if batch is None:
            return
        images, target = batch
        if self._floats:
            # The steps are Apex's: subtract, then divide, in float32.
            images = images.float().sub(self.mean).div_(self.std).to(self._dtype)
        self._ahead.append((images, target))

    @property
    def next_input(self) -> Any:
        self.preload()
        return self._ahead[0][0] if self._ahead else None

    @property
    def next_target(self) -> Any:
        self.preload()
        return self._ahead[0][1] if self._ahead else None

    @property
    def stream(self) -> Any:
        return None if self.device.type == "cpu" else devices.StreamSide(self.device).consumer()

    def __len__(self) -> int:
        return len(self.loader)  # type: ignore[arg-type]

    def __bool__(self) -> bool:
        return True  # because `if prefetcher:` must not ask for a length, as with Apex

    def close(self) -> None:
        """Ends the pass early, and frees its threads and pinned memory. Idempotent."""
        self._delivery.close()


class _Source:
    """One pass over pairs, which runs ahead if the loader has workers."""

    def __init__(self, batches: Iterator[Any], loader: Any) -> None:
        self.batches = batches
        self.num_workers = getattr(loader, "num_workers", 0)

    def __iter__(self) -> Iterator[Any]:
        return map(_pair, self.batches)


def _pair(batch: Any) -> Any:
    if isinstance(batch, list | tuple) and len(batch) == 2:
        return batch
    what = type(batch).__name__
    if isinstance(batch, list | tuple):
        what += f" of {len(batch)}"
    raise TypeError(
        f"data_prefetcher takes batches of (input, target), the loader gave a {what}; "
        "fastloader.DevicePrefetcher takes batches of any structure"
    )


def _images(batch: Any) -> torch.Tensor | None:
    images = batch[0] if isinstance(batch, list | tuple) and batch else None
    return images if isinstance(images, torch.Tensor) else None


def _has_floats(batch: Any) -> bool:
    images = _images(batch)
    return images is not None and images.is_floating_point()


def _is_channels_last(batch: Any) -> bool:
    """Returns whether images are channels_last, as Apex's fast_collate makes them if it is told so."""
    images = _images(batch)
    return (
        images is not None
        and images.dim() == 4
        and images.is_contiguous(memory_format=torch.channels_last)
        and not images.is_contiguous()
    )
