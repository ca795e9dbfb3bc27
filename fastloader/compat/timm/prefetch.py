"""``PrefetchLoader``: batches on the device, normalised, under timm's interface."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch

from fastloader._core.batch.augmentation.augmentation import Augmentation
from fastloader._core.batch.augmentation.erasing import RandomErasing
from fastloader._core.machine import devices
from fastloader.compat.timm.mixup import FastCollateMixup
from fastloader.loader import FastLoader
from fastloader.prefetcher import DevicePrefetcher

_log = logging.getLogger("fastloader")

IMAGENET_DEFAULT_MEAN = (0.485, 0.456, 0.406)
IMAGENET_DEFAULT_STD = (0.229, 0.224, 0.225)


class PrefetchLoader:
    """Gives ``(input, target)`` on the device, with normalised inputs, while the next are on their way.

    Args:
        loader: Gives pairs. Inputs are uint8 (N, C, H, W), as `fast_collate` makes them, or NHWC. A
            FastLoader with its own device, mean, std and dtype is taken as it is if they are those
            below. Otherwise it is a ValueError.
        mean, std: A number, or one per channel, in 0..1; default ImageNet's. With another number of
            channels their average is taken, with a warning.
        channels: The number of channels of the inputs, 1 to 4; default 3.
        device: "auto" (default) takes an accelerator if there is one, else the CPU. Others are as in
            FastLoader: a device that is given and does not exist is a ValueError. (timm's default is
            "cuda".)
        img_dtype: The type of the inputs: torch.float32 (default, also for None), float16 or bfloat16.
            ``fp16=True`` is float16 and wins.
        re_prob: The probability that parts of an input are erased, after normalisation; default 0.
        re_mode: "const" (default: 0, the mean), "rand" (a normal deviate per channel) or "pixel" (one
            per value).
        re_count: The most boxes; default 1.
        re_num_splits: If it is above 1, the first ``1 / re_num_splits`` of a batch stays whole; default
            0.

    Inputs arrive as ``(x/255 - mean)/std``, computed in float32 and rounded once. Targets arrive as
    they are. If the loader's collate_fn is a `FastCollateMixup`, it only collates from now on, and the
    kernel that normalises also mixes: targets then arrive as float32 (B, num_classes). Inputs and
    targets belong to the stream that is current when they are taken.

    Attributes: ``loader``, ``device``, ``img_dtype``, ``random_erasing``; ``mean``, ``std``: tensors
    (1, C, 1, 1) on the device, in 0..255; ``is_cuda``, ``is_npu``; ``stream``: the stream on which the
    batches are ordered, None on the CPU; ``sampler``, ``batch_sampler``, ``dataset``: the loader's.

    Raises:
        TypeError, ValueError: for arguments that cannot work, at once; for a batch that is no pair or
            has no image, in the batch's place.
        Exception: what the loader raises, in its place.
    """

    def __init__(
        self,
        loader: Iterable[Any],
        mean: float | Sequence[float] = IMAGENET_DEFAULT_MEAN,
        std: float | Sequence[float] = IMAGENET_DEFAULT_STD,
        channels: int = 3,
        device: str | int | torch.device = "auto",
        img_dtype: torch.dtype | None = None,
        fp16: bool = False,
        re_prob: float = 0.0,
        re_mode: str = "const",
        re_count: int = 1,
        re_num_splits: int = 0,
    ) -> None:
        means, stds = adapt_to_chs(mean, channels), adapt_to_chs(std, channels)
        self.loader: Any = loader
        self.img_dtype = torch.float16 if fp16 else img_dtype or torch.float32
        if device is None:
            raise TypeError("device=None: name a device, or 'auto'")
        self._means, self._stds = means, stds
        self._inside: FastLoader[Any] | DevicePrefetcher[Any]
        if isinstance(loader, FastLoader) and loader._runtime.delivery.normalization is not None:
            _check_delivery(loader, device, means, stds, self.img_dtype)
            self._inside, delivery = loader, loader._runtime.delivery
        else:
            self._inside = DevicePrefetcher(
                _Pairs(loader), device, mean=means, std=stds, dtype=self.img_dtype, image_key=0
            )
            delivery = self._inside._delivery
        self._delivery = delivery
        self.random_erasing = None
        if re_prob > 0:
            self.random_erasing = RandomErasing(
                re_prob, mode=re_mode, max_count=re_count, num_splits=re_num_splits
            )
        mixing = getattr(loader, "collate_fn", None)
        if isinstance(mixing, FastCollateMixup):
            mixing.in_kernel = True
        else:
            mixing = None
        if self.random_erasing is not None or mixing is not None:
            # timm's AugMixDataset
            splits = getattr(getattr(loader, "dataset", None), "num_splits", 0)
            delivery.augment(Augmentation(self.random_erasing, mixing, splits=splits))

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        # No generator that closes the epoch: one that a module keeps may end when the process does, and
        # then the names of other modules are None. An epoch that nobody keeps ends by itself.
        return map(_pair, iter(self._inside))

    def __len__(self) -> int:
        return len(self.loader)

    @property
    def sampler(self) -> Any:
        return self.loader.sampler

    @property
    def batch_sampler(self) -> Any:
        return self.loader.batch_sampler

    @property
    def dataset(self) -> Any:
        return self.loader.dataset

    @property
    def mixup_enabled(self) -> bool:
        """Whether a FastCollateMixup, ours or timm's, is the loader's collate_fn and mixes. Setting this
        acts on batches that are not drawn yet. Without such a collate_fn it does nothing, as in timm."""
        return bool(getattr(self.loader.collate_fn, "mixup_enabled", False))

    @mixup_enabled.setter
    def mixup_enabled(self, enabled: bool) -> None:
        if hasattr(self.loader.collate_fn, "mixup_enabled"):
            self.loader.collate_fn.mixup_enabled = enabled

    @property
    def device(self) -> torch.device:
        """The device that batches go to. It may lack its number before the first ``iter()``."""
        return self._delivery.device or torch.device("cpu")

    @property
    def mean(self) -> torch.Tensor:
        return self._on_device(self._means)

    @property
    def std(self) -> torch.Tensor:
        return self._on_device(self._stds)

    def _on_device(self, values: tuple[float, ...]) -> torch.Tensor:
        scaled = [value * 255 for value in values]
        return torch.tensor(scaled, dtype=self.img_dtype, device=self.device).view(1, -1, 1, 1)

    @property
    def is_cuda(self) -> bool:
        return self.device.type == "cuda"

    @property
    def is_npu(self) -> bool:
        return self.device.type == "npu"

    @property
    def stream(self) -> Any:
        return None if self.device.type == "cpu" else devices.StreamSide(self.device).consumer()

    def stats(self) -> dict[str, Any]:
        """See `FastLoader.stats`."""
        return {**self._inside.stats()}

    def close(self) -> None:
        """Ends live iterators and threads, and frees pinned memory. Idempotent. Iterating afterwards
        starts anew."""
        self._inside.close()


def adapt_to_chs(values: float | Sequence[float], channels: int) -> tuple[float, ...]:
    """One number per channel; see `PrefetchLoader`."""
    if not isinstance(values, Sequence):
        return (float(values),) * channels
    if len(values) == channels:
        return tuple(float(value) for value in values)
    adapted = (float(sum(values) / len(values)),) * channels
    _log.warning(
        "Pretrained mean/std different shape than model, using avg value %s.", adapted
    )  # timm's words
    return adapted


def _check_delivery(
    loader: FastLoader[Any],
    device: str | int | torch.device,
    mean: tuple[float, ...],
    std: tuple[float, ...],
    dtype: torch.dtype,
) -> None:
    delivery = loader._runtime.delivery
    made = delivery.normalization
    assert made is not None
    asked = delivery.spec.arguments[0]
    own: tuple[Any, ...] = ("cpu" if asked is None else asked, made.mean, made.std, made.dtype)
    if own[0] != device:  # perhaps two names of the same device
        own = (devices.resolve_device(own[0]), *own[1:])
        device = devices.resolve_device(device) or torch.device("cpu")
    if own != (device, mean, std, dtype):
        raise ValueError(
            "the loader's batches are delivered and normalised by itself, to "
            f"device={own[0]}, mean={own[1]}, std={own[2]}, dtype={own[3]}, and PrefetchLoader was "
            f"asked for device={device}, mean={mean}, std={std}, dtype={dtype}: drop those arguments "
            "there, or give the same here"
        )


class _Pairs:
    """A loader whose batches are checked before they are delivered."""

    def __init__(self, loader: Iterable[Any]) -> None:
        if not hasattr(loader, "__iter__"):
            raise TypeError(f"loader must yield batches, got {type(loader).__name__}")
        self.loader = loader
        self.num_workers = getattr(loader, "num_workers", 0)
        self.persistent_workers = getattr(loader, "persistent_workers", False)

    def __iter__(self) -> Iterator[Any]:
        return map(_pair, self.loader)

    def __len__(self) -> int:
        return len(self.loader)  # type: ignore[arg-type]


def _pair(batch: Any) -> tuple[Any, Any]:
    if isinstance(batch, list | tuple) and len(batch) == 2:
        return batch[0], batch[1]
    what = type(batch).__name__
    if isinstance(batch, list | tuple):
        what += f" of {len(batch)}"
    raise TypeError(
        f"PrefetchLoader takes batches of (input, target), the loader gave a {what}; "
        "fastloader.DevicePrefetcher takes batches of any structure"
    )
