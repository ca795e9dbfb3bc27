"""torch's queues of indices and batches, which carry batches by the slots that they lie in."""

from __future__ import annotations

import multiprocessing
import os
from queue import Empty
from typing import Any

from fastloader._core.sources.python.shared_slots.sender import Sender
from fastloader._core.sources.python.shared_slots.shared_slots import SharedSlots


class SlotQueue:
    """One of the iterator's queues. The main process puts index batches, and each goes with a slot. A
    worker puts batches, and each comes out of a slot. Everything else passes unchanged."""

    def __init__(self, queue: Any, slots: SharedSlots) -> None:
        self._queue = queue
        self._slots = slots
        self._worker: int | None = None
        self._in_child: WorkerQueue | None = None

    def put(self, item: Any, *args: Any, **named: Any) -> None:
        if self._slots.pid != os.getpid():
            self._forked().put(item, *args, **named)
            return
        if type(item) is tuple and type(item[0]) is int:
            if self._worker is None:
                self._worker = self._slots.next_worker()
            item = (*item, self._slots.native.take(self._worker))
        self._queue.put(item, *args, **named)

    def get(self, *args: Any, **named: Any) -> Any:
        if self._slots.pid != os.getpid():
            return self._forked().get(*args, **named)
        item = self._queue.get(*args, **named)
        if type(item) is tuple and type(item[0]) is int:
            return item[0], self._slots.open(item[1])
        return item

    def _forked(self) -> WorkerQueue:
        if self._in_child is None:
            self._in_child = WorkerQueue(self._queue, self._slots.sender())
        return self._in_child

    def __getattr__(self, name: str) -> Any:
        return getattr(self._queue, name)

    def __reduce__(self) -> Any:
        return WorkerQueue, (self._queue, self._slots)


class WorkerQueue:
    """One of the iterator's queues, as the worker process sees it."""

    def __init__(self, queue: Any, sender: Sender) -> None:
        self._queue = queue
        self._sender = sender

    def put(self, item: Any, *args: Any, **named: Any) -> None:
        if type(item) is tuple and type(item[0]) is int:
            item = (item[0], self._sender.wrap(item[1]))
        self._queue.put(item, *args, **named)

    def get(self, *args: Any, **named: Any) -> Any:
        try:
            item = self._queue.get(*args, **named)
        except Empty:
            # torch's watchdog notes its parent when the worker begins. If the real parent has died by
            # then, the watchdog watches init for ever. getppid() alone is no proof, because it may be
            # the fork server.
            parent = multiprocessing.parent_process()
            if parent is not None and parent.pid != os.getppid() and not parent.is_alive():
                raise SystemExit from None
            raise
        if type(item) is tuple and type(item[0]) is int:
            self._sender.begin(item[2])
            return item[:2]
        return item

    def __getattr__(self, name: str) -> Any:
        return getattr(self._queue, name)


class Context:
    """A multiprocessing context that gives such queues and remembers its processes."""

    def __init__(self, base: Any, slots: SharedSlots) -> None:
        self._base = base
        self._slots = slots
        self.processes: list[Any] = []

    def Queue(self) -> SlotQueue:
        return SlotQueue(self._base.Queue(), self._slots)

    def Process(self, *args: Any, **named: Any) -> Any:
        process = self._base.Process(*args, **named)
        self.processes.append(process)
        return process

    def __getattr__(self, name: str) -> Any:
        return getattr(self._base, name)
