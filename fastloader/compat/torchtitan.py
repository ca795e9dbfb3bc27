"""torchtitan's data loader, over a FastLoader.

from fastloader.compat.torchtitan import TitanLoader
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torchtitan.components.dataloader import BaseDataLoader

from fastloader.compat.dcp import OneKeyState
from fastloader.errors import Error
from fastloader.loader import FastLoader

__all__ = ["TitanLoader"]


class TitanLoader(BaseDataLoader):
    """A FastLoader as the ``dataloader`` of torchtitan's trainer::

        sampler = DistributedSampler(dataset, dp_world_size, dp_rank)
        return TitanLoader(FastLoader(dataset, batch_size, sampler=sampler, collate_fn=collate))

    The batches are the loader's. torchtitan wants ``({"input": tokens}, labels)``, which is the
    ``collate_fn``'s affair. Its trainer holds the end of the data to be an error, so that one epoch
    follows another without end, and each is numbered for the loader's samplers.

    The state lies under one key that is the same on every rank (`OneKeyState`), so that a checkpoint can
    be loaded on another number of ranks, which torchtitan's own loader refuses. Ranks with tensor or
    pipeline parallelism share the samples of their data-parallel rank: give such a loader a
    DistributedSampler with the data-parallel rank, as above, and not ``distributed=``, which divides the
    samples among all processes.

    Args:
        loader: the FastLoader.
        endless: True (default) begins the next epoch where one ends, and False ends with the epoch, for
            validation.

    Raises:
        TypeError: if ``loader`` is no FastLoader.
        Error: from ``next()`` if an endless loader gives no batch in a whole epoch.
    """

    def __init__(self, loader: FastLoader[Any], endless: bool = True) -> None:
        self._state = OneKeyState(loader)
        self.loader = loader
        self.endless = endless

    def __iter__(self) -> Iterator[Any]:
        position = self.loader._runtime.position
        gave = True
        while True:
            self.loader.set_epoch(position.epoch)
            gave_before, gave = gave, False
            for batch in self.loader:
                gave = True
                yield batch
            if not self.endless:
                return
            # One pass without a batch is the rest of an epoch whose last batch was the checkpoint's.
            if not gave and not gave_before:
                raise Error(
                    "the loader gave no batch in a whole epoch, so that an endless TitanLoader would "
                    "never give one: the dataset is empty, or smaller than batch_size with drop_last"
                )

    def state_dict(self) -> dict[str, Any]:
        return self._state.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        if state_dict:  # torchtitan gives an empty one for a checkpoint without a loader
            self._state.load_state_dict(state_dict)
