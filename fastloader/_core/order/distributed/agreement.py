"""What the ranks tell each other about a loader that they share, through the process group's store."""

from __future__ import annotations

import contextlib
import itertools
import json
import logging
import os
import socket
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from torch import distributed

from fastloader._core.machine.ranks import note_ranks_here
from fastloader._core.order.distributed.shards import ShardSampler
from fastloader._core.order.loader import Loader
from fastloader.errors import Error

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


class Agreed(NamedTuple):
    """What came of an agreement."""

    proposal: int  # rank 0's
    meetings: Meetings | None  # for the epochs to come; None without other ranks


class Meeting:
    """One occasion on which the ranks compare facts. Each posts its own in the process group's store,
    and rank 0 judges. Where Ctrl-C has ended the wait, `hold` may be called again.

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
        self._said = ""  # what it has posted

    def hold(self, facts: dict[str, Any], **more: Any) -> dict[str, Any]:
        """Says ``facts`` and what is not compared, waits until all ranks have come, and returns rank 0's
        verdict.

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
        with _reached():
            return self._come(facts, seconds, more)

    def _come(
        self, facts: dict[str, Any], seconds: float | None, more: dict[str, Any]
    ) -> dict[str, Any] | None:
        store, rank = _store(), distributed.get_rank()
        patience = _patience(store)
        if seconds is not None and seconds >= patience:
            seconds = None
        deadline = time.monotonic() + (patience if seconds is None else seconds)
        said = json.dumps({"facts": facts, "once": self.once, **more})
        if said != self._said:
            store.set(f"{self._key}/{rank}", said)
            self._said = said
        if rank == 0:
            verdict = self._judge(store, deadline, patience, seconds is None)
        elif seconds is None:
            verdict = self._heard(store, deadline + min(5, patience), patience)
        else:
            verdict = _poll(lambda: self._verdict(store), deadline, None)
        if verdict is not None and verdict["error"]:
            if rank == 0:
                self._wait_until_heard(store, deadline)
            else:
                store.set(f"{self._key}/heard/{rank}", "")
            raise Error(f"{self._about}: {verdict['error']}{self._advice}")
        return verdict

    def withdraw(self) -> dict[str, Any] | None:
        """Takes back what was said, before all have come. Returns the verdict if that was too late."""
        with _reached():
            return self._withdraw()

    def _withdraw(self) -> dict[str, Any] | None:
        store, rank = _store(), distributed.get_rank()
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
        _poll(lambda: store.check(names), min(deadline, time.monotonic() + _HEARD), None)
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
            return f"rank 0 waits for {_named(missing())} to {self._act}"

        complete = _poll(lambda: store.check(names), deadline, waits if at_last else None)
        if not complete and not at_last:
            return None
        absent = [] if complete else missing()
        present = [json.loads(store.get(name)) for name in names if name not in absent]
        if absent:
            verdict = {"error": f"{_named(absent)} did not {self._act} {_within(patience)}"}
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
        verdict = _poll(lambda: self._verdict(store), deadline, lambda: waits)
        if verdict is None:
            # Rank 0, if it comes later, must not take this one for present.
            store.delete_key(f"{self._key}/{rank}")
            verdict = self._verdict(store)
        return verdict or {
            "error": f"rank 0 did not {self._act} {_within(patience)}, or is gone",
        }

    def _verdict(self, store: Any) -> dict[str, Any] | None:
        """The verdict, if it is about what this process said: torchrun's store outlives the processes
        that it starts again, so an older verdict may be there."""
        if not store.check([f"{self._key}/verdict"]):
            return None
        verdict: dict[str, Any] = json.loads(store.get(f"{self._key}/verdict"))
        return verdict if self.once in verdict["present"] else None


class Meetings:
    """The meetings of a loader's epochs, of which one comes after the other. One to which not all ranks
    have come stays the next one: a pass that went on without it, and was dropped, has taken part in
    none."""

    def __init__(self, name: str) -> None:
        self._name = name
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
            self._next = _epochs_meeting(self._name, self._number)
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
        """Takes back what was said for a pass before this one, to which not all have come."""
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
    """The meeting of a loader's first ``iter()``; None if the group has no store, as MPI's."""
    store = _store()
    if store is None:
        return None
    number = next(_rounds.setdefault(store, itertools.count()))
    return Meeting(
        f"fastloader/agreement/{number}",
        f"fastloader/agreement/{number - _KEPT}",
        "call iter() on its loader",
        f"the ranks do not agree about a loader with distributed= (the {number}. to be iterated, from "
        "0; all ranks must take them in the same order)",
        "",
    )


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
    return Agreed(int(verdict["proposal"]), None if alone else Meetings(name))


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
def _reached() -> Iterator[None]:
    try:
        yield
    except Error:
        raise
    except RuntimeError as error:  # torch's
        raise Error(
            "the ranks cannot compare a loader with distributed=: the process group's store cannot be "
            f"reached, so the process that has it, rank 0's or the launcher's, has ended ({error})"
        ) from error


def _store() -> Any:
    # A private function, because no public one gives the default group's store. torch has it since 1.8.
    return distributed.distributed_c10d._get_default_store()


def _patience(store: Any) -> float:
    """The seconds that a rank waits for the others: as long as the group's own operations do."""
    said = os.environ.get(PATIENCE)
    if said is None:
        return float(store.timeout.total_seconds())
    try:
        seconds = float(said)
    except ValueError:
        seconds = 0.0
    if not seconds > 0:
        raise ValueError(f"{PATIENCE}={said!r}: a number of seconds, above 0")
    return seconds


def _named(names: list[str]) -> str:
    return "rank " + ", ".join(name.rpartition("/")[2] for name in names)


def _within(patience: float) -> str:
    return (
        f"within {patience:g} s ({PATIENCE} sets that time, which is otherwise the timeout= of "
        "init_process_group)"
    )


def _poll(condition: Callable[[], Any], deadline: float, waits: Callable[[], str] | None) -> Any:
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
    processors = [each.get("processors", "") for each in all_ranks]
    hosts = [_host(each) for each in processors]
    return {
        "error": "; ".join(shown),
        "proposal": first.get("proposal"),
        "here": {each: hosts.count(each) for each in set(hosts)},
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


def _host(processors: str) -> str:
    return processors.partition(" ")[0]
