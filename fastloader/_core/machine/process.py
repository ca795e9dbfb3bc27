"""This process: the locks that it keeps for itself, what ends with it, and what belongs to it."""

from __future__ import annotations

import atexit
import concurrent.futures.thread  # noqa: F401  (see `exiting`)
import contextlib
import multiprocessing.util  # noqa: F401  (see below)
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator


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


# Both by the function that ends something. What is due was given since its last call.
_registered: set[Callable[[], None]] = set()
_due: dict[Callable[[], None], None] = {}


def at_exit(end: Callable[[], None], last: bool = False) -> None:
    """Calls ``end`` once at interpreter exit, however often it is given. What was given last is called
    first, and what is given with ``last=True`` after everything else.

    The call comes after the interpreter has waited for non-daemon threads, any of which may still be in
    an epoch. It comes before the interpreter takes itself apart, when daemon threads of ours cannot go
    on: one that comes back from native code after that would crash.

    A function that the program registered with `atexit` may begin an epoch when ``end`` was called
    already. Whoever begins something therefore gives its ``end`` each time, and it is called again.
    Functions that were registered before fastloader was imported run too late for that."""
    _due[end] = None
    if not last and end not in _registered:
        _registered.add(end)
        atexit.register(_call, end)


def _call(end: Callable[[], None]) -> None:
    if end in _due:
        del _due[end]
        end()


def _call_the_rest() -> None:
    """Calls the functions that were given during the exit, when the interpreter takes no more of them,
    and those that were given to be last."""
    given = list(_due)
    last = [end for end in given if end not in _registered]
    with contextlib.ExitStack() as calls:  # from back to front, also behind a call that raises
        for end in [*last, *(end for end in given if end in _registered)]:
            calls.callback(_call, end)


# Registered at import, and thereby behind all that the program registers later. multiprocessing, which
# was imported before, ends the workers after that: a source that waits for a worker is ended first.
atexit.register(_call_the_rest)


_exiting = False


def exiting() -> bool:
    """Returns whether the interpreter ends, and is about to wait for its threads. It waits for those of
    pools before it calls what `at_exit` was given. So pools should ask this before they begin anything
    more."""
    return _exiting


def _note_exit() -> None:
    global _exiting
    _exiting = True


# The last one that is registered is called first. The pools' module, which was imported before, has
# registered the function that waits for their threads.
try:
    threading._register_atexit(_note_exit)  # type: ignore[attr-defined]
except RuntimeError:  # this module is imported while the interpreter ends
    _note_exit()


class HomeProcess:
    """The process in which an object was made. A forked child does not have its parent's threads, and
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


# ---- What code in a worker thread can ask about the end of its thread.


class Stop:
    """A flag that is set when worker threads are to end, and that wakes what they wait for. torch sets
    it as it sets an event of multiprocessing. So may the handler of a signal that has interrupted
    `set`."""

    def __init__(self) -> None:
        # Guards what is to be woken. Reentrant, unlike that of a threading.Event, for such a handler.
        self._changed = threading.Condition(threading.RLock())
        self.set_at: float | None = None  # by time.monotonic()
        self._wakes: dict[object, Callable[[], None]] = {}

    def is_set(self) -> bool:
        return self.set_at is not None

    def set(self) -> None:
        with self._changed:
            if self.set_at is None:
                self.set_at = time.monotonic()
            self._changed.notify_all()
            wakes = list(self._wakes.values())
        for wake in wakes:
            wake()

    def wait(self, seconds: float) -> bool:
        """Waits until the flag is set, or for ``seconds``. Returns whether it is set."""
        with self._changed:
            return self._changed.wait_for(self.is_set, seconds)

    @contextlib.contextmanager
    def waking(self, wake: Callable[[], None]) -> Iterator[None]:
        """Calls ``wake`` if this is set before the context ends, on any thread, perhaps more than
        once."""
        key = object()
        with self._changed:
            self._wakes[key] = wake
        try:
            if self.is_set():
                wake()
            yield
        finally:
            with self._changed:
                del self._wakes[key]


def become(stop: Stop) -> None:
    """Makes this thread one that ends when ``stop`` is set."""
    _of_thread.stop = stop


def stop_of_thread() -> Stop | None:
    """Returns the `Stop` of this thread; None if it is no worker thread."""
    found: Stop | None = getattr(_of_thread, "stop", None)
    return found


_of_thread = threading.local()
