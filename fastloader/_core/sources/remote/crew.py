"""Asks the actors for batches: the workers of one iterator live in them."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import functools
import itertools
import logging
import queue
import threading
import time
from typing import TYPE_CHECKING, Any

from torch._utils import ExceptionWrapper

from fastloader._core.machine import devices
from fastloader._core.machine.process import HomeProcess
from fastloader._core.order.generators import is_stateful
from fastloader._core.order.loader import Loader
from fastloader._core.sources.python.arguments import LoaderView, named_arguments
from fastloader._core.sources.python.iterators import ProcessIterator
from fastloader._core.sources.python.source import PythonSource
from fastloader._core.sources.remote.actor import (
    Beginning,
    Parcel,
    RemoteBatch,
    RemotePictures,
    Setup,
    opened,
    received,
)
from fastloader._core.sources.remote.actor_pool import Actor, ActorPool, Answer
from fastloader._core.sources.remote.cluster import connected
from fastloader.errors import Error

if TYPE_CHECKING:
    from fastloader._core.sources.remote.actor import RemotePictures
    from fastloader._core.sources.remote.actor_pool import ActorPool

# ---- A worker of torch's iterator, which lives in an actor.


@dataclasses.dataclass
class Task:
    """A request to a worker: the batch of torch's ``number``, or the next epoch (None). ``order``: its
    place among all that this worker is asked for. ``session``: in which it was asked for last.
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

    def add_task(self, number: int | None, item: Any, message: bytes) -> Task:
        task = Task(self, self._orders, number, item, message)
        self._orders += 1
        self.tasks[task.order] = task
        return task

    def due(self) -> list[Task]:
        """Lists what the actor is to be asked for now, and was not in this session: from the first task
        that was not answered on. Those behind it that were answered are asked for again with it, because
        the ones after them go on from there. At a task at which an actor has died, no more is asked for,
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
        """Returns where the worker begins in an actor, which is then asked for what is `due`."""
        if self._goes_on:
            message, state = self._resumed
            return Beginning(self.number, state, message, self._since)
        first = next(iter(self.tasks), self._orders)
        return Beginning(self.number, self._states.get(first - 1))


# ---- How the workers of one iterator ask actors for their batches.


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
        """Makes one of torch's workers."""
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

        number, content = item if type(item) is tuple else (None, item)
        message = cloudpickle.dumps(content)
        with self._lock:
            assert self._setup is not None
            if worker.broken is not None:
                self._answers.put((item if number is None else number, worker.broken))
            elif not self._setup.stateless:
                worker.add_task(number, item, message)
                self._call_due(worker)
            elif number is None:  # there is nothing to begin, but what is under way is not wanted
                worker.forget()
                self._waiting = collections.deque(each for each in self._waiting if not each.done)
                self._answers.put((content, None))
            else:
                self._waiting.append(worker.add_task(number, item, message))
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
        """Returns the only session that an actor has for batches that any actor can make."""
        return f"{self._name}-any-{self._actors.index(actor)}"

    def _overdue(self) -> bool:
        """Returns whether Ray seems to have no room for the actors that are not up."""
        now = time.monotonic()
        late = [actor for actor in self._actors if actor not in self._ready]
        return all(now - actor.asked_at > PATIENCE for actor in late)

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
    """Takes an answer, on a thread of Ray's. A batch is copied here, so that the loop does not wait for
    that."""
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


# ---- The workers of one iterator, which live in Ray's actors.


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
        """Returns the next item that came for torch's iterator: (number, data).

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
                item = self._take_answer(came)
            if item is not None:
                return item

    def qsize(self) -> int:
        return self._answers.qsize()

    def _take_answer(self, answer: Answer) -> Any:
        """Takes an answer, and returns what it means to torch's iterator; None if nothing."""
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
                if actor.node and now - actor.asked_at > _GIVES_UP_AFTER:
                    text = "it is still at a batch of an epoch that is over"
                    self._died(actor, Error(text))
                    return
            up = [actor for actor in self._actors if actor in self._ready]
            longest = max(now - actor.asked_at for actor in late)
            if longest > _WARNS_AFTER and not self._warned:
                self._warn(len(late), longest)
            if not up or longest <= PATIENCE:
                return
            self._hand_out()
            for worker in self._workers:
                own = worker.actor
                if own not in late or worker.ended or now - own.asked_at <= PATIENCE:
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
    """Returns whether what a task asks for is to come from this actor."""
    worker = task.worker
    bound = worker.session and worker.actor is not actor
    return not (worker.ended or task.done or bound)


def _of_batch(task: Any, error: BaseException | None) -> bool:
    """Returns whether it is an error that making a batch has raised."""
    from ray import exceptions

    return task is not None and isinstance(error, exceptions.RayTaskError)


def _of_task(error: BaseException) -> bool:
    """Returns whether a call failed, and not its actor or node."""
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


# ---- torch's own iterator over workers that live in Ray's actors.


class RayIterator(ProcessIterator):
    """torch's iterator over workers, of which each lives in an actor. torch's own bookkeeping decides
    what is asked of which worker and when, as with worker processes."""

    _own_processes = False

    def __init__(self, loader: Loader, source: PythonSource, crew: Crew) -> None:
        self._source = source
        self._crew = crew
        self._lend(loader)
        seen: Any = LoaderView(loader, multiprocessing_context=_Context(crew))
        super().__init__(seen, source.encoded)

    def _reset(self, loader: Loader, first_iter: bool = False) -> None:
        self._lend(loader)
        super()._reset(loader, first_iter)

    def _lend(self, loader: Loader) -> None:
        """Leaves batches in Ray's memory until they are copied, if they are copied anyway."""
        pins = loader.pin_memory and devices.can_pin()
        self._crew.lends = self._source.copied or pins

    def _deliver(self, data: Any) -> Any:
        if type(data) is not RemoteBatch:
            return super()._deliver(data)
        self._undelivered = data
        pictures: RemotePictures = self._dataset
        try:
            made = pictures.received(data)
        except Exception:
            self._undelivered = None
            raise
        self._undelivered = None
        return made


class _Context:
    """Stands in the place of the multiprocessing module. torch asks it for the queue of the results, and
    for each worker for a queue of index batches and then for a process."""

    Event = threading.Event

    def __init__(self, crew: Crew) -> None:
        self._crew = crew
        self._results: _Results | None = None

    def Queue(self) -> Any:
        if self._results is None:
            self._results = _Results(self._crew)
            return self._results
        return _Indices(self._crew)

    def Process(self, target: Any, args: tuple[Any, ...]) -> Worker:
        """Makes the worker. ``target`` is torch's _worker_loop."""
        given = named_arguments(target, args)
        setup = Setup(
            kind=given["dataset_kind"],
            dataset=given["dataset"],
            auto_collation=given["auto_collation"],
            collate_fn=given["collate_fn"],
            drop_last=given["drop_last"],
            base_seed=given["base_seed"],
            init_fn=given["init_fn"],
            workers=given["num_workers"],
        )
        worker = self._crew.worker(setup, given["worker_id"])
        given["index_queue"].worker = worker
        return worker


class _Queue:
    """The methods that torch calls on multiprocessing's queues. There is no feeder thread."""

    def __init__(self, crew: Crew) -> None:
        self._crew = crew

    def cancel_join_thread(self) -> None:
        pass

    def close(self) -> None:
        pass


class _Results(_Queue):
    """The queue of what the workers send."""

    def get(self, timeout: float | None = None) -> Any:
        return self._crew.get(timeout)

    def put(self, item: Any) -> None:
        self._crew.put(item)

    def qsize(self) -> int:
        return self._crew.qsize()

    def empty(self) -> bool:
        return self._crew.qsize() == 0


class _Indices(_Queue):
    """The queue of what one worker is asked for."""

    worker: Worker

    def put(self, item: Any) -> None:
        if item is None:
            self._crew.end(self.worker)
        else:
            self._crew.ask(self.worker, item)
