"""What the samples of an epoch are drawn by."""

from __future__ import annotations

import bisect
import dataclasses
import operator
from collections.abc import Mapping
from typing import Any

import numpy as np
from torch.utils.data import ConcatDataset, Subset

from fastloader._core.machine.torch_datasets import kind_of
from fastloader._core.order.generators import splitmix64
from fastloader._core.order.position import holds_twice
from fastloader.errors import Error


@dataclasses.dataclass(frozen=True)
class DrawnBy:
    """The samples of a batch. ``numbers``: their indices in the user's dataset, by which `replay` and
    messages know them. ``keys``: what each is drawn by. ``seeds``: one for each, or one for all."""

    numbers: list[int]
    keys: list[int]
    seeds: list[int]


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

    def of(self, dataset: Any, samples: int | None, index: Any, position: int) -> DrawnBy:
        """What a batch of so many samples is drawn by; None for a sample that is not batched.
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
            return DrawnBy(list(positions), list(positions), [self.seed])
        numbers = [_number(dataset, index, at) for index, at in zip(indices, positions)]
        keys = [sample_key(dataset, index, at) for index, at in zip(indices, positions)]
        seeds = [splitmix64(self.seed, at) for at in positions] if self.repeats else [self.seed]
        return DrawnBy(numbers, keys, seeds)


def repeats_below(dataset: Any) -> bool:
    """Whether two of its indices are of one sample of the datasets below it."""
    try:
        keys = _keys_below(dataset)
    except (TypeError, ValueError, IndexError):  # which the dataset's own code raises, too
        return True
    return keys is not None and holds_twice(keys)


def _keys_below(dataset: Any) -> Any | None:
    """`sample_key` of each of its indices; None if these are the same."""
    if kind_of(dataset) is Subset:
        below: Any = dataset.dataset
        its = np.asarray(dataset.indices)
        its = np.where(its < 0, its + len(below), its)
        keys = _keys_below(below)
        return its if keys is None else keys[its]
    if kind_of(dataset) is not ConcatDataset:
        return None
    parts = [_keys_below(each) for each in dataset.datasets]
    if all(each is None for each in parts):
        return None
    whole = zip(parts, dataset.datasets)
    parts = [np.arange(len(its)) if keys is None else keys for keys, its in whole]
    before = np.cumsum([0, *map(_count_below, dataset.datasets)])
    return np.concatenate([keys + start for keys, start in zip(parts, before)])


def _count_below(dataset: Any) -> int:
    """How many samples the datasets have that it is a selection of."""
    if kind_of(dataset) is Subset:
        return _count_below(dataset.dataset)
    if kind_of(dataset) is ConcatDataset:
        return sum(map(_count_below, dataset.datasets))
    return len(dataset)


def sample_key(dataset: Any, index: Any, position: int) -> int:
    """The number of a sample below any Subset, that it has with a folder of its files, too. Those of the
    parts of a ConcatDataset are numbered through. The position stands for an index that is no number."""
    try:
        return _key_below(dataset, operator.index(index))
    except (TypeError, IndexError, KeyError):
        return position


def _key_below(dataset: Any, number: int) -> int:
    number = number + len(dataset) if number < 0 else number
    if kind_of(dataset) is Subset:
        return _key_below(dataset.dataset, operator.index(dataset.indices[number]))
    if kind_of(dataset) is not ConcatDataset:
        return number
    part = bisect.bisect_right(dataset.cumulative_sizes, number)
    start = dataset.cumulative_sizes[part - 1] if part else 0
    before = sum(map(_count_below, dataset.datasets[:part]))
    return before + _key_below(dataset.datasets[part], number - start)


def _number(dataset: Any, index: Any, position: int) -> int:
    """An index of the sampler's as a number from 0 on; the position for one that is no number."""
    try:
        number = operator.index(index)
        return number if number >= 0 else number + len(dataset)
    except TypeError:
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
