"""Ranks: which samples are whose, whether they agree, and how many share a machine."""

from __future__ import annotations

import copy
import itertools
import json
import os
import socket
import time
import warnings
import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch import distributed
from torch.utils.data import BatchSampler, Dataset, DistributedSampler, IterableDataset, Sampler

from fastloader._core.machine.callers import callers
from fastloader.errors import Error

POLICIES = ("pad", "drop", "exact")
PATIENCE = 300.0  # seconds that a rank waits for the others at its first iter()


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

    def decide(self, loader: Any) -> ShardSampler | None:
        self.decided = True
        if initialised():
            return _shard(loader.dataset, self.shuffle, loader.generator, "pad")
        self._whole = vars(loader)["sampler"]
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
        return None

    def check(self, loader: Any) -> None:
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


# Facts that are more than compared.
EPOCH, CONSUMED = "the epoch", "the number of samples consumed"
LENGTH, POLICY = "the dataset's length", "distributed"

# Agreements so far, for each store: ranks call iter() on their loaders for the first time in one order.
_rounds: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()
_ranks_here: int | None = None  # as counted in the last agreement


def ranks_here() -> int:
    """How many ranks share this machine's processors with this one, itself included."""
    if _ranks_here is not None:
        return _ranks_here
    try:
        return max(1, int(os.environ.get("LOCAL_WORLD_SIZE", "1")))  # set by torchrun
    except ValueError:
        return 1


def agree(facts: dict[str, Any], proposal: int) -> int:
    """Raises Error on every rank if ``facts`` are not the same on all; else returns rank 0's
    ``proposal``. The only thing in fastloader that ranks wait for each other in: once for each loader
    with ``distributed=``, through the process group's store, `PATIENCE` seconds at most."""
    global _ranks_here
    # There is no public way to the store of the default group; torch has had this since 1.8.
    store = distributed.distributed_c10d._get_default_store()
    if store is None:  # MPI
        return proposal
    world, rank = distributed.get_world_size(), distributed.get_rank()
    key = f"fastloader/agreement/{next(_rounds.setdefault(store, itertools.count()))}"
    once = os.urandom(8).hex()
    mine = {"facts": facts, "proposal": proposal, "processors": _processors(), "once": once}
    store.set(f"{key}/{rank}", json.dumps(mine))
    deadline = time.monotonic() + PATIENCE
    if rank == 0:
        verdict = _judge(store, key, world, deadline)
    else:
        # torchrun's store outlives the processes that it starts again: theirs may be there still.
        verdict = _poll(lambda: _verdict(store, key, once), deadline + 5) or {
            "error": f"rank 0 did not call iter() on its loader within {PATIENCE:g} s, or is gone"
        }
    if verdict["error"]:
        raise Error(
            f"the ranks do not agree about a loader with distributed= (the {key.rpartition('/')[2]}. to "
            f"be iterated, from 0; all ranks must take them in the same order): {verdict['error']}"
        )
    _ranks_here = verdict["sharing"][mine["processors"]]
    return int(verdict["proposal"])


def _judge(store: Any, key: str, world: int, deadline: float) -> dict[str, Any]:
    """Rank 0's part: waits for what the ranks say, compares it, and tells them."""
    names = [f"{key}/{rank}" for rank in range(world)]
    missing = list(names)

    def all_are_there() -> bool:
        missing[:] = [name for name in missing if not store.check([name])]
        return not missing

    _poll(all_are_there, deadline)
    present = [json.loads(store.get(name)) for name in names if name not in missing]
    if missing:
        ranks = ", ".join(name.rpartition("/")[2] for name in missing)
        verdict: dict[str, Any] = {
            "error": f"rank {ranks} did not call iter() on its loader within {PATIENCE:g} s"
        }
    else:
        verdict = _compare(present)
    verdict["present"] = [each["once"] for each in present]
    for name in names:
        store.delete_key(name)
    store.set(f"{key}/verdict", json.dumps(verdict))
    return verdict


def _verdict(store: Any, key: str, once: str) -> dict[str, Any] | None:
    """The verdict, if it is about what this process said."""
    if not store.check([f"{key}/verdict"]):
        return None
    verdict: dict[str, Any] = json.loads(store.get(f"{key}/verdict"))
    return verdict if once in verdict["present"] else None


def _poll(condition: Callable[[], Any], deadline: float) -> Any:
    """What the condition gives once it is true, or what it gave last at the deadline. The store could
    wait by itself, but would keep Ctrl-C waiting as well."""
    pause = 0.002
    while True:
        answer = condition()
        if answer or time.monotonic() > deadline:
            return answer
        time.sleep(pause)
        pause = min(pause * 1.5, 0.1)


def _compare(all_ranks: list[dict[str, Any]]) -> dict[str, Any]:
    first = all_ranks[0]
    facts = [each["facts"] for each in all_ranks]
    compared = set(first["facts"])
    if CONSUMED in compared and _in_one_place(facts):
        compared -= {EPOCH, CONSUMED}
    differences = [
        f"{name} is {value!r} on rank 0 and {other.get(name)!r} on rank {rank}"
        for rank, other in enumerate(facts)
        for name, value in first["facts"].items()
        if name in compared and other.get(name) != value
    ]
    shown = differences[:5] + ["..."] * (len(differences) > 5)
    processors = [each["processors"] for each in all_ranks]
    return {
        "error": "; ".join(shown),
        "proposal": first["proposal"],
        "sharing": {each: processors.count(each) for each in set(processors)},
    }


def _in_one_place(facts: list[dict[str, Any]]) -> bool:
    """Whether states that the ranks saved for themselves are of one place. Where an epoch ends unevenly
    the same place has several names: a rank that has no more samples may stand before another's last
    batch, behind it, or in the next epoch, as it was last asked."""
    places = [(each[EPOCH], each[CONSUMED]) for each in facts]
    if len(set(places)) == 1:
        return True
    length, policy, world = facts[0][LENGTH], facts[0][POLICY], len(facts)

    def is_over(rank: int, place: tuple[int, int], epoch: int) -> bool:
        """Whether nothing of ``epoch`` is left for the rank."""
        rest = length - place[1]
        left = {"pad": rest, "drop": rest - world + 1, "exact": rest - rank}[policy]
        return place == (epoch + 1, 0) or (place[0] == epoch and left <= 0)

    def fits(rank: int, place: tuple[int, int], common: tuple[int, int]) -> bool:
        epoch = min(place[0], common[0])
        return place == common or (is_over(rank, place, epoch) and is_over(rank, common, epoch))

    return any(
        all(fits(rank, place, common) for rank, place in enumerate(places))
        for common in set(places)
    )


def _processors() -> str:
    """Equal for ranks that run on the same processors: a launcher may give each rank its own."""
    allowed = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    return f"{socket.gethostname()} {allowed}"
