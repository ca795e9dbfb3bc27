"""How the workers of one iterator ask actors for their batches."""

from __future__ import annotations

import collections
import functools
import itertools
import queue
import threading
import time
from typing import Any

from fastloader._core.machine.process import HomeProcess
from fastloader._core.order.generators import is_stateful
from fastloader._core.sources.remote.actor.parcel import received
from fastloader._core.sources.remote.actor.pictures import RemotePictures
from fastloader._core.sources.remote.actor.session import Beginning, Setup
from fastloader._core.sources.remote.actor_pool import Actor, ActorPool, Answer
from fastloader._core.sources.remote.cluster import connected
from fastloader._core.sources.remote.worker import Task, Worker
from fastloader.errors import Error

PATIENCE = 5.0  # seconds that a worker waits for an actor of its own before it becomes a guest

_crews = itertools.count()


class Asking:
    """Asks actors for the batches of one iterator's workers. At most ``workers * prefetch`` batches are
    under way, which torch's iterator sees to.

    If batches depend on their index batches alone, the actor that has the least to do makes the next
    one. Otherwise each worker has its actor, which makes all its batches in their order.

    Attributes: ``lends``, whether batches that are asked for may stay in Ray's memory.
    """

    def __init__(self, pool: ActorPool, workers: int, prefetch: int) -> None:
        self._pool = pool
        self._count, self._prefetch = workers, prefetch
        self.lends = False
        self._name = f"{next(_crews)}"
        self._home = HomeProcess()
        # What came from the actors, and what torch or the crew have put there: (number, data).
        self._answers: queue.SimpleQueue[Any] = queue.SimpleQueue()
        # Guards what follows, which the loop and a pump thread change. Reentrant, because a finalizer
        # may end the crew during any allocation.
        self._lock = threading.RLock()
        self._actors: list[Actor] = []
        self._ready: set[Actor] = set()  # those that are up, and know what they are to do
        self._workers: list[Worker] = []
        self._waiting: collections.deque[Task] = collections.deque()  # for any actor
        self._setup: Setup | None = None
        self._reference: Any = None
        self._tasks = itertools.count()

    # --- on the way to the actors ------------------------------------------------------------------

    def worker(self, setup: Setup, number: int) -> Worker:
        """One of torch's workers."""
        if self._setup is None:
            setup.stateless = isinstance(setup.dataset, RemotePictures)
            self._setup = setup
        return Worker(self, number, setup.kind != 0 or is_stateful(setup.dataset))

    def begin(self, worker: Worker) -> None:
        """Begins a worker, and with the first one the actors."""
        with self._lock:
            if not self._actors:
                self._reference = self._put()
                self._actors = self._pool.take(self._count, self._answers)
                for actor in self._actors:
                    if actor.up:
                        self._came_up(actor)
            self._workers.append(worker)
            worker.actor = self._actors[worker.number % len(self._actors)]
            if worker.actor in self._ready:
                self._begin_in(worker, worker.actor)

    def _came_up(self, actor: Actor) -> None:
        """Gives an actor that is up what there is to do."""
        assert self._setup is not None
        if actor in self._ready:
            return
        self._ready.add(actor)
        if self._setup.stateless:
            number = self._actors.index(actor)
            self._begin(actor, self._session_of(actor), Beginning(number))
            self._hand_out()
            return
        for worker in self._workers:
            if not worker.ended and actor in (worker.actor, worker.own):
                worker.own = None
                self._begin_in(worker, actor)

    def _put(self) -> Any:
        """Puts the setup into Ray's memory. Pictures that have not changed are there already."""
        setup = self._setup
        assert setup is not None
        dataset, reference = self._pool.kept
        if setup.stateless and dataset is setup.dataset:
            return reference
        try:
            reference = connected().put(setup)
        except Exception as error:
            raise Error(
                "the dataset, the collate_fn or the worker_init_fn cannot be sent to Ray actors: "
                f"{error}"
            ) from error
        self._pool.kept = (setup.dataset, reference) if setup.stateless else (None, None)
        return reference

    def ask(self, worker: Worker, item: Any) -> None:
        """Asks for what torch has put into the worker's queue: (number, index batch), or the message
        that another epoch begins."""
        from ray import cloudpickle

        number, asked = item if type(item) is tuple else (None, item)
        message = cloudpickle.dumps(asked)
        with self._lock:
            assert self._setup is not None
            if worker.broken is not None:
                self._answers.put((item if number is None else number, worker.broken))
            elif not self._setup.stateless:
                worker.asked(number, item, message)
                self._call_due(worker)
            elif number is None:  # there is nothing to begin, but what is under way is not wanted
                worker.forget()
                self._waiting = collections.deque(each for each in self._waiting if not each.done)
                self._answers.put((asked, None))
            else:
                self._waiting.append(worker.asked(number, item, message))
                self._hand_out()

    def _call_due(self, worker: Worker) -> None:
        """Asks the worker's actor for what it is to be asked for now, if it is up."""
        actor = worker.actor
        if actor is not None and actor in self._ready:
            for task in worker.due():
                self._call(actor, worker.session, task)

    def _call(self, actor: Actor, session: str, task: Task) -> None:
        if self._pool.disconnected:  # `Crew.get` says so
            return
        handle = actor.handle
        method = handle.resume if task.number is None else handle.make
        task.session = session
        reference = method.remote(session, task.message)
        number = next(self._tasks)
        actor.tasks[number], actor.references[number] = task, reference
        answer = functools.partial(
            _answered, self._answers, self.lends, actor, number, task, session
        )
        reference.future().add_done_callback(answer)

    def _hand_out(self) -> None:
        """Gives tasks to the actors that have the least to do."""
        if not self._waiting:
            return
        up = [actor for actor in self._actors if actor in self._ready]
        # While others are about to come up, each gets its share.
        most = self._prefetch
        if len(up) < len(self._actors) and self._overdue():
            most = -(-self._count * self._prefetch // max(1, len(up)))
        # One at which an actor has died is alone in its actor: see Worker.due().
        up = [actor for actor in up if not any(task.tries for task in list(actor.tasks.values()))]
        while self._waiting and up:
            actor = min(up, key=lambda each: len(each.tasks))
            tried = self._waiting[0].tries > 0
            if len(actor.tasks) >= (1 if tried else most):
                return
            self._call(actor, self._session_of(actor), self._waiting.popleft())
            if tried:
                up.remove(actor)

    def _session_of(self, actor: Actor) -> str:
        """The only session that an actor has for batches that any actor can make."""
        return f"{self._name}-any-{self._actors.index(actor)}"

    def _overdue(self) -> bool:
        """Whether Ray seems to have no room for the actors that are not up."""
        now = time.monotonic()
        late = [actor for actor in self._actors if actor not in self._ready]
        return all(now - actor.asked > PATIENCE for actor in late)

    def _begin_in(self, worker: Worker, actor: Actor) -> None:
        """Begins a worker in an actor that is up, and asks there for what it has not answered."""
        assert self._setup is not None
        if self._setup.stateless:
            return
        before, over = worker.actor, worker.session
        if before is not None and before is not actor and over and before in self._ready:
            before.handle.end.remote(over)
        worker.actor = actor
        worker.session = f"{self._name}-{worker.number}-{worker.sessions}"
        worker.sessions += 1
        self._begin(actor, worker.session, worker.beginning())
        self._call_due(worker)

    def _begin(self, actor: Actor, session: str, beginning: Beginning) -> None:
        key = self._reference.hex()
        actor.handle.begin.remote(session, beginning, [self._reference], key)


def _answered(
    answers: queue.SimpleQueue[Any],
    lends: bool,
    actor: Actor,
    number: int,
    task: Task,
    session: str,
    future: Any,
) -> None:
    """Called on a thread of Ray's. A batch is copied here, so that the loop does not wait for that."""
    arrived, parcel, error = time.time(), None, future.exception()
    if error is None:
        actor.tasks.pop(number, None)
        try:
            parcel = received(future.result(), lends)
        except Exception as why:
            error = why
    # The batch is here, or never will be: Ray may have its memory back before the loop takes the answer.
    actor.references.pop(number, None)
    answers.put(Answer(actor, task, number, session, arrived, error, parcel))
