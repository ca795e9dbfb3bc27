"""The agreement of the ranks, once for each loader, on what they iterate."""

from __future__ import annotations

import itertools
import json
import os
import socket
import time
import weakref
from collections.abc import Callable
from typing import Any

from torch import distributed

from fastloader._core.machine.ranks import note_ranks_here
from fastloader._core.order.distributed.shards import ShardSampler
from fastloader._core.order.loader import Loader
from fastloader.errors import Error

PATIENCE = 300.0  # seconds that a rank waits for the others at its first iter()

# The names of facts that are more than compared.
EPOCH, CONSUMED = "the epoch", "the number of samples consumed"
LENGTH, POLICY = "the dataset's length", "distributed"

# The number of agreements so far, for each store. It names an agreement, because all ranks call iter()
# on their loaders for the first time in the same order.
_rounds: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()


def facts_about(
    loader: Loader, shard: ShardSampler, length: int, epoch: int, consumed: int
) -> dict[str, Any]:
    """The facts that have to be the same on all ranks."""
    return {
        LENGTH: length,
        "the seed": shard.seed,
        "shuffle": shard.shuffle,
        POLICY: shard.policy,
        "batch_size": loader.batch_size,
        "drop_last": loader.drop_last,
        EPOCH: epoch,
        CONSUMED: consumed,
    }


def agree(facts: dict[str, Any], proposal: int) -> int:
    """Compares ``facts`` over all ranks, and returns rank 0's ``proposal``.

    Only here do ranks wait for each other in fastloader: once for each loader with ``distributed=``,
    through the process group's store, `PATIENCE` seconds at most.

    Raises:
        Error: on every rank, if the facts are not the same on all.
    """
    # A private function, because no public one gives the default group's store. torch has it since 1.8.
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
        # torchrun's store outlives the processes that it starts again, so an older verdict may be there.
        verdict = _poll(lambda: _verdict(store, key, once), deadline + 5) or {
            "error": f"rank 0 did not call iter() on its loader within {PATIENCE:g} s, or is gone"
        }
    if verdict["error"]:
        raise Error(
            f"the ranks do not agree about a loader with distributed= (the {key.rpartition('/')[2]}. to "
            f"be iterated, from 0; all ranks must take them in the same order): {verdict['error']}"
        )
    note_ranks_here(verdict["sharing"][mine["processors"]])
    return int(verdict["proposal"])


def _judge(store: Any, key: str, world: int, deadline: float) -> dict[str, Any]:
    """Does rank 0's part: waits for what the ranks say, compares it, and tells them the verdict."""
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
    """Polls until the condition is true or the deadline has passed, and returns what the condition gave
    last. The store could wait by itself, but would keep Ctrl-C waiting as well."""
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
    """Whether states that each rank saved for itself are of the same place in the epoch. If an epoch
    ends unevenly, the same place has several names: a rank without more samples may stand before
    another rank's last batch, after it, or in the next epoch, as it was asked last."""
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
    """A text that is equal for ranks on the same processors. A launcher may give each rank its own."""
    allowed = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    return f"{socket.gethostname()} {allowed}"
