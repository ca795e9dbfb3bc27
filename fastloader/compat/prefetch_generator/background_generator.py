"""``BackgroundGenerator``, which advances any iterable on a thread."""

from __future__ import annotations

import functools
import os
import queue
import threading
import types
import weakref
from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar, overload

T = TypeVar("T")
Producing = TypeVar("Producing", bound=Callable[..., Iterable[Any]])

# Seconds that close() waits for the thread if that is in the source's next().
_PATIENCE = 5.0


class _Shared:
    """The state that the thread and its BackgroundGenerator share. The thread does not refer to the
    BackgroundGenerator, so that dropping that ends the thread.

    The queues are SimpleQueues, because a finalizer may interrupt them on the same thread, where the
    Condition inside queue.Queue would deadlock.
    """

    def __init__(self, source: Iterable[Any], room: int, function: Any) -> None:
        self.source = source
        self.function = function
        # (True, item), or (False, what ends the iteration).
        self.items: queue.SimpleQueue[tuple[bool, Any]] = queue.SimpleQueue()
        # One token for each item that may still be put; None for any number.
        self.room: queue.SimpleQueue[None] | None = None
        if room > 0:
            self.room = queue.SimpleQueue()
            for _ in range(room):
                self.room.put(None)
        # A plain attribute is enough between two threads, under the GIL and without it, because the
        # token that wakes the thread is put after the write.
        self.closed = False
        self.pid = os.getpid()

    def close(self) -> None:
        """Makes the thread end after its current item. Any thread may call this, any number of times."""
        if self.pid != os.getpid():
            return  # a forked child does not have this thread
        self.closed = True
        if self.room is not None:
            self.room.put(None)
        self.items.put((False, StopIteration()))


def _produce(shared: _Shared) -> None:
    source = shared.source
    try:
        for item in source:
            if shared.function is not None:
                item = shared.function(item)
            if shared.room is not None:
                shared.room.get()
            if shared.closed:
                break
            shared.items.put((True, item))
            del item
        end: BaseException = StopIteration()
    except BaseException as error:
        end = error
    if shared.closed:
        if isinstance(source, types.GeneratorType):
            source.close()  # so that its finally clauses run now, on the thread that ran the rest
        return
    shared.items.put((False, end))


class BackgroundGenerator(Generic[T]):
    """Advances ``generator`` on its own thread, while the caller works with the items that it gave
    before.

    As in the ``prefetch_generator`` package, the thread starts at once and keeps the order. An
    exception arrives in its place, as the same object. After the end or an exception, StopIteration is
    raised for ever. Some things are better here. The thread ends and drops generator and items,
    wherever it waits, if the object is dropped, at ``close()``, at the end of a ``with`` block, and at
    the end of the process. KeyboardInterrupt and SystemExit from the source arrive like any other
    exception; there they look like a clean end. ``len()`` and unknown attributes are the generator's.
    In a forked child ``next()`` says what is wrong, instead of waiting for ever.

    Args:
        generator: Any iterable. A DataLoader's iterator is typical.
        max_prefetch: How many items may wait for the caller; default 1. One more may be finished and
            wait for room, as in the original. 0 or less is any number.
        preprocess_func: Applied to every item on the thread; default None. The original deprecates it,
            too.

    Attributes: ``generator``, ``max_prefetch``, ``preprocess_func``, ``queue`` (``qsize()`` and
    ``empty()`` say how far ahead the thread is), ``Continue`` (False once the end was reached).

    Raises:
        TypeError: at once, if ``generator`` is not iterable or ``max_prefetch`` is no whole number.
        RuntimeError: from ``next()`` in a forked child.
    """

    def __init__(
        self,
        generator: Iterable[T],
        max_prefetch: int = 1,
        preprocess_func: Callable[[Any], T] | None = None,
    ) -> None:
        if isinstance(max_prefetch, bool) or not isinstance(max_prefetch, int):
            raise TypeError(f"max_prefetch must be a whole number of items, got {max_prefetch!r}")
        if not hasattr(generator, "__iter__") and not hasattr(generator, "__getitem__"):
            raise TypeError(f"generator must be iterable, got {type(generator).__name__}")
        self.generator = generator
        self.max_prefetch = max_prefetch
        self.preprocess_func = preprocess_func
        self.Continue = True
        self._waiting: list[None] = []  # one for each thread in next()
        self._shared = _Shared(generator, max_prefetch, preprocess_func)
        self.queue = self._shared.items
        # The thread is a daemon, because a source that waits for ever must not keep the process.
        self._thread = threading.Thread(
            target=_produce, args=(self._shared,), name="BackgroundGenerator", daemon=True
        )
        self._closing = weakref.finalize(self, self._shared.close)
        self._thread.start()

    def __iter__(self) -> BackgroundGenerator[T]:
        return self

    def __next__(self) -> T:
        if not self.Continue:
            raise StopIteration
        shared = self._shared
        if shared.pid != os.getpid():
            raise RuntimeError(
                f"this BackgroundGenerator runs in process {shared.pid}, this is process "
                f"{os.getpid()}: make it after the fork"
            )
        self._waiting.append(
            None
        )  # before Continue is looked at, which close() clears before it looks
        try:
            if not self.Continue:
                raise StopIteration
            succeeded, item = shared.items.get()
        finally:
            self._waiting.pop()
        if succeeded:
            if shared.room is not None:
                shared.room.put(None)
            return item
        self.Continue = False
        self.close()
        try:
            raise item
        finally:
            del item  # breaks the cycle of this frame and the error

    def next(self) -> T:
        """Returns ``next(self)``, as in Python 2 and the original."""
        return self.__next__()

    def close(self) -> None:
        """Ends the thread and drops the items that it had made. Waits five seconds at most until the
        thread has left the source's ``next()``. Idempotent. Afterwards ``next()`` raises
        StopIteration."""
        self.Continue = False
        self._closing()
        if self._shared.pid != os.getpid():
            return
        if self._thread is not threading.current_thread():
            self._thread.join(_PATIENCE)
        while not self._shared.items.empty():
            self._shared.items.get()
        if self._waiting:
            self._shared.items.put((False, StopIteration()))  # each thread that wakes does so again

    def is_alive(self) -> bool:
        """Returns whether the thread still runs."""
        return self._thread.is_alive()

    def join(self, timeout: float | None = None) -> None:
        """Waits for the thread, ``timeout`` seconds at most. The thread ends when all was made and
        taken."""
        self._thread.join(timeout)

    def __enter__(self) -> BackgroundGenerator[T]:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: types.TracebackType | None,
    ) -> None:
        self.close()

    def __len__(self) -> int:
        return len(self.generator)  # type: ignore[arg-type]

    def __bool__(self) -> bool:
        return True  # because `if batches:` must not ask for a length, which the original lacks

    def __getattr__(self, name: str) -> Any:
        # Reached for unknown names only. The guard is for copy and pickle, which ask before __init__.
        if name.startswith("__") or "generator" not in self.__dict__:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(self.generator, name)

    def __reduce__(self) -> Any:
        raise NotImplementedError(f"{type(self).__name__} cannot be pickled: it owns a thread")


@overload
def background(max_prefetch: Producing) -> Producing: ...
@overload
def background(max_prefetch: int = 1) -> Callable[[Producing], Producing]: ...


def background(max_prefetch: Any = 1) -> Any:
    """Decorates a function, so that every call gives a `BackgroundGenerator` over what the function
    returns. It may be used with or without parentheses::

        @background(max_prefetch=3)
        def batches(path):
            yield ...
    """
    if callable(max_prefetch):
        return background()(max_prefetch)

    def decorate(function: Any) -> Any:
        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> BackgroundGenerator[Any]:
            return BackgroundGenerator(function(*args, **kwargs), max_prefetch)

        return call

    return decorate


prefetch = background
