"""What the samples of an epoch are drawn by."""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Mapping
from typing import Any

import numpy as np
from torch.utils.data import Subset

from fastloader._core.order.states.generators import splitmix64
from fastloader.errors import Error


@dataclasses.dataclass
class EpochKeys:
    """What the samples of an epoch are drawn by.

    ``seed``: the epoch's. ``repeats``: whether a sample may be visited twice, so that the position in
    the epoch joins the key. ``first``: the position of the first sample. ``iterable``: whether the
    dataset has no indices; a sample's key is its position then, or that of `WorkerSamples` which has
    begun with ``before``.
    """

    seed: int
    repeats: bool
    first: int
    iterable: bool
    before: Mapping[int, int]

    def of(
        self, dataset: Any, samples: int | None, index: Any, position: int
    ) -> tuple[list[int], list[int]]:
        """The keys and the seeds of a batch of so many samples; None for a sample that is not batched.
        ``index``: what it was asked for by. ``position``: that of its first sample.

        Raises:
            Error: if there are more samples than indices, or fewer.
        """
        # As torch takes them, of a tuple or a tensor, too.
        indices = [index] if samples is None else list(index)
        count = 1 if samples is None else samples
        # An iterable dataset may end within a batch.
        if self.iterable:
            indices = indices[:count]
        if len(indices) != count:
            raise Error(
                f"the dataset made {count} samples of {len(indices)} indices; EncodedImages are drawn "
                "by their samples' indices"
            )
        positions = range(self.first + position, self.first + position + len(indices))
        if self.iterable:
            return list(positions), [self.seed]
        keys = [sample_key(dataset, index, at) for index, at in zip(indices, positions)]
        if not self.repeats:
            return keys, [self.seed]
        return keys, [splitmix64(self.seed, at) for at in positions]


def repeats_below(dataset: Any) -> bool:
    """Whether its Subsets may name a sample of the dataset below them more than once."""
    names: Any = None
    while type(dataset) is Subset:
        its = np.asarray(dataset.indices)
        if its.dtype.kind not in "iu":
            return True
        names = its if names is None else its[names]
        dataset = dataset.dataset
    return names is not None and len(np.unique(names)) < len(names)


def sample_key(dataset: Any, index: Any, position: int) -> int:
    """The number of a sample: its index, below any Subset that index there. The position stands for an
    index that is no number."""
    try:
        number = operator.index(index)
        while type(dataset) is Subset:
            number = operator.index(dataset.indices[number])
            dataset = dataset.dataset
        return number if number >= 0 else number + len(dataset)
    except (TypeError, IndexError, KeyError):
        return position


_WORKER = 32  # the lowest bit of the number that is its worker's


class WorkerSamples:
    """Counts what each worker has made of an iterable dataset in an epoch. A sample's number is its
    worker's and how many that worker has made before. Batches of one worker come in their order, so that
    the number does not depend on which worker is faster, or ends sooner. The position among all samples
    would depend on it.

    ``before``: how many each worker had made when the state was saved from which the epoch goes on.
    """

    def __init__(self, before: Mapping[int, int]) -> None:
        self._made = dict(before)

    def take(self, worker: int, samples: int) -> int:
        """The number of the first sample of the worker's next batch, which has so many."""
        made = self._made.get(worker, 0)
        self._made[worker] = made + samples
        return (worker << _WORKER) + made
