"""The receiving end of a queue of multiprocessing."""

from __future__ import annotations

import collections
import math
import os
import select
import struct
import time
from typing import Any

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
        """Has `receive` return when this one is readable."""
        self._poll.register(descriptor, select.POLLIN)

    def receive(self, timeout: float | None) -> bytearray | None:
        """The message that comes next, which stays the next one until it is `taken`. None if not all of
        it has come within ``timeout`` seconds, or if the other descriptor is readable."""
        until = None if timeout is None else time.monotonic() + timeout
        while (message := self._whole()) is None:
            left = None if until is None else max(0, math.ceil((until - time.monotonic()) * 1000))
            ready = self._poll.poll(left)
            if len(ready) != 1 or ready[0][0] != self._fd:
                return None
            self._read()
        return message

    def _whole(self) -> bytearray | None:
        """The message, if all of it has come."""
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
