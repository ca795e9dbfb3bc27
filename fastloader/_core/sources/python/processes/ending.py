"""How worker processes learn that they are to end."""

from __future__ import annotations

import contextlib
import os
import select
import time
import weakref
from multiprocessing.reduction import DupFd
from typing import Any

from fastloader._core.machine.process import HomeProcess

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
        """The descriptor that is readable once this is set. To be called in a worker process."""
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
    """Whether this is a worker process that is to end."""
    return _here is not None and _here.is_set()
