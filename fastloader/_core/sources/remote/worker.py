"""A worker of torch's iterator, which lives in an actor."""

from __future__ import annotations

import collections
import dataclasses
import itertools
from typing import Any

from fastloader._core.machine.process import HomeProcess
from fastloader._core.sources.remote.actor.session import Beginning
from fastloader._core.sources.remote.actor_pool import Actor


@dataclasses.dataclass
class Task:
    """What a worker is asked for: the batch of torch's ``number``, or the next epoch (None). ``order``:
    its place among all that this worker is asked for. ``session``: in which it was asked for last.
    ``tries``: how many actors have died of it, as far as one can tell."""

    worker: Worker
    order: int
    number: int | None
    item: Any
    message: bytes
    session: str = ""
    tries: int = 0
    done: bool = False


class Worker:
    """A worker as torch's iterator sees its processes, and what is needed to begin it anew in another
    actor, so that it makes the same batches: the state of its generators behind the last batch that
    came or, of a dataset that goes on from batch to batch, all index batches since it began.

    Args:
        crew: which asks the actors.
        number: torch's number of the worker.
        goes_on: whether the dataset has a state, or is iterable.
    """

    def __init__(self, crew: Any, number: int, goes_on: bool) -> None:
        self._crew = crew
        self.number = number
        self.name = f"fastloader-worker-{number}"
        self.daemon = True
        # Names the worker in messages. torch also looks whether a child process of that number has
        # ended.
        self.pid = HomeProcess().pid
        self.actor: Actor | None = None
        self.own: Actor | None = None  # which it waits for, as a guest of another one
        self.session = ""
        self.sessions = 0
        self.ended = False
        self.tasks: collections.OrderedDict[int, Task] = collections.OrderedDict()
        self.broken: Any = None  # the error in the place of all its batches from now on
        self._orders = 0
        self._states: dict[int, bytes | None] = {}
        self._goes_on = goes_on
        self._resumed: tuple[bytes | None, bytes | None] = (None, None)
        self._since: list[
            tuple[bytes, int]
        ] = []  # index batches that were answered, in their order

    # --- what torch calls --------------------------------------------------------------------------

    def start(self) -> None:
        self._crew.begin(self)

    def is_alive(self) -> bool:
        return not self.ended

    @property
    def exitcode(self) -> int | None:
        """As of a process that was not killed: trainers look at it."""
        return 0 if self.ended else None

    def join(self, timeout: float | None = None) -> None:
        """Does nothing: an actor makes what it is at, and what it was asked for besides is cancelled."""

    def terminate(self) -> None:
        self._crew.end(self)

    kill = terminate

    # --- what the crew calls -----------------------------------------------------------------------

    def asked(self, number: int | None, item: Any, message: bytes) -> Task:
        task = Task(self, self._orders, number, item, message)
        self._orders += 1
        self.tasks[task.order] = task
        return task

    def due(self) -> list[Task]:
        """What the actor is to be asked for now, and was not in this session: from the first task that
        was not answered on. Those behind it that were answered are asked for again with it, because the
        ones after them go on from there. At a task at which an actor has died, no more is asked for,
        or nobody could tell at which of several tasks actors die."""
        tasks = list(self.tasks.values())
        if tasks and tasks[0].tries:
            answered = itertools.takewhile(lambda task: task.done, tasks[1:])
            tasks = [tasks[0], *answered]
        return [task for task in tasks if task.session != self.session]

    def answered(self, task: Task, state: bytes | None) -> None:
        """Notes the answer to a task, and the state behind it; of a new epoch, the one before it."""
        task.done = True
        if task.order not in self.tasks:  # it was asked for again, and came twice
            return
        self._states[task.order] = state
        while self.tasks:
            first = next(iter(self.tasks.values()))
            if not first.done:
                break
            del self.tasks[first.order]
            self._states.pop(first.order - 1, None)
            if self._goes_on:
                self._note(first)

    def _note(self, task: Task) -> None:
        if task.number is None:
            self._resumed, self._since = (task.message, self._states[task.order]), []
        elif self._since and self._since[-1][0] == task.message:
            self._since[-1] = task.message, self._since[-1][1] + 1
        else:
            self._since.append((task.message, 1))

    def gave_up(self, task: Task, error: Any) -> list[Task]:
        """Notes that a task is not asked for any more, and returns those in whose place there is an
        error. Of a dataset that goes on from batch to batch, no later batch can be made either."""
        if not self._goes_on:
            self.answered(task, self._states.get(task.order - 1))
            return [task]
        self.broken = error
        return self.forget()

    def forget(self) -> list[Task]:
        """Forgets all tasks, and returns those that were not answered."""
        forgotten = [task for task in self.tasks.values() if not task.done]
        for task in forgotten:
            task.done, task.session = True, ""
        self.tasks.clear()
        return forgotten

    def beginning(self) -> Beginning:
        """Where it begins in an actor, which is then asked for what is `due`."""
        if self._goes_on:
            message, state = self._resumed
            return Beginning(self.number, state, message, self._since)
        first = next(iter(self.tasks), self._orders)
        return Beginning(self.number, self._states.get(first - 1))
