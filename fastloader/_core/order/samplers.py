"""The samplers that a loader has now."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import torch
from torch.utils.data import (
    BatchSampler,
    DistributedSampler,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
    dataloader,
)

from fastloader._core.machine import default_device, identity
from fastloader._core.order.distributed import shards
from fastloader._core.order.distributed.shards import ShardSampler
from fastloader._core.order.loader import Loader
from fastloader._core.order.states import generators as generator_states
from fastloader._core.order.states.stateful import is_stateful

# torch's samplers whose iterators end when they raise.
ENDED_BY_ERRORS = (
    BatchSampler,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
    dataloader._InfiniteConstantSampler,
)


def is_elastic(sampler: Any) -> bool:
    """Whether a sampler deals an epoch out to the ranks by itself, visits no index twice, and has a
    state that serves any number of ranks: a ShardwiseSampler. Its class says so. A subclass, which may
    give another order, has to say so itself."""
    return vars(type(sampler)).get("elastic") is True


def beneath(sampler: Any) -> Iterator[Any]:
    """Gives ``sampler``, and then the samplers that it asks, one through the other."""
    for _ in range(_DEEPEST):
        yield sampler
        inner = (getattr(sampler, name, None) for name in ("batch_sampler", "sampler"))
        sampler = next((each for each in inner if each is not None), None)
        if sampler is None:
            return


_DEEPEST = 16  # of samplers that ask each other, should they do so in a circle


def may_repeat(sampler: Any) -> bool:
    """Whether a sampler may give an index twice in an epoch; True if that is unknown, as of a class
    whose methods were replaced. The distributed ones, and Accelerate's, repeat a few at the end, which
    do not count."""
    accelerate: Any = sys.modules.get("accelerate.data_loader")
    theirs = tuple(
        getattr(accelerate, name, None)
        for name in ("BatchSamplerShard", "SkipBatchSampler", "SeedableRandomSampler")
    )
    with identity.one_look():
        for each in beneath(sampler):
            kind = type(each)
            known = kind in _REPEATS or kind is BatchSampler or kind in theirs
            if known and identity.change(kind, kind):
                return True  # it gives whatever it was made to give
            if kind is BatchSampler or kind in theirs[:2] or vars(kind).get("regroups") is True:
                continue  # it gives what the one beneath gives
            if kind is theirs[2]:
                kind = RandomSampler
            return _REPEATS[kind](each) if kind in _REPEATS else not is_elastic(each)
    return True


def holds_twice(indices: Any) -> bool:
    """Whether two of these indices are of one sample; True if that is unknown."""
    try:
        numbers = np.asarray(indices)
    except (TypeError, ValueError):
        return True
    if numbers.size == 0:
        return False
    # One that counts from the end may be of a sample that another one counts from the beginning.
    if numbers.dtype.kind not in "iu" or numbers.min() < 0:
        return True
    if numbers.max() < 8 * numbers.size:  # counting takes a hundredth of sorting
        return bool(np.bincount(numbers.ravel().astype(np.int64)).max() > 1)
    ordered = np.sort(numbers, axis=None)
    return bool((ordered[1:] == ordered[:-1]).any())


def _never(_sampler: Any) -> bool:
    return False


# torch's samplers and ours, and whether one of them gives an index twice.
_REPEATS: dict[type, Callable[[Any], bool]] = {
    SequentialSampler: _never,
    DistributedSampler: _never,
    ShardSampler: _never,
    # Its own data, because the loader's dataset need not have a length.
    RandomSampler: lambda its: its.replacement or its.num_samples > len(its.data_source),
    WeightedRandomSampler: lambda its: its.replacement,
    SubsetRandomSampler: lambda its: holds_twice(its.indices),
}


class Samplers:
    """The sampler that gives a loader's index batches, and the sampler beneath it."""

    def __init__(self, loader: Loader) -> None:
        self.follow(loader)

    def follow(self, loader: Loader) -> None:
        """Takes the loader's samplers as they are now. Subclasses replace them after construction (timm,
        ultralytics), and frameworks replace what a BatchSampler groups (accelerate)."""
        # Asked of the loader, because a subclass may have its own property.
        self.sampler = loader._index_sampler
        # A BatchSampler only groups, so samples can be counted and skipped one by one beneath it.
        grouping = self.sampler is loader.batch_sampler and type(self.sampler) is BatchSampler
        self.batching = self.sampler if grouping else None
        self.inner: Any = self.sampler if self.batching is None else self.batching.sampler
        names = [type(self.sampler).__qualname__, type(self.inner).__qualname__]
        self.name = names[0] if self.inner is self.sampler else f"{names[0]} of {names[1]}"
        # The kinds whose shares we can compute for any world size, and the kind whose epochs we count.
        self.shared = type(self.inner) in (ShardSampler, DistributedSampler)
        self.shard = self.inner if type(self.inner) is ShardSampler else None
        # Its state serves any world size, and so its length is no mark of it.
        self.elastic = is_elastic(self.inner)
        # Whether it draws again by itself what was drawn before its state, and leaves the global
        # generator alone for that: it may draw something new from there right after.
        self.draws_again = vars(type(self.sampler)).get("draws_again") is True
        self.rank = _rank_of(self.sampler)
        self.stateful: Any = next((s for s in (self.sampler, self.inner) if is_stateful(s)), None)

    def generators(self, loader: Loader) -> list[torch.Generator]:
        owners = (loader, self.sampler, self.inner)
        return generator_states.distinct(*[getattr(owner, "generator", None) for owner in owners])

    def open(self, epoch: int, draw: Callable[[Any], Iterator[Any]]) -> Iterator[Any]:
        """The index batches of an epoch, from its beginning."""
        if self.shard is not None:  # not by its own __iter__, which gives the next epoch
            return self.batched(shards.share(self.shard, epoch))
        return default_device.drawn(self.inner, draw(self.sampler))

    def batched(self, keys: Iterable[Any]) -> Iterator[Any]:
        if self.batching is None:
            return iter(keys)
        return iter(BatchSampler(keys, self.batching.batch_size, self.batching.drop_last))

    def ends_unevenly_at_once(self) -> bool:
        """Whether some rank has less than two batches of the ShardSampler's epoch, and another one has
        more than that rank, so that not all can be asked for a second batch."""
        if self.shard is None:
            return False
        size, drop_last = 1, False
        if self.batching is not None:
            size, drop_last = self.batching.batch_size, self.batching.drop_last
        most, fewest = (
            samples // size if drop_last else -(-samples // size)
            for samples in self.shard.extremes()
        )
        return fewest < min(2, most)

    def set_epoch(self, epoch: int) -> None:
        """Tells the epoch to samplers that have a ``set_epoch``, except a ShardSampler, which only keeps
        the number."""
        for each in {id(each): each for each in (self.sampler, self.inner)}.values():
            if each is not self.shard and hasattr(each, "set_epoch"):
                each.set_epoch(epoch)


def _rank_of(sampler: Any) -> int:
    """The rank whose samples a sampler gives, or one that it asks; 0 if none has one."""
    ranks = (getattr(each, "rank", None) for each in beneath(sampler))
    return next((rank for rank in ranks if isinstance(rank, int)), 0)
