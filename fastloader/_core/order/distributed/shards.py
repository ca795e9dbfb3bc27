"""``distributed=``: which samples are whose."""

from __future__ import annotations

import copy
import os
import warnings
from typing import Any

import torch
from torch import distributed
from torch.utils.data import BatchSampler, Dataset, DistributedSampler, IterableDataset, Sampler

from fastloader._core.machine.callers import callers
from fastloader._core.order.loader import Loader
from fastloader.errors import Error

POLICIES = ("pad", "drop", "exact")


class ShardSampler(DistributedSampler[int]):
    """This rank's share of the dataset: torch's DistributedSampler, index for index, where the order of
    an epoch is ``randperm`` seeded with ``seed + epoch`` and rank r of W takes every W-th from the r-th.

    Args:
        policy: what becomes of the uneven end. "pad": samples from the beginning are repeated until all
            ranks have as many. "drop": the rest is left out. "exact": each sample once; some ranks
            have one more than others.

    ``epoch`` is the number of the next epoch; `FastLoader` counts it up at every ``iter()``.
    """

    def __init__(self, dataset: Any, shuffle: bool, seed: int, policy: str) -> None:
        super().__init__(dataset, shuffle=shuffle, seed=seed, drop_last=policy == "drop")
        self.policy = policy
        if policy == "exact":
            self.num_samples = len(range(self.rank, len(dataset), self.num_replicas))
            self.total_size = len(dataset)

    def __iter__(self) -> Any:
        # FastLoader does not come here; who does may be a framework that shards as well.
        if self.num_replicas > 1:
            _refuse_second_sharding(self)
        return iter(share(self, self.epoch))


def _refuse_second_sharding(shard: ShardSampler) -> None:
    """Raises Error if one of the samplers that ask this one, one through the other, deals out what it
    gets once more."""
    samplers = True  # as far as samplers only, and datasets made of samplers, have asked each other
    for frame in callers():
        asks = frame.f_locals.get("self")
        samplers = samplers and (asks is None or isinstance(asks, Sampler | Dataset))
        again = samplers and asks is not shard and _deals_out(asks)
        # A loader of Accelerate's whose first rank reads for all.
        if again or type(asks).__qualname__ == "DataLoaderDispatcher":
            raise Error(
                f"distributed={shard.policy!r} gives this rank its share of the samples already, and "
                f"{type(asks).__qualname__} ({type(asks).__module__}) would deal that share out to the "
                "ranks once more: leave distributed= out where a framework shards, or do not give it "
                "the loader to prepare"
            )


def _deals_out(sampler: Any) -> bool:
    ranks = getattr(sampler, "num_processes", None) or getattr(sampler, "num_replicas", None)
    return isinstance(ranks, int) and ranks > 1


def share(sampler: DistributedSampler[Any], epoch: int, start: int = 0) -> list[int]:
    """What ``sampler`` gives in an epoch of whose order ``start`` samples are consumed already, by all
    ranks together. The rest is dealt out anew, so that ``start`` may come from another world size."""
    length = len(sampler.dataset)  # type: ignore[arg-type]
    world = sampler.num_replicas
    rest = max(0, length - start)
    policy = getattr(sampler, "policy", "drop" if sampler.drop_last else "pad")
    if policy == "pad":
        rest = -(-rest // world) * world
    elif policy == "drop":
        rest = rest // world * world
    # Samples to pad with come from the beginning of the epoch, as in DistributedSampler.
    first = start + sampler.rank
    places = torch.arange(first, max(first, start + rest), world, device="cpu") % max(length, 1)
    if not sampler.shuffle:
        return places.tolist()
    generator = torch.Generator().manual_seed(sampler.seed + epoch)
    return torch.randperm(length, generator=generator, device="cpu")[places].tolist()


def give_own_share(attributes: dict[str, Any]) -> None:
    """To the copy of a loader that has these: its epochs are its own, and so is what counts them, which
    ``copy.copy`` shares."""
    shared, batches = attributes["sampler"], attributes["batch_sampler"]
    if type(shared) is not ShardSampler:
        return
    attributes["sampler"] = own = copy.copy(shared)
    if type(batches) is BatchSampler and batches.sampler is shared:
        attributes["batch_sampler"] = BatchSampler(own, batches.batch_size, batches.drop_last)


def initialised() -> bool:
    return distributed.is_available() and distributed.is_initialized()


def make_sampler(
    policy: str | None,
    dataset: Any,
    shuffle: bool | None,
    sampler: Any,
    batch_sampler: Any,
    generator: torch.Generator | None,
) -> ShardSampler | None:
    """Checks FastLoader's argument ``distributed``; None where the loader goes without our sampler."""
    if policy is None:
        return None
    if policy not in ("auto", *POLICIES):
        raise ValueError(f"distributed={policy!r}: use None, 'auto', 'pad', 'drop' or 'exact'")
    if isinstance(sampler, ShardSampler):  # the loader is rebuilt from its attributes
        return sampler
    if isinstance(getattr(batch_sampler, "sampler", None), ShardSampler):
        return None  # likewise: Lightning's predict() wraps the batch sampler around it
    if policy == "auto":  # see AutoSharding
        return None
    given = (
        "sampler" if sampler is not None else "batch_sampler" if batch_sampler is not None else ""
    )
    iterable = isinstance(dataset, IterableDataset)
    if given:
        raise ValueError(f"distributed={policy!r} makes the sampler: leave {given} out")
    if iterable:
        raise ValueError(
            f"distributed={policy!r} deals out indices, which an iterable dataset has not: let it "
            "take its share by torch.distributed.get_rank()"
        )
    if not initialised():
        raise ValueError(
            f"distributed={policy!r} needs torch.distributed.init_process_group() before the loader is "
            "made; 'auto' goes without"
        )
    return _shard(dataset, shuffle, generator, policy)


def _shard(
    dataset: Any, shuffle: bool | None, generator: torch.Generator | None, policy: str
) -> ShardSampler:
    # initial_seed: nothing is drawn, and the ranks' generators may be anywhere.
    seed = 0 if generator is None else generator.initial_seed()
    return ShardSampler(dataset, bool(shuffle), seed, policy)


class AutoSharding:
    """``distributed="auto"`` of a loader that was given no sampler: whether it deals out shares is
    decided when its sampler is first looked at, and not changed after that."""

    def __init__(self, shuffle: bool | None) -> None:
        self.shuffle = shuffle
        self.decided = False
        self._whole: Any = None  # the sampler of the whole dataset, if that was the decision

    def decide(self, loader: Loader) -> None:
        """At the first look at a sampler of the loader, which gets its share's if there are ranks."""
        if self.decided:
            return
        self.decided = True
        attributes = vars(loader)  # where torch puts them, and frameworks read them
        if initialised():
            shard = _shard(loader.dataset, self.shuffle, loader.generator, "pad")
            attributes["sampler"] = shard
            if loader.batch_size is not None:
                attributes["batch_sampler"] = BatchSampler(
                    shard, loader.batch_size, loader.drop_last
                )
            return
        self._whole = attributes["sampler"]
        world = os.environ.get("WORLD_SIZE", "")
        if world.isdecimal() and int(world) > 1:
            warnings.warn(
                f"distributed='auto': WORLD_SIZE is {world}, but torch.distributed is not initialised, "
                "so every rank gets the whole dataset. Call torch.distributed.init_process_group() "
                "before the loader's first iter(), len() or look at its sampler; distributed=None says "
                "that it is meant so",
                RuntimeWarning,
                stacklevel=4,
            )

    def check(self, loader: Loader) -> None:
        """At every ``iter()``. A framework may have put a sampler of its own in the place of the
        loader's: then the shares are its affair."""
        if self._whole is None or not initialised():
            return
        batches = loader.batch_sampler
        drawn = loader.sampler if batches is None else getattr(batches, "sampler", None)
        if drawn is self._whole:
            raise Error(
                "distributed='auto' was decided before torch.distributed.init_process_group(), by an "
                "iter(), len() or look at the loader's sampler: it would give every rank the whole "
                "dataset. Make or use the loader after init_process_group(), or say distributed=None"
            )


def begin_auto(
    policy: str | None, dataset: Any, shuffle: bool | None, sampler: Any, batch_sampler: Any
) -> AutoSharding | None:
    """None where there is nothing to decide: ``sampler`` and ``batch_sampler`` are the user's."""
    given = sampler is not None or batch_sampler is not None
    if policy != "auto" or given or isinstance(dataset, IterableDataset):
        return None
    return AutoSharding(shuffle)
