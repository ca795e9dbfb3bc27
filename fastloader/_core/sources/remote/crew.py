"""The workers of one iterator, which live in Ray's actors."""

from __future__ import annotations

import contextlib
import logging
import queue
import time
from typing import Any

from torch._utils import ExceptionWrapper

from fastloader._core.sources.remote.actor.parcel import Parcel, opened
from fastloader._core.sources.remote.actor_pool import Actor, ActorPool, Answer
from fastloader._core.sources.remote.asking import PATIENCE, Asking
from fastloader._core.sources.remote.cluster import connected
from fastloader._core.sources.remote.worker import Task, Worker
from fastloader.errors import Error

_log = logging.getLogger("fastloader")

_TURN = 0.5  # seconds between two looks at actors that are not up
_WARNS_AFTER = _GIVES_UP_AFTER = 30.0  # seconds
_MOST_DEATHS = 3  # of actors that were at the same batch, or that never came up


class Crew(Asking):
    """Takes what the actors send, and makes good what actors and nodes take with them when they die:
    another actor makes those batches again."""

    def __init__(self, pool: ActorPool, workers: int, prefetch: int) -> None:
        super().__init__(pool, workers, prefetch)
        self._stillborn = 0
        self._warned = False

    def put(self, item: Any) -> None:
        """Puts an item where torch's iterator looks for what its workers send."""
        self._answers.put(item)

    def get(self, timeout: float | None = None) -> Any:
        """The next that came for torch's iterator: (number, data).

        Raises:
            queue.Empty: if nothing came within ``timeout`` seconds.
            Error: if Ray cannot start the actors, or if this process has left the cluster.
        """
        try:
            return self._next(timeout)
        except queue.Empty:
            raise
        except Exception as error:
            # Another thread may leave the cluster at any line.
            if not self._pool.disconnected:
                raise
            raise Error(
                "this process has left the Ray cluster in which the loader's actors are: call "
                "ray.shutdown() behind the loop, or begin again with iter(loader)"
            ) from error

    def _next(self, timeout: float | None) -> Any:
        until = None if timeout is None else time.monotonic() + timeout
        while True:
            if self._answers.empty() and self._pool.disconnected:
                raise ConnectionError("Ray was shut down, and nothing that came is left")
            self._look_at_actors()
            left = _TURN if until is None else max(0.0, min(_TURN, until - time.monotonic()))
            try:
                came = self._answers.get(timeout=left) if left else self._answers.get_nowait()
            except queue.Empty:
                if until is not None and time.monotonic() >= until:
                    raise
                continue
            if type(came) is not Answer:
                return came
            with self._lock:
                item = self._took(came)
            if item is not None:
                return item

    def qsize(self) -> int:
        return self._answers.qsize()

    def _took(self, answer: Answer) -> Any:
        """What an answer means to torch's iterator; None if nothing."""
        actor, task, error, parcel = answer.actor, answer.task, answer.error, answer.parcel
        if parcel is None and self._pool.disconnected and not _of_batch(task, error):
            return None  # it ended with the connection
        if task is None:
            if actor.dead:
                return None
            if error is None:
                self._stillborn = 0
                self._came_up(actor)
            else:
                self._died(actor, error)
            return None
        if error is not None and not _of_task(error):
            self._died(actor, error)
            return None
        actor.tasks.pop(answer.number, None)
        self._hand_out()
        worker = task.worker
        if worker.ended or task.session != answer.session:
            return None  # its batch was asked for elsewhere
        repeated = task.done
        worker.answered(task, None if parcel is None else parcel.state)
        if worker.session:  # an answer to a task that was asked for alone makes others due
            self._call_due(worker)
        if repeated:
            return None
        if task.number is None:
            return task.item, None
        if parcel is None:
            return task.number, _wrapped(error, actor)
        self._pool.counts.count(actor, parcel.spent, parcel.size, parcel.sent, answer.arrived)
        if not parcel.content:
            return None
        return task.number, _opened(parcel)

    def _died(self, actor: Actor, error: BaseException) -> None:
        """Puts another actor in the place of one that died, or that cannot be reached."""
        if actor.dead or actor not in self._actors:
            return
        self._ready.discard(actor)
        self._pool.kill(actor)
        if actor.node:
            self._pool.counts.replaced += 1
            _log.warning(
                "fastloader: replaces the actor on node %s: %s", actor.node, _first_line(error)
            )
        else:
            self._stillborn += 1
            if self._stillborn >= _MOST_DEATHS * self._count:
                raise Error(
                    f"Ray started none of {self._stillborn} actors, one after the other; the last: "
                    f"{error}"
                ) from error
        other = self._pool.start(self._answers)
        self._actors[self._actors.index(actor)] = other
        # A list first: a thread of Ray's takes tasks out when their answers come.
        lost = [task for task in list(actor.tasks.values()) if _wanted(task, actor)]
        self._pool.counts.remade += len(lost)
        if lost:
            lost[0].tries += 1
            if lost[0].tries >= _MOST_DEATHS:
                self._give_up(lost[0], actor, error)
        assert self._setup is not None
        if self._setup.stateless:
            again = [task for task in lost if not task.done]
            for task in again:
                task.session = ""
            self._waiting.extendleft(reversed(again))
            self._hand_out()
            return
        for worker in self._workers:
            if worker.own is actor:
                worker.own = other
            if worker.actor is actor:
                worker.actor, worker.own = worker.own or other, None

    def _give_up(self, task: Task, actor: Actor, error: BaseException) -> None:
        """Gives an error in the place of a batch that no actor survives."""
        text = (
            f"{task.tries} Ray actors died one after the other while they made this batch, the last on "
            f"node {actor.node}: {error}"
        )
        wrapped = _wrapped(Error(text), actor)
        for each in task.worker.gave_up(task, wrapped):
            self._answers.put((each.item if each.number is None else each.number, wrapped))

    def _look_at_actors(self) -> None:
        """Lets workers whose actors do not come up be guests of others, and warns if none comes up."""
        with self._lock:
            # One that is up, and whose answer is still to be taken, is not late.
            late = [actor for actor in self._actors if not actor.up]
            if not late or not self._home.here:
                return
            now = time.monotonic()
            for actor in late:
                if actor.node and now - actor.asked > _GIVES_UP_AFTER:
                    text = "it is still at a batch of an epoch that is over"
                    self._died(actor, Error(text))
                    return
            up = [actor for actor in self._actors if actor in self._ready]
            longest = max(now - actor.asked for actor in late)
            if longest > _WARNS_AFTER and not self._warned:
                self._warn(len(late), longest)
            if not up or longest <= PATIENCE:
                return
            self._hand_out()
            for worker in self._workers:
                own = worker.actor
                if own not in late or worker.ended or now - own.asked <= PATIENCE:
                    continue
                if self._setup is not None and not self._setup.stateless:
                    self._pool.counts.moved += 1
                    host = min(up, key=lambda each: len(each.tasks))
                    self._begin_in(worker, host)
                    worker.own = own

    def _warn(self, late: int, seconds: float) -> None:
        self._warned = True
        ray = connected()
        _log.warning(
            "fastloader: Ray has not started %d of %d actors in %.0f s. Each asks for %s; the cluster "
            "has %s, of which %s are free. Ask for less (ray_options), or add a node",
            late,
            self._count,
            seconds,
            self._pool.options,
            ray.cluster_resources(),
            ray.available_resources(),
        )

    # --- the end -----------------------------------------------------------------------------------

    def end(self, worker: Worker) -> None:
        """Ends a worker. With the last one, the actors are free for another epoch."""
        if not self._home.here:
            return
        with self._lock:
            if worker.ended:
                return
            worker.ended = True
            if not all(each.ended for each in self._workers):
                return
            # They hold the crew, which holds the pool: without them it ends with the loader. So do
            # tasks, in the answers that nobody has taken and in those that are still to come.
            workers, self._workers = self._workers, []
            actors, self._actors = self._actors, []
            self._ready.clear()
            self._waiting.clear()
            self._answers = queue.SimpleQueue()
            for each in workers:
                each.forget()
        import ray

        if not ray.is_initialized():
            return
        for number, actor in enumerate(actors):
            sessions = [worker.session for worker in workers if worker.actor is actor]
            self._leave(ray, actor, [*sessions, f"{self._name}-any-{number}"])
        self._pool.give_back(actors, self._count)

    def _leave(self, ray: Any, actor: Actor, sessions: list[str]) -> None:
        """Takes back what an actor has not begun, and ends its sessions."""
        tasks, actor.tasks = list(actor.tasks.values()), {}
        references, actor.references = list(actor.references.values()), {}
        if actor.dead or not actor.up:
            return
        with contextlib.suppress(Exception):  # it has died meanwhile
            for reference in references:
                ray.cancel(reference)
            for session in sessions:
                actor.handle.end.remote(session)
            if tasks:  # one of them may be under way, for how long nobody knows
                actor.ask_whether_up()


def _wanted(task: Task, actor: Actor) -> bool:
    """Whether what a task asks for is to come from this actor."""
    worker = task.worker
    bound = worker.session and worker.actor is not actor
    return not (worker.ended or task.done or bound)


def _of_batch(task: Any, error: BaseException | None) -> bool:
    """Whether it is an error that making a batch has raised."""
    from ray import exceptions

    return task is not None and isinstance(error, exceptions.RayTaskError)


def _of_task(error: BaseException) -> bool:
    """Whether a call failed, and not its actor or node."""
    from ray import exceptions

    if isinstance(error, exceptions.RayTaskError):
        return True
    return not isinstance(error, exceptions.RayError) or isinstance(
        error, exceptions.RaySystemError
    )


def _wrapped(error: Any, actor: Actor) -> ExceptionWrapper:
    return ExceptionWrapper((type(error), error, error.__traceback__), f"on node {actor.node}")


def _opened(parcel: Parcel) -> Any:
    try:
        return opened(parcel)
    except Exception:
        return ExceptionWrapper(where="where a batch of a Ray actor was unpickled")


def _first_line(error: BaseException) -> str:
    return str(error).partition("\n")[0] or type(error).__name__
