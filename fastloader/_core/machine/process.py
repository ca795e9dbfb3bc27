"""Locks of this process's own."""

from __future__ import annotations

import os
import threading
import weakref


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
