"""Index batches with the seeds of their samples."""

from __future__ import annotations

from typing import Any

from torch.utils.data import dataloader

from fastloader._core.order.epoch_order import EpochOrder
from fastloader._core.order.loader import Loader
from fastloader._core.order.position import Position
from fastloader._core.pictures.crop_seeds import CropSeeds
from fastloader._core.pictures.in_place.in_place import InPlace


class SeedingIterator(dataloader._BaseDataLoaderIter):
    """Draws index batches for torch's iterators. A dataset that stands in the place of the loader's gets
    them with the seeds of their samples."""

    _position: Position
    _dataset: Any
    _seeds: CropSeeds | None = None  # of the epoch, if such a dataset makes the samples
    _drawn: Any = None  # what the sampler gave last

    def _begin_seeds(self, loader: Loader) -> None:
        """Begins what the loader draws in an epoch. To be called once in each, when torch's seed is
        drawn and no index is."""
        if not self._position.beginning:  # made without iter(loader)
            return
        order = EpochOrder(self._position, loader)
        self._begin_draws(order, order.epoch_seed(int(self._base_seed)))

    def _begin_draws(self, order: EpochOrder, seed: int) -> None:
        """``seed``: the epoch's."""
        if isinstance(self._dataset, InPlace):
            self._seeds = self._dataset.begin_epoch(order, seed)

    def _next_index(self) -> Any:
        self._drawn = keys = super()._next_index()
        if self._seeds is None:
            return keys
        return self._seeds.beside(keys, len(self._dataset), self._auto_collation)
