"""``Mixup`` and ``FastCollateMixup``, which mix by themselves or in the kernel that normalises, and
``fast_collate``."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils.data import default_collate, get_worker_info

from fastloader._core.batch.augment_in_torch import augment_bytes, augment_floats
from fastloader._core.batch.augmentation import Augmentation, EpochDraws, Mixing, Records

# ---- ``fast_collate``, which makes one batch of samples with pictures of bytes, and workers'
# seeding.


def fast_collate(batch: Sequence[Any]) -> tuple[torch.Tensor, torch.Tensor]:
    """Makes ``(pictures, targets)`` of samples ``(picture, target, ...)``, as timm's.

    Args:
        batch: Tuples. A picture is a uint8 tensor or array (C, H, W), or a tuple of k such, as
            augmentation splits give them. What follows the target is dropped.

    Returns:
        uint8 (B, C, H, W) and the targets; targets of one dimension become int64. With k pictures a
        sample, the first ones of all samples come first: (k * B, C, H, W), with targets repeated k
        times.

    Raises:
        TypeError: for a sample that is no tuple, and for pictures that are not bytes, which timm would
            cut to bytes silently.
        ValueError: for samples with different numbers of pictures.
    """
    if not isinstance(batch[0], tuple):
        raise TypeError(f"fast_collate takes tuples (picture, target), got {_shown(batch[0])}")
    pictures = [sample[0] for sample in batch]
    targets = default_collate([sample[1] for sample in batch])
    if targets.ndim == 1:
        targets = targets.long()
    if isinstance(pictures[0], tuple):
        splits = len(pictures[0])
        if any(len(picture) != splits for picture in pictures):
            counts = sorted({len(picture) for picture in pictures})
            raise ValueError(f"the samples of a batch hold different numbers of pictures: {counts}")
        pictures = [picture[split] for split in range(splits) for picture in pictures]
        targets = targets.repeat((splits,) + (1,) * (targets.ndim - 1))
    for picture in pictures:
        if not isinstance(picture, torch.Tensor | np.ndarray) or str(picture.dtype)[-5:] != "uint8":
            raise TypeError(
                "fast_collate takes pictures as uint8 tensors or arrays (C, H, W), got "
                f"{_shown(picture)}; end the transform in PILToTensor, or give a collate_fn of your own"
            )
    return default_collate(pictures), targets


def _shown(value: Any) -> str:
    dtype = getattr(value, "dtype", None)
    return type(value).__name__ + ("" if dtype is None else f" of {dtype}")


class WorkerSeeding:
    """timm's ``worker_seeding`` as a worker_init_fn. "all" seeds NumPy from torch's seed of the worker,
    and "part" leaves NumPy alone. A function of torch's worker info gives the seed of Python, torch and
    NumPy."""

    def __init__(self, seeding: str | Callable[[Any], int]) -> None:
        if not callable(seeding) and seeding not in ("all", "part"):
            raise ValueError(
                f"worker_seeding={seeding!r}: use 'all', 'part' or a function of torch's worker info"
            )
        self.seeding = seeding

    @property
    def usual(self) -> bool:
        """Whether there is nothing to do without worker processes."""
        return not callable(self.seeding)

    def __call__(self, worker_id: int) -> None:
        info = get_worker_info()
        if callable(self.seeding):
            seed = self.seeding(info)
            random.seed(seed)
            torch.manual_seed(seed)
            np.random.seed(seed % (2**32 - 1))
        elif self.seeding == "all":
            assert info is not None
            np.random.seed(info.seed % (2**32 - 1))

    def __repr__(self) -> str:
        return f"WorkerSeeding({self.seeding!r})"


# ---- ``Mixup`` and ``FastCollateMixup``, which mix by themselves or in the kernel that
# normalises.


class Mixup(Mixing):
    """timm's Mixup and CutMix: ``images, targets = mixup(images, targets)``.

    Args:
        mixup_alpha, cutmix_alpha: The alphas of the beta distributions; each is used if it is above 0.
        cutmix_minmax: Makes CutMix take boxes of such shares of the edges instead.
        prob: The probability that a batch, or an element, is mixed; default 1.
        switch_prob: The probability of CutMix if both are used; default 0.5.
        mode: "batch" (default), "pair" or "elem": what has its own weight. `FastCollateMixup` also takes
            "half".
        correct_lam: Whether CutMix's weight is that of the box inside the image; default True.
        label_smoothing, num_classes: The smoothing and the number of classes of the targets.
        multi_label: Whether targets are dense, (B, num_classes); default False.

    Image i is mixed with image B-1-i, so B must be even. Draws are a function of torch's seed at the
    first batch and of the batch's number. ``mixup_enabled=False`` leaves images alone from the next
    batch on. Targets are still made float and smooth.

    Raises:
        ValueError: for arguments from which nothing can be drawn.
    """

    _before_normalize = False

    def __init__(
        self,
        mixup_alpha: float = 1.0,
        cutmix_alpha: float = 0.0,
        cutmix_minmax: Sequence[float] | None = None,
        prob: float = 1.0,
        switch_prob: float = 0.5,
        mode: str = "batch",
        correct_lam: bool = True,
        label_smoothing: float = 0.1,
        num_classes: int = 1000,
        multi_label: bool = False,
    ) -> None:
        super().__init__(
            mixup_alpha,
            cutmix_alpha,
            None if cutmix_minmax is None else (cutmix_minmax[0], cutmix_minmax[1]),
            prob,
            switch_prob,
            mode,
            correct_lam,
            label_smoothing,
            num_classes,
            multi_label,
            before_normalize=self._before_normalize,
        )
        self._draws: EpochDraws | None = None
        self._pid = 0

    @property
    def mix_prob(self) -> float:
        return self.prob

    @property
    def mixup_enabled(self) -> bool:
        return self.enabled

    @mixup_enabled.setter
    def mixup_enabled(self, enabled: bool) -> None:
        self.enabled = enabled

    def _records(self, images: torch.Tensor) -> Records:
        """Draws the records of the next batch. A worker process draws by its own seed."""
        if self._draws is None or self._pid != os.getpid():
            self._draws, self._pid = Augmentation(None, self).begin(), os.getpid()
        batch, _channels, height, width = images.shape
        return self._draws.records(batch, height, width)

    def __call__(self, x: torch.Tensor, target: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Mixes floats (B, C, H, W) and labels (B,) on any device. Returns a new batch of the same type,
        and float targets (B, num_classes)."""
        if not x.is_floating_point():
            raise TypeError(
                f"Mixup takes normalised floats, got {x.dtype}; FastCollateMixup takes bytes"
            )
        records = self._records(x)
        return augment_floats(x, records), records.mixed_target(target)


class FastCollateMixup(Mixup):
    """timm's `fast_collate` with Mixup and CutMix of bytes, as a collate_fn. It has "half" as a mode
    too.

    A `PrefetchLoader` over such a loader, and `create_loader`, mix in the kernel that normalises and not
    in the workers. Then this class only collates (``in_kernel``), and ``mixup_enabled`` also reaches the
    batches of workers that live on.
    """

    _before_normalize = True
    in_kernel = False

    def __call__(  # type: ignore[override]
        self, batch: Sequence[Any], _: Any = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        images, targets = fast_collate(batch)
        if self.in_kernel:
            return images, targets
        records = self._records(images)
        return augment_bytes(images, records), records.mixed_target(targets)
