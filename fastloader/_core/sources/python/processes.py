"""Begins and ends worker processes."""

from __future__ import annotations

import collections
import contextlib
import math
import os
import select
import signal
import struct
import time
import weakref
from collections.abc import Callable
from multiprocessing.reduction import DupFd
from typing import Any

from torch.utils.data import _utils

from fastloader._core.machine import process
from fastloader._core.machine.process import HomeProcess

# ---- How worker processes learn that they are to end.


# In a worker process, its own: one process serves one iterator.
_here: Ending | None = None


class Ending:
    """Stands in the place of the event that torch sets when workers are to end. It wakes what waits for
    it, and is set as well when the main process has died, or has dropped it.

    The event of multiprocessing has a lock, which a worker that is killed takes with it. And torch's
    workers wait for a message besides, which never comes if the garbage collector has ended the queue
    before the iterator.
    """

    def __init__(self) -> None:
        self._home: HomeProcess | None = HomeProcess()  # None in one that was spawned
        self._reader, writer = map(_Descriptor, os.pipe())
        self._writer: _Descriptor | None = writer
        self.set_at: float | None = None  # by time.monotonic(), in the main process
        # Not in __del__: the garbage collector may come there before it ends the iterator.
        weakref.finalize(self, _close, self._reader, writer).atexit = False

    def set(self) -> None:
        if self.set_at is None:
            self.set_at = time.monotonic()
            if self._writer is not None and self._writer.is_ours():
                os.write(
                    self._writer.number, b"."
                )  # which nobody reads, so that all workers see it

    def is_set(self) -> bool:
        if self._home is not None and self._home.here:
            return self.set_at is not None
        poll = select.poll()
        poll.register(self.in_worker(), select.POLLIN)
        return bool(poll.poll(0))

    def in_worker(self) -> int:
        """Returns the descriptor that is readable once this is set. It is called in a worker process."""
        global _here
        if _here is not self:
            _here = self
            if self._writer is not None:
                # As long as it is open here, nobody sees the main process die.
                self._writer.close()
        return self._reader.number

    def __reduce__(self) -> Any:
        return _in_spawned, (DupFd(self._reader.number),)


class _Descriptor:
    """A descriptor that is left alone once the program has closed it and its number may be another
    one's: os.closerange()."""

    def __init__(self, number: int) -> None:
        self.number = number
        self._file = self._now()

    def _now(self) -> tuple[int, int]:
        status = os.fstat(self.number)
        return status.st_dev, status.st_ino

    def is_ours(self) -> bool:
        try:
            return self.number >= 0 and self._now() == self._file
        except OSError:
            return False

    def close(self) -> None:
        if self.is_ours():
            os.close(self.number)
        self.number = -1


def _close(*descriptors: _Descriptor) -> None:
    for each in descriptors:
        with contextlib.suppress(OSError):
            each.close()


def _in_spawned(reader: Any) -> Ending:
    made = Ending.__new__(Ending)
    made._home, made._reader, made._writer = None, _Descriptor(reader.detach()), None
    made.in_worker()
    return made


def is_to_end() -> bool:
    """Returns whether this is a worker process that is to end."""
    return _here is not None and _here.is_set()


# ---- The receiving end of a queue of multiprocessing.


# A message begins with its length, as multiprocessing's Connection sends it.
_LENGTH, _LONG_LENGTH = struct.Struct("!i"), struct.Struct("!Q")
_LONG = -1  # in the place of a length that does not fit there


class Inbox:
    """Receives messages as the queue's own ``get()`` does, but never waits for the rest of one, because
    whoever sends it may be killed in the middle. What has come is kept for the next call, also if a
    signal's handler has raised: Ctrl-C. One thread at a time receives."""

    def __init__(self, queue: Any) -> None:
        self._queue = queue
        self._fd: int = queue._reader.fileno()
        self._poll = select.poll()
        self._poll.register(self._fd, select.POLLIN)
        self._begin()

    def _begin(self, shape: struct.Struct | None = _LENGTH, size: int = _LENGTH.size) -> None:
        """Begins a part of a message. ``shape``: of a length; None for what has this length."""
        counts: collections.deque[int] = collections.deque()
        self._part = shape, bytearray(size), counts  # at once, because a handler may raise

    def wake_by(self, descriptor: int) -> None:
        """Makes `receive` return when this descriptor is readable."""
        self._poll.register(descriptor, select.POLLIN)

    def receive(self, timeout: float | None) -> bytearray | None:
        """Returns the message that comes next, which stays the next one until it is `taken`. None if not
        all of it has come within ``timeout`` seconds, or if the other descriptor is readable."""
        until = None if timeout is None else time.monotonic() + timeout
        while (message := self._whole()) is None:
            left = None if until is None else max(0, math.ceil((until - time.monotonic()) * 1000))
            ready = self._poll.poll(left)
            if len(ready) != 1 or ready[0][0] != self._fd:
                return None
            self._read()
        return message

    def _whole(self) -> bytearray | None:
        """Returns the message, if all of it has come."""
        while True:
            shape, buffer, counts = self._part
            if sum(counts) < len(buffer):
                return None
            if shape is None:
                return buffer
            (length,) = shape.unpack(buffer)
            if length == _LONG:
                self._begin(_LONG_LENGTH, _LONG_LENGTH.size)
            else:
                self._begin(None, length)

    def taken(self) -> None:
        self._begin()
        self._queue._sem.release()  # which its put() takes, and its qsize() reads

    def _read(self) -> None:
        _, buffer, counts = self._part
        rest = memoryview(buffer)[sum(counts) :]
        # One call, which keeps the count even if a handler raises right behind it.
        counts.extend(map(os.readv, (self._fd,), ([rest],)))
        if not counts[-1]:
            raise EOFError("nobody is left who could send anything")


# ---- The end of an iterator's worker processes.


# Seconds that a process has for what it does about SIGTERM.
_LAST_WORDS = 0.5


def end_processes(iterator: Any, patience: float | None = None) -> None:
    """Ends the workers of torch's iterator before torch does. Those that wait for work end at once. One
    that is in the user's code has torch's time for that, which torch gives to one after the other, or
    ``patience`` seconds. Then it is terminated or, if it does not care for that, killed."""
    # As torch: Python ends, and multiprocessing with it.
    if _utils is None or _utils.python_exit_status is not False:
        return
    iterator._workers_done_event.set()
    workers = iterator._workers
    _join(workers, _utils.MP_STATUS_CHECK_INTERVAL if patience is None else patience)
    if not any(worker.is_alive() for worker in workers):
        return
    # torch's handler of SIGCHLD would raise that they were killed.
    if iterator._worker_pids_set:
        _utils.signal_handling._remove_worker_pids(id(iterator))
        iterator._worker_pids_set = False
    for end in ("terminate", "kill"):
        for worker in workers:
            if worker.is_alive():
                getattr(worker, end)()
        _join(workers, _LAST_WORDS)


def _join(workers: Any, seconds: float) -> None:
    until = time.monotonic() + seconds
    for worker in workers:
        worker.join(max(0.0, until - time.monotonic()))


# ---- What worker processes do about SIGTERM, and how they end with Python.


class OutlivingWorker:
    """A worker_init_fn that makes the worker ignore SIGTERM, and then calls the user's. A cluster sends
    SIGTERM to every process of a job, and a training process that handles it still needs its batches:
    the worker ends with it, or when it says so."""

    def __init__(self, given: Callable[[int], None] | None) -> None:
        self._given = given

    def __call__(self, worker_id: int) -> None:
        # No SIG_IGN, which the programs that the dataset starts would inherit.
        signal.signal(signal.SIGTERM, _end_if_due)
        if self._given is not None:
            self._given(worker_id)


def _end_if_due(_number: int, _frame: Any) -> None:
    if is_to_end():
        os._exit(0)


def is_handled() -> bool:
    """Returns whether SIGTERM does something else to this process than end it."""
    return signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL


def end_at_exit(iterator: Any) -> None:
    """Ends the iterator's workers at exit, before multiprocessing ends them by SIGTERM and waits for
    them."""
    _live.add(iterator)
    process.at_exit(_end_all)


_live: weakref.WeakSet[Any] = weakref.WeakSet()


def _end_all() -> None:
    for iterator in list(_live):
        if iterator._home.here and not iterator._shutdown:
            end_processes(iterator, 0.0)
