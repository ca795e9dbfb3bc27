"""``fast_collate``, which makes one batch of samples with pictures of bytes, and workers' seeding."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils.data import default_collate, get_worker_info


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
        if any(len(each) != splits for each in pictures):
            counts = sorted({len(each) for each in pictures})
            raise ValueError(f"the samples of a batch hold different numbers of pictures: {counts}")
        pictures = [each[split] for split in range(splits) for each in pictures]
        targets = targets.repeat((splits,) + (1,) * (targets.ndim - 1))
    for each in pictures:
        if not isinstance(each, torch.Tensor | np.ndarray) or str(each.dtype)[-5:] != "uint8":
            raise TypeError(
                "fast_collate takes pictures as uint8 tensors or arrays (C, H, W), got "
                f"{_shown(each)}; end the transform in PILToTensor, or give a collate_fn of your own"
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
        """Whether nothing is left to do without worker processes."""
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
