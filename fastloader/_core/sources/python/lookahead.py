"""torch's worker iterator, advanced ahead of the training loop without the sampler noticing."""

from __future__ import annotations

import os
import queue
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

from torch.utils.data.dataloader import _MultiProcessingDataLoaderIter

from fastloader._core.handoff import NotYet
from fastloader._core.order.loader import Loader
from fastloader._core.sources.python.iterators import WorkerIterator, abandon, poll


class Lookahead:
    """A `LoopFollower` that advances torch's worker iterator, of whatever class derived from torch's
    that is; see `follow_loop`.

    DataLoader asks the sampler for one index batch at each ``next()``, on the training loop's thread. A
    sampler may draw from the global generators or follow the training loop, and the pump thread is ahead
    of the loop. So the index batch that torch would draw when it delivers a batch is owed until the loop
    takes that batch.

    No more is prefetched than with DataLoader, and a part of that is in the ring. An iterable dataset
    does not have a sampler, but for the same reason its workers read no further ahead than with
    DataLoader.

    torch's methods call each other on the iterator. Those that `_CALLS` names are therefore put on the
    iterator itself, in front of its class's, until its next epoch begins. The iterator holds this object
    weakly by them: its workers are to end with the last reference to it.
    """

    def __init__(self, source: Any) -> None:
        self._source = source
        self._kind = type(source)
        # Guards torch's bookkeeping, which two threads change: the pump thread in __next__, except while
        # it waits, and the training loop in `taken`. Reentrant, because a finalizer may call `leave` in
        # the middle of any allocation.
        self._turn = threading.RLock()
        # Wakes the pump thread, which then looks at what has changed. A Condition would not do: a
        # finalizer may call `leave` on the pump's own thread, between that thread's last look and its
        # sleep, and a Condition does not keep what it was told before the sleep.
        self._news: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._over = False  # whether the iterator is in another epoch
        self._advancing = False  # whether __next__ is in torch's; guarded by _turn
        self._delivering = False  # whether a batch is on its way out of __next__; guarded by _turn
        self._patient = True  # False while `next_if_there` asks, on the only thread that does
        self._owed = 0  # batches that came out of __next__ and were not taken yet; guarded by _turn
        self._taken = -1  # the number of the batch that was taken last; guarded by _turn
        if not isinstance(source, WorkerIterator):
            source._left, source._filled_place = False, True
            _others.add(source)
        source._followed = True
        for name in _CALLS:
            if hasattr(self._kind, name):
                setattr(source, name, _call(self, name))
        source._reset = _reset(self)

    def __iter__(self) -> Lookahead:
        return self

    def __next__(self) -> Any:
        source = self._source
        with self._turn:
            # Wait while no batch is under way: torch would end the epoch, although indices are to come.
            while self._owed and not self._ended and not self._under_way():
                self._wait()
            if self._ended:
                raise StopIteration
            if not isinstance(source, WorkerIterator):  # which says so itself
                source._filled_place = False
            self._advancing = True
            try:
                return next(source)
            finally:
                self._advancing = False

    @property
    def _ended(self) -> bool:
        return self._over or self._source._left

    @property
    def _filled_place(self) -> bool:
        """Whether what next() raised last took a batch's place."""
        took: bool = self._source._filled_place
        return took

    def _wait(self) -> None:
        self._turn.release()
        try:
            self._news.get()
        finally:
            self._turn.acquire()

    def _tell(self) -> None:
        if self._news.empty():  # otherwise the pump thread has yet to take it, and looks after that
            self._news.put(None)

    def _under_way(self) -> bool:
        """Whether a batch will come without another index, or none will come even with one. A worker
        whose iterable dataset has ended leaves its tasks behind."""
        source = self._source
        tasks, status = source._task_info.values(), source._workers_status
        return (
            getattr(source, "_undelivered", None) is not None
            or not any(status)
            or any(len(task) == 2 or status[task[0]] for task in tasks)
        )

    def next_if_there(self) -> Any:
        """Returns the next batch without waiting for it. For a delivery without a pump thread.

        Raises:
            NotYet: if the batch has not come.
        """
        self._patient = False
        try:
            return next(self)
        finally:
            self._patient = True

    def taken(self, number: int) -> None:
        """Tells that the training loop takes batch ``number``. Numbers rise; a second call with the same
        number does nothing. Raises what the sampler raises."""
        with self._turn:
            if self._owed and not self._ended and number != self._taken:
                self._taken = number
                self._owed -= 1
                self._tell()
                self._kind._try_put_index(self._source)

    def hand_over_timeout(self) -> float:
        seconds, self._source._timeout = self._source._timeout, 0
        return seconds  # as the user gave it, because a message shows it

    def leave(self) -> None:
        """Tells that the loop takes no more batches. A pump thread that waits for the loop returns."""
        if self._over:
            return
        if hasattr(self._kind, "_stop_decoding"):
            self._source._stop_decoding()  # a thread that waits for pictures has the turn
        with self._turn:
            self._source._left = True
            self._tell()

    # --- what torch calls in the place of the iterator's own method ---------------------------------

    def _process_data(self, *arguments: Any) -> Any:
        self._source._filled_place = True  # also for an error, which is raised from here
        self._delivering = True
        try:
            return self._kind._process_data(self._source, *arguments)
        finally:
            self._delivering = False

    def _try_put_index(self) -> None:
        # torch also asks for another index when a worker's iterable dataset has ended.
        if self._delivering:
            self._owed += 1
        else:
            self._kind._try_put_index(self._source)

    def _get_data(self) -> Any:
        self._turn.release()
        try:
            return self._kind._get_data(self._source)
        finally:
            self._turn.acquire()

    def _deliver(self, data: Any) -> Any:
        source = self._source
        if not self._patient and not source.encoded.ready(data):
            source._undelivered = data
            raise NotYet
        self._turn.release()
        try:
            return self._kind._deliver(source, data)
        finally:
            self._turn.acquire()

    def _try_get_data(self, timeout: float | None = None) -> Any:
        source = self._source
        if not self._patient:
            timeout = 0
        if isinstance(source, WorkerIterator):
            answer = self._kind._try_get_data(source, timeout)
        else:
            try_get = self._kind._try_get_data.__get__(source)
            answer = poll(try_get, timeout, self._check_left, source._workers)
        if not self._patient and not answer[0]:
            raise NotYet
        return answer

    def _check_left(self) -> None:
        if self._source._left or self._source._shutdown:
            self._refuse()

    def _refuse(self) -> NoReturn:
        raise StopIteration  # for the pump thread; the loop waits elsewhere, and is told there

    def _end(self) -> None:
        """Ends what waits here: the iterator is about to begin another epoch."""
        with self._turn:
            self._over = True
            self._tell()


# The methods that torch calls on its iterator and that a `Lookahead` answers while it advances it. An
# iterator that is not ours lacks some.
_CALLS = (
    "_process_data",
    "_try_put_index",
    "_get_data",
    "_deliver",
    "_try_get_data",
    "_refuse",
)


def _call(follower: Lookahead, name: str) -> Callable[..., Any]:
    """Makes what torch calls instead of the method ``name`` of the iterator: the method of the follower
    while that advances the iterator, and else the iterator's own. Holds neither of the two."""
    followers, sources = weakref.ref(follower), weakref.ref(follower._source)
    answered, own = getattr(Lookahead, name), getattr(follower._kind, name)

    def call(*arguments: Any, **named: Any) -> Any:
        here = followers()
        if here is not None and here._advancing:
            return answered(here, *arguments, **named)
        return own(sources(), *arguments, **named)

    return call


def _reset(follower: Lookahead) -> Callable[..., None]:
    """Makes what torch calls to begin the next epoch of persistent workers. The iterator is then as it
    was before it was followed: also there the training loop's thread sends the first index batches, as
    with DataLoader. The follower may be gone by then."""
    followers, sources = weakref.ref(follower), weakref.ref(follower._source)

    def reset(loader: Loader, first_iter: bool = False) -> None:
        here, source = followers(), sources()
        assert source is not None  # torch calls it
        if here is not None:
            here._end()
        for name in (*_CALLS, "_reset"):
            source.__dict__.pop(name, None)
        source._left = source._followed = False
        source._timeout = loader.timeout  # which `hand_over_timeout` has set to 0
        source._reset(loader, first_iter)

    return reset


# Iterators that are not ours, and were followed. In a forked child torch would tell the parent's workers
# to end when the last reference there is gone; ours see to that themselves.
_others: weakref.WeakSet[Any] = weakref.WeakSet()


def _abandon_others() -> None:
    for each in list(_others):
        abandon(each)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_abandon_others)


def follow_loop(source: Iterator[Any]) -> Lookahead | None:
    """Lets a delivery advance torch's worker iterator ahead of the training loop. The delivery then
    calls ``next()`` on what is returned, and its ``taken()`` for each batch that the loop takes. Returns
    None for every other iterator. Once the delivery has called ``hand_over_timeout()``, it watches the
    `timeout`, which counts from the loop's ``next()``."""
    return Lookahead(source) if isinstance(source, _MultiProcessingDataLoaderIter) else None
