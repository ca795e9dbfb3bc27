"""Keeps the actors of one loader."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import queue
import time
import weakref
from collections.abc import Mapping
from typing import Any, NamedTuple

from fastloader._core.machine.process import HomeProcess
from fastloader._core.sources.remote.actor import BatchActor, Parcel
from fastloader._core.sources.remote.cluster import connected


class Actor:
    """One actor, as the trainer sees it. Ray starts it when there is room for it in the cluster.

    Attributes: ``node``, the name of its node, empty until it is ``up``; ``tasks``, what it was asked
    for and has not answered, and ``references``, Ray's to these answers, both by the number of the call,
    in the order of the calls; ``asked_at``, when Ray was asked for it; ``listener``, where its answers
    go."""

    def __init__(self, handle: Any, listener: queue.SimpleQueue[Any]) -> None:
        self.handle = handle
        self.listener = listener
        self.node = ""
        self.up = self.dead = False
        self.failed: BaseException | None = None  # why Ray could not start it
        self.tasks: dict[int, Any] = {}
        self.references: dict[int, Any] = {}
        self.asked_at = time.monotonic()
        # The least difference seen between the clock of this process and that of its node. The fastest
        # message had it, and what a batch takes more is what it costs to bring its bytes.
        self.ahead = float("inf")
        self.ask_whether_up()

    def ask_whether_up(self) -> None:
        """Takes it as not up until it answers, which it does behind all that it was asked for before."""
        self.up = False
        self.asked_at = time.monotonic()
        # The future must not hold the actor, which would then never go out of scope.
        answer = functools.partial(_came_up, weakref.ref(self))
        self.handle.up.remote().future().add_done_callback(answer)


def _came_up(actor: weakref.ref[Actor], future: Any) -> None:
    came, now = actor(), time.time()
    if came is None:
        return
    came.failed = future.exception()
    if came.failed is None:
        came.node, sent = future.result()
        came.ahead = min(came.ahead, now - sent)
        came.up = True
    came.listener.put(Answer(came, None, 0, "", now, came.failed, None))


class Answer(NamedTuple):
    """An answer from an actor: the ``parcel`` of a ``task``, or the ``error`` in its place. Without a
    task, whether the actor is up. ``number``: of the call, in the actor's ``tasks``. ``session``: of the
    worker that was asked. ``arrived``: when it came, by this process's clock."""

    actor: Actor
    task: Any
    number: int
    session: str
    arrived: float
    error: BaseException | None
    parcel: Parcel | None


@dataclasses.dataclass
class NodeCounts:
    """The counts of a node's actors: the seconds that they worked, and their batches."""

    busy_s: float = 0.0
    batches: int = 0


@dataclasses.dataclass
class RayCounts:
    """Sums over one loader's life. ``replaced``: actors that died. ``remade``: batches that were asked
    for again, because their actor had died. ``moved``: how often a worker became the guest of another
    worker's actor, because Ray had no room for its own. ``transfer_s``: the seconds in which at
    least one finished batch was on its way."""

    replaced: int = 0
    remade: int = 0
    moved: int = 0
    received_bytes: int = 0
    transfer_s: float = 0.0
    nodes: dict[str, NodeCounts] = dataclasses.field(default_factory=dict)
    _covered: float = 0.0

    def count(self, actor: Actor, spent: float, size: int, sent: float, arrived: float) -> None:
        """Counts a batch that has come from ``actor``, by its node's and by this process's clock."""
        node = self.nodes.setdefault(actor.node, NodeCounts())
        node.busy_s += spent
        node.batches += 1
        self.received_bytes += size
        actor.ahead = min(actor.ahead, arrived - sent)
        begun = max(sent + actor.ahead, self._covered)
        self.transfer_s += max(0.0, arrived - begun)
        self._covered = max(self._covered, arrived)


class ActorPool:
    """Starts the actors of one loader, and keeps those that no epoch uses for the next one, because an
    actor takes seconds to start. They end with the loader, or when it is closed."""

    def __init__(self, options: Mapping[str, Any], counts: RayCounts) -> None:
        self.options = dict(options)
        self.counts = counts
        self._home = HomeProcess()
        self._idle: list[Actor] = []
        self._all: weakref.WeakSet[Actor] = weakref.WeakSet()
        self._job = ""
        self.kept: tuple[Any, Any] = (None, None)  # a dataset, and the reference to its setup

    def serves(self, options: Mapping[str, Any]) -> bool:
        """Returns whether the pool is of this process, has these options and is connected as it was."""
        return self._home.here and self.options == options and self._job in ("", _job())

    @property
    def disconnected(self) -> bool:
        """Whether this process has left the cluster in which the actors are. Ray must not be asked for
        anything then: it would begin a cluster of its own at the next call."""
        import ray

        return not ray.is_initialized() or self._job != _job()

    def take(self, count: int, listener: queue.SimpleQueue[Any]) -> list[Actor]:
        """Returns so many actors, some of which may not be up yet."""
        idle = [actor for actor in self._idle if not actor.dead and actor.failed is None]
        idle.sort(key=lambda actor: not actor.up)
        taken, self._idle = idle[:count], idle[count:]
        for actor in taken:
            actor.listener = listener
            actor.asked_at = time.monotonic()
        return taken + [self.start(listener) for _ in range(count - len(taken))]

    def start(self, listener: queue.SimpleQueue[Any]) -> Actor:
        """Asks Ray for one more actor."""
        ray = connected()
        self._job = _job()
        made = Actor(ray.remote(BatchActor).options(**self.options).remote(), listener)
        self._all.add(made)
        return made

    def give_back(self, actors: list[Actor], most: int) -> None:
        """Takes actors back, of which ``most`` are kept."""
        for actor in actors:
            actor.listener = queue.SimpleQueue()  # nobody listens
        self._idle += [actor for actor in actors if not actor.dead]
        for actor in self._idle[most:]:
            self.kill(actor)
        del self._idle[most:]

    def kill(self, actor: Actor) -> None:
        """Ends an actor at once."""
        actor.dead = True
        ray = connected()
        with contextlib.suppress(Exception):  # it is dead already, or so is its node
            ray.kill(actor.handle)

    def close(self) -> None:
        """Ends all actors, if this process is still connected."""
        if not self._home.here:
            return
        import ray

        for actor in list(self._all):
            if ray.is_initialized() and not actor.dead:
                self.kill(actor)
            actor.dead = True
        self._idle.clear()
        self.kept = (None, None)

    def nodes(self) -> dict[str, int]:
        """Counts the actors on each node."""
        found: dict[str, int] = {}
        for actor in list(self._all):
            if actor.up and not actor.dead:
                found[actor.node] = found.get(actor.node, 0) + 1
        return found


def _job() -> str:
    """Returns the name of this process's connection to its cluster."""
    return str(connected().get_runtime_context().get_job_id())
