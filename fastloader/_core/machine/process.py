"""Locks of this process's own, and what ends when it does."""

from __future__ import annotations

import atexit
import os
import threading
import weakref
from collections.abc import Callable


class ProcessLock:
    """Where a reentrant lock is kept. In a forked child there is another one: a thread of the parent's,
    which is not there to let it go, may have held the first. Always ``with kept.lock:``, so that who
    holds a lock while it forks lets that one go."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        _all.add(self)


_all: weakref.WeakSet[ProcessLock] = weakref.WeakSet()


def _renew() -> None:
    """In the child, while it has one thread."""
    for each in list(_all):
        each.lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)


_at_exit: set[Callable[[], None]] = set()


def at_exit(end: Callable[[], None]) -> None:
    """Once for each ``end``, however often it is given. It is called when the interpreter has waited for
    the threads that it waits for, any of which may still be in an epoch, and before it takes itself
    apart, when daemons of ours could not go on: one that comes back from native code after that would
    crash. What was given last is called first."""
    if end not in _at_exit:
        _at_exit.add(end)
        atexit.register(end)


class HomeProcess:
    """The process that something was made in. A forked child has no thread of its parent's, and leaves
    alone what those own."""

    def __init__(self) -> None:
        self.pid = os.getpid()

    @property
    def here(self) -> bool:
        return self.pid == os.getpid()

    def check(self) -> None:
        """For an iterator: raises RuntimeError in another process."""
        if self.pid != os.getpid():
            raise RuntimeError(
                f"this iterator belongs to process {self.pid}, this is {os.getpid()}: call iter() on "
                "the loader to get one here"
            )
