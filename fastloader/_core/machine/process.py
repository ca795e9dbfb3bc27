"""This process: its own locks, what ends with it, and what belongs to it."""

from __future__ import annotations

import atexit
import os
import threading
import weakref
from collections.abc import Callable


class ProcessLock:
    """Keeps a reentrant lock, which is replaced in a forked child. A thread of the parent may have held
    the first lock, and does not exist in the child to release it. Always write ``with kept.lock:``, so
    that a thread that forks while it holds a lock releases that same lock."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        _all.add(self)


_all: weakref.WeakSet[ProcessLock] = weakref.WeakSet()


def _renew() -> None:
    """Replaces all locks in a forked child, while that has only one thread."""
    for each in list(_all):
        each.lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)


_at_exit: set[Callable[[], None]] = set()


def at_exit(end: Callable[[], None]) -> None:
    """Calls ``end`` once at interpreter exit, however often it is given. What was given last is called
    first.

    The call comes after the interpreter has waited for non-daemon threads, any of which may still be in
    an epoch. It comes before the interpreter takes itself apart, when daemon threads of ours cannot go
    on: one that comes back from native code after that would crash."""
    if end not in _at_exit:
        _at_exit.add(end)
        atexit.register(end)


class HomeProcess:
    """The process in which something was made. A forked child does not have its parent's threads, and
    leaves alone what those own."""

    def __init__(self) -> None:
        self.pid = os.getpid()

    @property
    def here(self) -> bool:
        return self.pid == os.getpid()

    def check(self) -> None:
        """Raises RuntimeError in another process. For iterators."""
        if self.pid != os.getpid():
            raise RuntimeError(
                f"this iterator belongs to process {self.pid}, this is {os.getpid()}: call iter() on "
                "the loader to get one here"
            )
