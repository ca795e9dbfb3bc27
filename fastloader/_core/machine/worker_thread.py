"""What code in a worker thread can ask about the end of its thread."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator


class Stop:
    """Is set when worker threads are to end, and wakes what they wait for. torch sets it as it sets an
    event of multiprocessing. So may the handler of a signal that has interrupted `set`."""

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
        """Waits until this is set, or for so long. Returns whether it is set."""
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
    """That of this thread; None if it is no worker thread."""
    found: Stop | None = getattr(_of_thread, "stop", None)
    return found


_of_thread = threading.local()
