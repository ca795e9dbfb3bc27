"""``distributed=``: which samples belong to which rank."""

from __future__ import annotations

import copy
import os
import warnings
from typing import Any

import torch
from torch import distributed
from torch.utils.data import BatchSampler, Dataset, DistributedSampler, IterableDataset, Sampler

from fastloader._core.machine.identity import is_a
from fastloader._core.machine.messages.callers import callers
from fastloader._core.order.loader import Loader
from fastloader.errors import Error

POLICIES = ("pad", "drop", "exact")


class ShardSampler(DistributedSampler[int]):
    """Gives this rank's share of the dataset, index for index as torch's DistributedSampler. The order
    of an epoch is ``randperm`` seeded with ``seed + epoch``, and rank r of W takes every W-th sample
    from the r-th. ``epoch`` is the number of the next epoch, which `FastLoader` counts: see `Looks`.

    Args:
        policy: what becomes of the uneven end. "pad" repeats samples from the beginning until all ranks
            have the same number. "drop" leaves the rest out. "exact" gives each sample once, so that
            some ranks have one more than others.
    """

    def __init__(self, dataset: Any, shuffle: bool, seed: int, policy: str) -> None:
        super().__init__(dataset, shuffle=shuffle, seed=seed, drop_last=policy == "drop")
        self.policy = policy
        self.told = False  # whether somebody has set the epoch since the loader looked
        if policy == "exact":
            self.num_samples = len(range(self.rank, len(dataset), self.num_replicas))
            self.total_size = len(dataset)

    def extremes(self) -> tuple[int, int]:
        """The most samples and the fewest that a rank has."""
        if self.policy != "exact":
            return self.num_samples, self.num_samples
        count, ranks = len(self.dataset), self.num_replicas  # type: ignore[arg-type]
        return -(-count // ranks), count // ranks

    def set_epoch(self, epoch: int) -> None:
        super().set_epoch(epoch)
        self.told = True

    def __iter__(self) -> Any:
        # FastLoader does not call this. A caller may be a framework that shards as well.
        if self.num_replicas > 1:
            _refuse_second_sharding(self)
        return iter(share(self, self.epoch))


def _refuse_second_sharding(shard: ShardSampler) -> None:
    """Raises Error if one of the samplers that ask this one, one through the other, would deal its
    indices out to ranks once more."""
    samplers = True  # while the callers so far are samplers, or datasets made of samplers
    for frame in callers():
        asks = frame.f_locals.get("self")
        samplers = samplers and (asks is None or isinstance(asks, Sampler | Dataset))
        again = samplers and asks is not shard and _deals_out(asks)
        # Accelerate has a loader whose first rank reads for all.
        if again or is_a(asks, ("accelerate.data_loader", "DataLoaderDispatcher")):
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
    """What ``sampler`` gives in an epoch, if all ranks together have already consumed ``start`` samples
    of its order. The rest is dealt out anew, so that ``start`` may come from another world size."""
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
    """Gives the copy of a loader, which has these ``attributes``, its own ShardSampler. The copy has its
    own epochs, and ``copy.copy`` shares the sampler that counts them."""
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
    """Checks FastLoader's argument ``distributed`` and makes the sampler; None if the loader goes
    without our sampler."""
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
    # The initial seed, because nothing may be drawn and the ranks' generators may be in any state.
    seed = 0 if generator is None else generator.initial_seed()
    return ShardSampler(dataset, bool(shuffle), seed, policy)


class AutoSharding:
    """``distributed="auto"`` of a loader that was given no sampler. Whether the loader deals out shares
    is decided when its sampler is first looked at, and does not change after that."""

    def __init__(self, shuffle: bool | None) -> None:
        self.shuffle = shuffle
        self.decided = False
        self._whole: Any = None  # the sampler of the whole dataset, if that was the decision

    def decide(self, loader: Loader) -> None:
        """Decides at the first look at the loader's sampler, and gives the loader a ShardSampler if
        there are ranks."""
        if self.decided:
            return
        self.decided = True
        attributes = vars(loader)  # where torch puts samplers, and frameworks read them
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
        """Checks at every ``iter()`` that the decision still holds. If a framework has put its own
        sampler in the place of the loader's, the framework deals out the shares.

        Raises:
            Error: if ranks came after the decision, and each would get the whole dataset.
        """
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
    """Makes the `AutoSharding` of a loader; None if there is nothing to decide. ``sampler`` and
    ``batch_sampler`` are the user's."""
    given = sampler is not None or batch_sampler is not None
    if policy != "auto" or given or isinstance(dataset, IterableDataset):
        return None
    return AutoSharding(shuffle)
