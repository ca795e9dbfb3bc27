"""The numbers from which an epoch's crops and flips are drawn."""

from __future__ import annotations

import collections
import dataclasses
import operator
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch

from fastloader._core.order.generators import splitmix64


@dataclasses.dataclass(frozen=True)
class SeededKeys:
    """An index batch, or a single index, on its way to where Python makes the samples: ``keys`` as the
    sampler gave them, the ``numbers`` of the samples, and the seed of each, or one for all."""

    keys: Any
    numbers: list[int]
    seeds: list[int]

    def __iter__(self) -> Iterator[tuple[Any, int, int]]:
        """Gives key, number and seed of each sample."""
        seeds = self.seeds * len(self.numbers) if len(self.seeds) == 1 else self.seeds
        return zip(self.keys, self.numbers, seeds, strict=True)


class CropSeeds:
    """Gives the seeds of an epoch's crops. A crop is drawn from (base seed of the epoch, number of
    the file). If the sampler may visit an index twice (``repeats``), the position in the epoch joins
    the key. It is ``position`` for the first sample."""

    def __init__(self, base_seed: int, repeats: bool, position: int) -> None:
        self.base_seed = base_seed
        self._repeats = repeats
        self._position = position
        # Seeds by sample index, of the batches submitted last, for replay().
        self._last: collections.OrderedDict[int, int] = collections.OrderedDict()

    def of_next(self, count: int) -> list[int]:
        """The seeds of the next ``count`` samples: one for each, or one for all."""
        if self._repeats:
            start = self._position
            return [splitmix64(self.base_seed, start + i) for i in range(count)]
        return [self.base_seed]

    def beside(self, keys: Any, length: int, batched: bool) -> Any:
        """``keys`` of the sampler's with their seeds, which counts them as submitted. ``length``: how
        many samples there are. ``batched``: whether they are an index batch. Keys of which one is no
        index of a sample are returned as they are."""
        if batched and not isinstance(keys, list | tuple | torch.Tensor | np.ndarray):
            try:
                keys = list(keys)  # it may give them only once
            except TypeError:
                return keys
        try:
            numbers = [operator.index(key) for key in (keys if batched else (keys,))]
        except TypeError:
            return keys
        if not all(-length <= number < length for number in numbers):
            return keys
        numbers = [number + length if number < 0 else number for number in numbers]
        seeds = self.of_next(len(numbers))
        self.submitted(numbers, seeds)
        return SeededKeys(keys, numbers, seeds)

    def submitted(self, keys: Sequence[int], seeds: Sequence[int]) -> None:
        """Notes that a batch of these samples was submitted with these seeds."""
        self._position += len(keys)
        for i, key in enumerate(keys):
            self._last[key] = seeds[0] if len(seeds) == 1 else seeds[i]
            self._last.move_to_end(key)
        while len(self._last) > 100_000:
            self._last.popitem(last=False)

    def of(self, index: int) -> int:
        """The seed of a sample that was submitted in this epoch."""
        if index not in self._last:
            raise ValueError(
                f"sample {index} was not among the last {len(self._last)} of the epoch"
            )
        return self._last[index]
