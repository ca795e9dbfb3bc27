"""The loader of ``create_loader`` without prefetcher, which erases while it normalises."""

from __future__ import annotations

from typing import Any

from fastloader._core.batch.augmentation.augmentation import Augmentation
from fastloader._core.batch.augmentation.erasing import RandomErasing
from fastloader.compat.timm.multi_epochs import MultiEpochsDataLoader
from fastloader.loader import FastLoader


class ErasingLoader(FastLoader[Any]):
    """A FastLoader with one more argument, ``random_erasing``, which needs mean and std, or dtype. It
    is an argument, because frameworks make a loader again from its arguments and so keep it."""

    def __init__(
        self, *args: Any, random_erasing: RandomErasing | None = None, **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self.random_erasing = random_erasing
        if random_erasing is not None:
            self._runtime.delivery.augment(Augmentation(random_erasing, None))


class ErasingMultiEpochsLoader(ErasingLoader, MultiEpochsDataLoader):
    """An `ErasingLoader` for ``use_multi_epochs_loader``."""
