"""torch's worker iterator, advanced ahead of the training loop without the sampler noticing."""

from __future__ import annotations

import functools
import queue
import threading
from collections.abc import Iterator
from typing import Any

from torch.utils.data.dataloader import _MultiProcessingDataLoaderIter

from fastloader._core.handoff import NotYet
from fastloader._core.machine.process import HomeProcess
from fastloader._core.order.loader import Loader
from fastloader._core.sources.encoded.iteration import DecodingIterator
from fastloader._core.sources.python.iterators import PolledIterator


class Lookahead(PolledIterator, DecodingIterator):
    """A `LoopFollower`, mixed into the class of an iterator that a delivery advances; see `follow_loop`.

    DataLoader asks the sampler for one index batch at each ``next()``, on the training loop's thread. A
    sampler may draw from the global generators or follow the training loop, and the pump thread is ahead
    of the loop. So the index batch that torch would draw when it delivers a batch is owed until the loop
    takes that batch.

    No more is prefetched than with DataLoader, and a part of that is in the ring. An iterable dataset
    does not have a sampler, but for the same reason its workers read no further ahead than with
    DataLoader.
    """

    # Guards torch's bookkeeping, which two threads change: the pump thread in __next__, except while it
    # waits, and the training loop in `taken`. Reentrant, because a finalizer may call `leave` in the
    # middle of any allocation.
    _turn: threading.RLock
    # Wakes the pump thread, which then looks at what has changed. A Condition would not do: a finalizer
    # may call `leave` on the pump's own thread, between that thread's last look and its sleep, and a
    # Condition does not keep what it was told before the sleep.
    _news: queue.SimpleQueue[None]
    _ahead = False
    _delivering = False  # whether a batch is on its way out of __next__; guarded by _turn
    _patient = True  # False while `next_if_there` asks, on the only thread that does
    _owed = 0  # batches that came out of __next__ and were not taken yet; guarded by _turn
    _taken = -1  # the number of the batch that was taken last; guarded by _turn

    def __next__(self) -> Any:
        if not self._ahead:
            return super().__next__()
        with self._turn:
            # Wait while no batch is under way: torch would end the epoch, although indices are to come.
            while self._owed and not self._left and not self._under_way():
                self._wait()
            if self._left:
                raise StopIteration
            return super().__next__()

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
        tasks = self._task_info.values()
        return (
            self._undelivered is not None
            or not any(self._workers_status)
            or any(len(task) == 2 or self._workers_status[task[0]] for task in tasks)
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
            if self._owed and not self._left and number != self._taken:
                self._taken = number
                self._owed -= 1
                self._tell()
                super()._try_put_index()

    def hand_over_timeout(self) -> float:
        seconds, self._timeout = self._timeout, 0
        return seconds  # as the user gave it, because a message shows it

    def leave(self) -> None:
        """Tells that the loop takes no more batches. A pump thread that waits for the loop returns."""
        self._stop_decoding()  # a thread that waits for pictures has the turn
        with self._turn:
            self._left = True
            self._tell()

    def _process_data(self, *arguments: Any) -> Any:
        self._delivering = True
        try:
            return super()._process_data(*arguments)
        finally:
            self._delivering = False

    def _try_put_index(self) -> None:
        # torch also asks for another index when a worker's iterable dataset has ended.
        if self._ahead and self._delivering:
            self._owed += 1
        else:
            super()._try_put_index()

    def _get_data(self) -> Any:
        if not self._ahead:
            return super()._get_data()
        self._turn.release()
        try:
            return super()._get_data()
        finally:
            self._turn.acquire()

    def _decoded(self, data: Any) -> Any:
        if not self._ahead:
            return super()._decoded(data)
        if not self._patient and not self.encoded.ready(data):
            self._undelivered = data
            raise NotYet
        self._turn.release()
        try:
            return super()._decoded(data)
        finally:
            self._turn.acquire()

    def _try_get_data(self, timeout: float | None = None) -> Any:
        if self._patient:
            return super()._try_get_data(timeout)
        answer = super()._try_get_data(0)
        if not answer[0]:
            raise NotYet
        return answer

    def _refuse(self) -> None:
        if not self._ahead:
            super()._refuse()
        raise StopIteration  # for the pump thread; the loop waits elsewhere, and is told there

    def _reset(self, loader: Loader, first_iter: bool = False) -> None:
        # In the next epoch of persistent workers the training loop's thread sends the first index
        # batches, as with DataLoader.
        self._ahead = False
        self._owed = 0
        self._taken = -1
        self._timeout = loader.timeout  # which `hand_over_timeout` set to 0 in the epoch before
        super()._reset(loader, first_iter)


def follow_loop(source: Iterator[Any]) -> Lookahead | None:
    """Lets a delivery advance torch's worker iterator ahead of the training loop. The delivery then
    calls ``taken()`` for each batch that the loop takes. Returns None for every other iterator.

    The iterator itself is changed, of whatever class derived from torch's it is: torch's own methods
    would not call a wrapper. Once the delivery has called ``hand_over_timeout()``, it watches the
    `timeout`, which counts from the loop's ``next()``."""
    if not isinstance(source, _MultiProcessingDataLoaderIter):
        return None
    watched: Any = source
    if not isinstance(watched, Lookahead):
        watched._turn = threading.RLock()
        watched._news = queue.SimpleQueue()
        watched._home = HomeProcess()
        kind: Any = type(source)
        watched.__class__ = _following(kind)
    watched._ahead = True
    return watched


@functools.cache
def _following(kind: Any) -> Any:
    return type(kind.__name__, (Lookahead, kind), {"__module__": kind.__module__})
