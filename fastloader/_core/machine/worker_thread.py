"""What code in a worker thread can ask about the end of its thread."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator


class Stop(threading.Event):
    """Is set when worker threads are to end, and wakes what they wait for."""

    def __init__(self) -> None:
        super().__init__()
        self._guard = threading.Lock()  # guards what is to be woken
        self._wakes: dict[object, Callable[[], None]] = {}

    def set(self) -> None:
        super().set()
        with self._guard:
            wakes = list(self._wakes.values())
        for wake in wakes:
            wake()

    @contextlib.contextmanager
    def waking(self, wake: Callable[[], None]) -> Iterator[None]:
        """Calls ``wake`` if this is set before the context ends, on any thread, perhaps more than
        once."""
        key = object()
        with self._guard:
            self._wakes[key] = wake
        try:
            if self.is_set():
                wake()
            yield
        finally:
            with self._guard:
                del self._wakes[key]


def become(stop: Stop) -> None:
    """Makes this thread one that ends when ``stop`` is set."""
    _of_thread.stop = stop


def stop_of_thread() -> Stop | None:
    """That of this thread; None if it is no worker thread."""
    found: Stop | None = getattr(_of_thread, "stop", None)
    return found


_of_thread = threading.local()
