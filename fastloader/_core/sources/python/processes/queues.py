"""torch's queues of indices and batches, between the loop and its worker processes.

What is sent is pickled beside the number of its batch, so that an error at either end takes the place of
that batch. torch's own queues print the error of a batch that cannot be pickled, or lose the number of
one that cannot be unpickled, and the loop waits for ever.
"""

from __future__ import annotations

import pickle
from multiprocessing.reduction import ForkingPickler
from queue import Empty
from typing import Any

from torch._utils import ExceptionWrapper

from fastloader._core.machine.limits import out_of_files
from fastloader._core.machine.process import HomeProcess
from fastloader._core.sources.python.processes.ending import Ending
from fastloader._core.sources.python.processes.inbox import Inbox
from fastloader._core.sources.python.shared_slots.parcel import (
    SlotParcel,
    WorkerTime,
    pickled_error,
)
from fastloader._core.sources.python.shared_slots.sender import Outgoing, Sender
from fastloader._core.sources.python.shared_slots.shared_slots import SharedSlots


class LoaderQueue:
    """One of the iterator's queues. The main process puts index batches, and each goes with a slot, if
    there are slots. A worker puts batches. Everything else passes unchanged.

    ``results``: the queue of the batches; None for that one itself.
    """

    def __init__(
        self, queue: Any, slots: SharedSlots | None, ending: Ending, results: LoaderQueue | None
    ) -> None:
        self._home = HomeProcess()
        self._queue = queue
        self._slots = slots
        self._ending = ending
        self._results = results
        self._inbox = Inbox(queue)
        # (message, number, what came) of a message that is not opened yet: Ctrl-C may end the opening.
        self._came: tuple[Any, int, Any] | None = None
        self._worker: int | None = None
        self._in_child: WorkerQueue | None = None

    def put(self, item: Any) -> None:
        if not self._home.here:
            self._forked().put(item)
            return
        if item is None and self._ending.is_set():
            # The workers know. And the garbage collector may have closed the queue's pipe, whose number
            # may be another one's by now: the queue's thread, which a put() starts, would close that.
            return
        if type(item) is tuple and type(item[0]) is int:
            number, index = item
            # Here, and not on the queue's thread: the index batch may change, or fail to be pickled.
            try:
                content = bytes(ForkingPickler.dumps(index))
            except Exception:
                where = f"where the indices of batch {number} were pickled for a worker"
                content = pickled_error(ExceptionWrapper(where=where))
            item = number, content, self._slot()
        self._queue.put(item)

    def _slot(self) -> int | None:
        if self._slots is None:
            return None
        if self._worker is None:
            self._worker = self._slots.next_worker()
        slot: int | None = self._slots.native.take(self._worker)
        return slot

    def get(self, timeout: float | None = None) -> Any:
        if not self._home.here:
            return self._forked().get(timeout)
        message = self._inbox.receive(timeout)
        if message is None:
            raise Empty
        if self._came is None or self._came[0] is not message:
            item = pickle.loads(message)
            if type(item[1]) is not SlotParcel:
                self._inbox.taken()
                return item
            number, parcel = item
            self._came = (
                message,
                number,
                parcel if self._slots is None else self._slots.arrive(parcel),
            )
        _, number, arrival = self._came
        try:
            data = arrival.opened()
        except KeyboardInterrupt:
            raise  # the batch is still to come
        except BaseException:
            where = f"where batch {number} of a worker was unpickled{out_of_files()}"
            data = ExceptionWrapper(where=where)
        self._came = None
        self._inbox.taken()
        return number, data

    def _forked(self) -> WorkerQueue:
        if self._in_child is None:
            sender = None if self._slots is None else self._slots.sender()
            results = None if self._results is None else self._results._forked()
            self._in_child = WorkerQueue(self._queue, sender, self._ending, results)
        return self._in_child

    def __getattr__(self, name: str) -> Any:
        return getattr(self._queue, name)

    def __reduce__(self) -> Any:
        return WorkerQueue, (self._queue, self._slots, self._ending, self._results)


class WorkerQueue:
    """One of the iterator's queues, as the worker process sees it."""

    def __init__(
        self, queue: Any, sender: Sender | None, ending: Ending, results: WorkerQueue | None
    ) -> None:
        self._queue = queue
        self._sender = sender
        self._ending = ending
        self._results = results
        self._inbox: Inbox | None = None

    def put(self, item: Any) -> None:
        if type(item) is tuple and type(item[0]) is int:
            number, data = item
            if self._sender is None:
                item = number, Outgoing(data, WorkerTime(0.0, 0.0))
            else:
                item = number, self._sender.wrap(data)
        self._queue.put(item)

    def get(self, timeout: float | None = None) -> Any:
        """What torch's worker loop is to do next; None if it is to end."""
        if self._inbox is None:
            self._inbox = Inbox(self._queue)
            self._inbox.wake_by(self._ending.in_worker())
        message = self._inbox.receive(timeout)
        if self._ending.is_set():
            return None
        if message is None:
            raise Empty
        item = pickle.loads(message)
        self._inbox.taken()
        if type(item) is not tuple or type(item[0]) is not int:
            return item
        number, content, slot = item
        if self._sender is not None:
            self._sender.begin(slot)
        try:
            index = pickle.loads(content)
        except Exception:
            index = ExceptionWrapper(where=f"where the indices of batch {number} were unpickled")
        if isinstance(index, ExceptionWrapper):
            assert self._results is not None
            self._results.put((number, index))
            raise Empty  # torch's worker loop asks for the next
        return number, index

    def __getattr__(self, name: str) -> Any:
        return getattr(self._queue, name)


class Context:
    """A multiprocessing context that gives such queues and remembers its processes."""

    def __init__(self, base: Any, slots: SharedSlots | None) -> None:
        self._base = base
        self._slots = slots
        self._ending = Ending()
        self._results: LoaderQueue | None = None
        self.processes: list[Any] = []

    def Event(self) -> Ending:
        return self._ending

    def Queue(self) -> LoaderQueue:
        """torch asks for the queue of the batches first, and then for one of indices for each worker."""
        made = LoaderQueue(self._base.Queue(), self._slots, self._ending, self._results)
        if self._results is None:
            self._results = made
        return made

    def Process(self, *args: Any, **named: Any) -> Any:
        process = self._base.Process(*args, **named)
        self.processes.append(process)
        return process

    def __getattr__(self, name: str) -> Any:
        return getattr(self._base, name)
