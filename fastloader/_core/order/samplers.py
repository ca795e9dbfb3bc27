"""The samplers that a loader has now."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

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

from fastloader._core.machine import default_device
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

    def set_epoch(self, epoch: int) -> None:
        """Tells the epoch to samplers that have a ``set_epoch``, except a ShardSampler, which only keeps
        the number."""
        for each in {id(each): each for each in (self.sampler, self.inner)}.values():
            if each is not self.shard and hasattr(each, "set_epoch"):
                each.set_epoch(epoch)
