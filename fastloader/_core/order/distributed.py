"""Shares the samples of an epoch between ranks, and lets the ranks agree on what they share."""

from __future__ import annotations

import contextlib
import copy
import hashlib
import itertools
import json
import logging
import os
import socket
import sys
import time
import warnings
import weakref
from collections.abc import Callable, Collection, Iterator
from typing import Any, NamedTuple

import torch
from torch import distributed
from torch.utils.data import BatchSampler, Dataset, DistributedSampler, IterableDataset, Sampler

from fastloader._core.machine.identity import is_a
from fastloader._core.machine.limits import note_ranks_here
from fastloader._core.machine.messages import callers, users_level
from fastloader._core.order.loader import Loader
from fastloader._core.order.progress import LoaderState, Progress
from fastloader.errors import Error

# ---- ``distributed=``: which samples belong to which rank.


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
        """Returns the most samples and the fewest that a rank has."""
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
    """Returns what ``sampler`` gives in an epoch, if all ranks together have already consumed ``start``
    samples of its order. The rest is dealt out anew, so that ``start`` may come from another world
    size."""
    length = len(sampler.dataset)  # type: ignore[arg-type]
    world, rest = sampler.num_replicas, rest_of(sampler, start)
    # Samples to pad with come from the beginning of the epoch, as in DistributedSampler.
    first = start + sampler.rank
    places = torch.arange(first, max(first, start + rest), world, device="cpu") % max(length, 1)
    if not sampler.shuffle:
        return places.tolist()
    generator = torch.Generator().manual_seed(sampler.seed + epoch)
    return torch.randperm(length, generator=generator, device="cpu")[places].tolist()


def policy_of(sampler: DistributedSampler[Any]) -> str:
    """Returns which of the `POLICIES` a sampler has, ours or torch's."""
    return getattr(sampler, "policy", "drop" if sampler.drop_last else "pad")


def rest_of(sampler: DistributedSampler[Any], start: int) -> int:
    """Returns how many samples all ranks together get behind the first ``start`` of the order."""
    rest = max(0, len(sampler.dataset) - start)  # type: ignore[arg-type]
    world, policy = sampler.num_replicas, policy_of(sampler)
    if policy == "pad":
        return -(-rest // world) * world
    return rest // world * world if policy == "drop" else rest


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
    """Shards a loader with ``distributed="auto"`` that was given no sampler. Whether the loader deals
    out shares is decided when its sampler is first looked at, and does not change after that."""

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


# ---- What the ranks tell each other about a loader that they share, through the process
# group's store.


_log = logging.getLogger("fastloader")

PATIENCE = "FASTLOADER_RANK_TIMEOUT"  # the variable that says how many seconds ranks wait
_LONG = 30.0  # seconds after which a rank that waits says so
_HEARD = 2.0  # seconds for which rank 0 waits until the others have heard of an error
_KEPT = 16  # verdicts in the store, since other threads of a rank may wait for an older one

# The names of facts that are more than compared.
EPOCH, CONSUMED = "the epoch", "the number of samples consumed"
LENGTH, POLICY = "the dataset's length", "distributed"

# The number of agreements so far, for each store. It names an agreement, because all ranks call iter()
# on their loaders for the first time in the same order.
_rounds: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()


def facts_about(
    loader: Loader, shard: ShardSampler, length: int, epoch: int, consumed: int
) -> dict[str, Any]:
    """Collects the facts that have to be the same on all ranks."""
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


class Agreed(NamedTuple):
    """The result of an agreement."""

    proposal: int  # rank 0's
    meetings: Meetings | None  # for the epochs to come; None without other ranks
    # The epoch that the ranks' own states are of, if its place has several names: see `_in_one_place`.
    uneven: int | None = None


class Meeting:
    """An occasion on which the ranks compare facts. Each posts its own in the process group's store, and
    rank 0 judges. Where Ctrl-C has ended the wait, `hold` may be called again.

    Args:
        key: names it in the store.
        behind: the key of a meeting that is over once all ranks have come to this one.
        act: what brings a rank here, in words.
        about: begins the error if the facts differ.
        advice: ends that error.
    """

    def __init__(self, key: str, behind: str, act: str, about: str, advice: str) -> None:
        self._key = key
        self._behind = behind
        self._act = act
        self._about = about
        self._advice = advice
        self.once = os.urandom(8).hex()  # of this process, in what it posts
        self._posted = ""  # what it has posted

    def hold(self, facts: dict[str, Any], **more: Any) -> dict[str, Any]:
        """Posts ``facts`` and what is not compared, waits until all ranks have come, and returns rank
        0's verdict.

        Raises:
            Error: on every rank, if the facts are not the same on all, or if a rank does not come.
        """
        verdict = self.come(facts, None, **more)
        assert verdict is not None  # or the wait would not have ended
        return verdict

    def come(
        self, facts: dict[str, Any], seconds: float | None, **more: Any
    ) -> dict[str, Any] | None:
        """Does as `hold`, but waits no longer than so many seconds, and returns None if there is no
        verdict then. What was said stays posted."""
        with reached():
            return self._come(facts, seconds, more)

    def _come(
        self, facts: dict[str, Any], seconds: float | None, more: dict[str, Any]
    ) -> dict[str, Any] | None:
        store, rank = group_store(), distributed.get_rank()
        patience = patience_of(store)
        if seconds is not None and seconds >= patience:
            seconds = None
        deadline = time.monotonic() + (patience if seconds is None else seconds)
        post = json.dumps({"facts": facts, "once": self.once, **more})
        if post != self._posted:
            store.set(f"{self._key}/{rank}", post)
            self._posted = post
        if rank == 0:
            verdict = self._judge(store, deadline, patience, seconds is None)
        elif seconds is None:
            verdict = self._heard(store, deadline + min(5, patience), patience)
        else:
            verdict = poll(lambda: self._verdict(store), deadline, None)
        if verdict is not None and verdict["error"]:
            if rank == 0:
                self._wait_until_heard(store, deadline)
            else:
                store.set(f"{self._key}/heard/{rank}", "")
            raise Error(f"{self._about}: {verdict['error']}{self._advice}")
        return verdict

    def withdraw(self) -> dict[str, Any] | None:
        """Takes back what was posted, before all have come. Returns the verdict if that was too late."""
        with reached():
            return self._withdraw()

    def _withdraw(self) -> dict[str, Any] | None:
        store, rank = group_store(), distributed.get_rank()
        if rank == 0:
            verdict = self._judge(store, time.monotonic(), 0.0, False)
            if verdict is None:
                store.delete_key(f"{self._key}/0")
            return verdict
        if (verdict := self._verdict(store)) is None:
            store.delete_key(f"{self._key}/{rank}")
            verdict = self._verdict(store)  # rank 0 may have read it in this moment
        return verdict

    def _names(self) -> list[str]:
        return [f"{self._key}/{rank}" for rank in range(distributed.get_world_size())]

    def _wait_until_heard(self, store: Any, deadline: float) -> None:
        """Lets rank 0 wait a moment before it raises. The store may end with its process, and the others
        would not hear what was wrong."""
        names = [f"{self._key}/heard/{rank}" for rank in range(1, distributed.get_world_size())]
        poll(lambda: store.check(names), min(deadline, time.monotonic() + _HEARD), None)
        for name in names:
            store.delete_key(name)

    def _judge(
        self, store: Any, deadline: float, patience: float, at_last: bool
    ) -> dict[str, Any] | None:
        """Does rank 0's part: waits for what the ranks say, compares it, and tells them the verdict.
        ``at_last``: whether ranks that have not come by then are an error."""
        if (verdict := self._verdict(store)) is not None:  # Ctrl-C came behind it
            return verdict
        names = self._names()

        def missing() -> list[str]:
            return [name for name in names if not store.check([name])]

        def waits() -> str:
            return f"rank 0 waits for {named_ranks(missing())} to {self._act}"

        complete = poll(lambda: store.check(names), deadline, waits if at_last else None)
        if not complete and not at_last:
            return None
        absent = [] if complete else missing()
        present = [json.loads(store.get(name)) for name in names if name not in absent]
        if absent:
            verdict = {"error": f"{named_ranks(absent)} did not {self._act} {within(patience)}"}
        else:
            verdict = _compare(present)
            store.delete_key(f"{self._behind}/verdict")
        verdict["present"] = [each["once"] for each in present]
        store.set(f"{self._key}/verdict", json.dumps(verdict))
        for name in names:
            store.delete_key(name)
        return verdict

    def _heard(self, store: Any, deadline: float, patience: float) -> dict[str, Any]:
        rank = distributed.get_rank()
        waits = f"rank {rank} waits for rank 0 and others to {self._act}"
        verdict = poll(lambda: self._verdict(store), deadline, lambda: waits)
        if verdict is None:
            # Rank 0, if it comes later, must not take this one for present.
            store.delete_key(f"{self._key}/{rank}")
            verdict = self._verdict(store)
        return verdict or {
            "error": f"rank 0 did not {self._act} {within(patience)}, or is gone",
        }

    def _verdict(self, store: Any) -> dict[str, Any] | None:
        """Reads the verdict, if it is about what this process posted: torchrun's store outlives the
        processes that it starts again, so an older verdict may be there."""
        if not store.check([f"{self._key}/verdict"]):
            return None
        verdict: dict[str, Any] = json.loads(store.get(f"{self._key}/verdict"))
        return verdict if self.once in verdict["present"] else None


class Meetings:
    """The meetings of a loader's epochs, one after the other. A meeting to which not all ranks have come
    stays the next one: a pass that went on without it, and was dropped, has taken part in none."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._number = 0
        self._next: Meeting | None = None  # to which this rank has come
        self._turn: Turn | None = None  # which came to it

    def hold(self, turn: Turn, seconds: float | None) -> bool:
        """Comes to the next meeting for a pass, and waits so many seconds for the others; None: as long
        as the group's operations do. Returns whether all have come.

        Raises:
            Error: on every rank, if they are in other epochs, or if some did not come in the end.
        """
        if self._turn is not turn:
            self.withdraw()
        self._turn = turn
        if self._next is None:
            self._next = _epochs_meeting(self.name, self._number)
        try:
            verdict = self._next.come(turn.facts, seconds)
        except Error:
            self._pass_on()
            raise
        if verdict is None:
            return False
        self._pass_on()
        return True

    def withdraw(self) -> None:
        """Takes back what was posted for a pass before this one, to which not all have come."""
        pending, self._turn = self._next, None
        if pending is None:
            return
        verdict = pending.withdraw()
        if verdict is None:
            self._next = None
        elif not verdict["error"]:  # the others have met it there
            self._pass_on()
        # Else the next pass comes to it again, and raises what the others do.

    def _pass_on(self) -> None:
        self._number += 1
        self._next = self._turn = None


class Turn:
    """Counts a pass as an epoch, for which all ranks meet.

    Args:
        meetings: of the loader; None lets every pass go on.
        facts: of the pass.
    """

    def __init__(self, meetings: Meetings | None, facts: dict[str, Any]) -> None:
        self._meetings = meetings
        self.facts = facts
        if meetings is not None:
            meetings.withdraw()

    def __call__(self, seconds: float | None) -> bool:
        """Waits so many seconds for the other ranks, None: as long as the group's operations do. Returns
        whether all have come, so that the pass need not ask again."""
        return self._meetings is None or self._meetings.hold(self, seconds)


def first_meeting() -> Meeting | None:
    """Makes the meeting of a loader's first ``iter()``; None if the group has no store, as MPI's."""
    if group_store() is None:
        return None
    number = count_round()
    return Meeting(
        f"fastloader/agreement/{number}",
        f"fastloader/agreement/{number - _KEPT}",
        "call iter() on its loader",
        f"the ranks do not agree about a loader with distributed= (the {number}. to be iterated, from "
        "0; all ranks must take them in the same order)",
        "",
    )


def count_round() -> int:
    """Returns the number of this agreement on the group's store."""
    return int(next(_rounds.setdefault(group_store(), itertools.count())))


def agree(meeting: Meeting | None, facts: dict[str, Any], proposal: int) -> Agreed:
    """Compares ``facts`` over all ranks.

    Raises:
        Error: on every rank, if the facts are not the same on all.
    """
    if meeting is None:
        return Agreed(proposal, None)
    processors = _processors()
    verdict = meeting.hold(facts, proposal=proposal, processors=processors)
    note_ranks_here(verdict["here"][_host(processors)], verdict["sharing"][processors])
    # By what rank 0 drew, since the store may outlive this attempt.
    name = f"fastloader/epochs/{verdict['present'][0]}"
    alone = distributed.get_world_size() == 1
    meetings = None if alone else Meetings(name)
    return Agreed(int(verdict["proposal"]), meetings, verdict["uneven"])


def _epochs_meeting(name: str, number: int) -> Meeting:
    return Meeting(
        f"{name}/{number}",
        f"{name}/{number - _KEPT}",
        "come to the second batch of its next epoch",
        "the ranks are not in the same epoch of a loader with distributed=",
        ". An iterator counts as an epoch once its second batch is asked for, and one that is held "
        "after its first batch has taken the number of one. Iterate alike on all ranks, or call "
        "loader.set_epoch(n) on all of them with the same n. A pass of one rank alone needs a loader "
        "without distributed=",
    )


@contextlib.contextmanager
def reached() -> Iterator[None]:
    try:
        yield
    except Error:
        raise
    except RuntimeError as error:  # torch's
        raise Error(
            "the ranks cannot compare a loader with distributed=: the process group's store cannot be "
            f"reached, so the process that has it, rank 0's or the launcher's, has ended ({error})"
        ) from error


def group_store() -> Any:
    # A private function, because no public one gives the default group's store. torch has it since 1.8.
    return distributed.distributed_c10d._get_default_store()


def patience_of(store: Any) -> float:
    """Returns how many seconds a rank waits for the others: as long as the group's own operations do."""
    value = os.environ.get(PATIENCE)
    if value is None:
        return float(store.timeout.total_seconds())
    try:
        seconds = float(value)
    except ValueError:
        seconds = 0.0
    if not seconds > 0:
        raise ValueError(f"{PATIENCE}={value!r}: a number of seconds, above 0")
    return seconds


def named_ranks(names: list[str]) -> str:
    return "rank " + ", ".join(name.rpartition("/")[2] for name in names)


def within(patience: float) -> str:
    return (
        f"within {patience:g} s ({PATIENCE} sets that time, which is otherwise the timeout= of "
        "init_process_group)"
    )


def poll(condition: Callable[[], Any], deadline: float, waits: Callable[[], str] | None) -> Any:
    """Polls until the condition is true or the deadline has passed, and returns what the condition gave
    last. The store could wait by itself, but would keep Ctrl-C waiting as well. ``waits`` says what is
    waited for, once it takes long."""
    pause, says = 0.002, time.monotonic() + _LONG
    while True:
        answer = condition()
        now = time.monotonic()
        if answer or now > deadline:
            return answer
        if now > says and waits is not None:
            says = deadline
            _log.warning("fastloader: %s, for %.0f s at most", waits(), deadline - now)
        time.sleep(pause)
        pause = min(pause * 1.5, 0.1)


def _compare(all_ranks: list[dict[str, Any]]) -> dict[str, Any]:
    first = all_ranks[0]
    facts = [each["facts"] for each in all_ranks]
    compared, uneven = set(first["facts"]), None
    if CONSUMED in compared and _in_one_place(facts):
        compared -= {EPOCH, CONSUMED}
        if any(each[CONSUMED] != facts[0][CONSUMED] for each in facts):
            uneven = min(each[EPOCH] for each in facts)
    processors = [each.get("processors", "") for each in all_ranks]
    hosts = [_host(each) for each in processors]
    return {
        "error": "; ".join(differences(facts, compared)),
        "uneven": uneven,
        "proposal": first.get("proposal"),
        "here": {each: hosts.count(each) for each in set(hosts)},
        "sharing": {each: processors.count(each) for each in set(processors)},
    }


def differences(facts: list[dict[str, Any]], compared: Collection[str]) -> list[str]:
    """Says in words which of these facts differ from rank 0's, and on which rank: the first five, and
    "..." for the others."""
    different = [
        f"{name} is {value!r} on rank 0 and {other.get(name)!r} on rank {rank}"
        for rank, other in enumerate(facts)
        for name, value in facts[0].items()
        if name in compared and other.get(name) != value
    ]
    return different[:5] + ["..."] * (len(different) > 5)


def _in_one_place(facts: list[dict[str, Any]]) -> bool:
    """Returns whether states that each rank saved for itself are of the same place in the epoch. If an
    epoch ends unevenly, the same place has several names: a rank without more samples may stand before
    another rank's last batch, after it, or in the next epoch, as it was asked last."""
    places = [(each[EPOCH], each[CONSUMED]) for each in facts]
    if len(set(places)) == 1:
        return True
    length, policy, world = facts[0][LENGTH], facts[0][POLICY], len(facts)

    def is_over(rank: int, place: tuple[int, int], epoch: int) -> bool:
        """Returns whether nothing of ``epoch`` is left for the rank."""
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
    """Returns a text that is equal for ranks on the same processors. A launcher may give each rank its
    own."""
    allowed = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    return f"{socket.gethostname()} {allowed}"


def _host(processors: str) -> str:
    return processors.partition(" ")[0]


# ---- What one rank says for all.


def speaks(text: str) -> bool:
    """Returns whether this rank is to tell the user what all ranks would: rank 0 is, and it notes in the
    group's store that it has. Before there is a group, the launcher's RANK counts."""
    if not initialised():
        rank = os.environ.get("RANK", "0")
        return not rank.isdecimal() or int(rank) == 0
    if distributed.get_rank() != 0:
        return False
    with contextlib.suppress(RuntimeError, ValueError):  # torch's, of a group that has ended
        if distributed.get_world_size() > 1 and (store := group_store()) is not None:
            store.set(_said(text), "")
    return True


def was_said(text: str) -> bool:
    """Returns whether rank 0 has told the user this; False if nobody can know."""
    with contextlib.suppress(RuntimeError, ValueError):
        if initialised() and (store := group_store()) is not None:
            return bool(store.check([_said(text)]))
    return False


def _said(text: str) -> str:
    return f"fastloader/said/{hashlib.sha256(text.encode()).hexdigest()}"


# ---- Passes that were only a look at a batch, and so are no epochs.


_OFTEN = 3  # that many looks at one epoch, one after the other, are a loop that does not know


class Look(NamedTuple):
    """A pass that may turn out to be only a look at a batch, and the loader's position before it."""

    progress: Progress
    iterator: weakref.ref[Any]  # which the loop holds, or has dropped
    before: Progress | None
    saved: LoaderState | None


class Looks:
    """The passes of a loader with ``distributed=`` that have not counted as epochs so far. One counts
    when its second batch is asked for, or at its end. If its iterator is dropped before that, its number
    is given to the next pass: so one rank may look at a batch, and still has the epochs of the others.
    While the iterator is held it keeps its number."""

    def __init__(self) -> None:
        self._open: list[Look] = []
        self._often = 0

    def note(self, look: Look) -> None:
        self._open.append(look)

    def clear(self) -> None:
        """Forgets them, since the user has said which epoch comes next."""
        self._open.clear()
        self._often = 0

    def dropped(self, loader: Loader, superseding: bool) -> Iterator[Look]:
        """Gives those that are no epochs, the last one first. ``superseding``: whether the next pass is
        about to begin, which takes the loader's only iterator for life, if it has one."""
        while self._open:
            look = self._open[-1]
            if look.progress.turn is None:  # it counts, and those before it have had their chance
                self.clear()
            elif _is_held(look, loader, superseding):
                return
            else:
                self._note_drop(look)
                yield self._open.pop()

    def _note_drop(self, look: Look) -> None:
        self._often += 1
        if self._often == _OFTEN:
            warnings.warn(
                f"{_OFTEN} iterators over a loader with distributed= were dropped after one batch or "
                f"none, so all of them were of epoch {look.progress.epoch}: an iterator counts as an "
                "epoch once its second batch is asked for. Hold one iterator, or call set_epoch(n)",
                RuntimeWarning,
                stacklevel=users_level(),
            )


def _is_held(look: Look, loader: Loader, superseding: bool) -> bool:
    """Returns whether the loop may still ask for the second batch."""
    iterator = look.iterator()
    if iterator is None or look.progress.stale or getattr(iterator, "_closed", False):
        return False
    if loader._iterator is None:
        return True
    own = iterator is loader._iterator
    del iterator
    # The loader holds that one itself. Two references are its own and the argument's.
    return not superseding and (not own or sys.getrefcount(loader._iterator) > 2)
