"""``fast_collate``: samples with pictures of bytes to one batch, and what seeds its workers."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils.data import default_collate, get_worker_info


def fast_collate(batch: Sequence[Any]) -> tuple[torch.Tensor, torch.Tensor]:
    """timm's: samples ``(picture, target, ...)`` to ``(pictures, targets)``.

    Args:
        batch: tuples. A picture is a uint8 tensor or array (C, H, W), or a tuple of k such, as
            augmentation splits give them; what stands behind the target is dropped.

    Returns:
        uint8 (B, C, H, W) and the targets, those of one dimension as int64. Of k pictures a sample, the
        first ones of all samples come first: (k * B, C, H, W), the targets repeated k times.

    Raises:
        TypeError: a sample that is no tuple; pictures that are not bytes, which timm would cut to
            bytes silently. ValueError: samples of different numbers of pictures.
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
    """timm's ``worker_seeding`` as a worker_init_fn: "all" seeds NumPy from torch's seed of the worker,
    "part" leaves NumPy alone, a function of torch's worker info gives the seed of all three."""

    def __init__(self, seeding: str | Callable[[Any], int]) -> None:
        if not callable(seeding) and seeding not in ("all", "part"):
            raise ValueError(
                f"worker_seeding={seeding!r}: use 'all', 'part' or a function of torch's worker info"
            )
        self.seeding = seeding

    @property
    def usual(self) -> bool:
        """Whether nothing of it is left to do where there are no worker processes."""
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
