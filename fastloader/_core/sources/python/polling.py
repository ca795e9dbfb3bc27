"""torch's worker iterator, which can be told to stop waiting for its workers."""

from __future__ import annotations

import queue
import signal
import threading
import time
from typing import Any, NoReturn

from torch.utils.data._utils import signal_handling
from torch.utils.data.dataloader import _MultiProcessingDataLoaderIter

from fastloader._core.machine.process import HomeProcess
from fastloader._core.observation.statistics import TIMED, closed_meanwhile
from fastloader._core.order.loader import Loader

_TURN = 0.1  # seconds


class PolledIterator(_MultiProcessingDataLoaderIter):
    """Waits for its workers in short turns, and looks in between whether it is still wanted.

    The call that ends the wait cannot go through the queue at which the iterator waits. Putting
    something there needs a lock that the workers share, and a worker that ends or is terminated while
    it sends takes that lock with it.
    """

    # Written on any thread, by the call that ends the epoch or the workers. Read without a lock, which
    # the GIL allows, because nothing else has to be seen together with it.
    _left = False
    # True until torch sets it: torch's finalizer reads it even if the sampler's iter() has raised before
    # that, and then there is nothing to shut down.
    _shutdown = True
    # torch's finalizer reads them even if not all workers could be started, or told of.
    _workers: Any = ()
    _workers_done_event: Any = threading.Event()
    _workers_status: Any = None
    # Whether persistent workers were asked for the next epoch and have not all answered. Answers to come
    # could not be told from those to the next asking.
    _resuming = False
    _home: HomeProcess
    _took: bool  # whether what next() raised last took a batch's place

    def _try_get_data(self, timeout: float | None = None) -> Any:
        """Tries to get a batch for ``timeout`` seconds, which the user has set. Without ``timeout``
        tries for one turn, after which torch calls again."""
        until = None if timeout is None else time.monotonic() + timeout
        while True:
            if self._left:
                self._refuse()
            turn = _TURN if until is None else min(_TURN, max(0.0, until - time.monotonic()))
            try:
                got = super()._try_get_data(turn)
            except RuntimeError as error:
                if isinstance(
                    error.__cause__, queue.Empty
                ):  # torch has found a worker dead by itself
                    self._tell_of_death(error)
                raise
            if got[0] or until is None or time.monotonic() >= until:
                return got

    def _tell_of_death(self, error: RuntimeError) -> NoReturn:
        """Raises how a worker died, in the place of torch's signal handler.

        That handler interrupts the main thread and raises how the worker died, and ``error`` from that
        if the main thread was waiting here. If this look at the workers comes first, it has taken from
        the system what the handler would ask for."""
        codes = [(worker.pid, worker.exitcode) for worker in self._workers]
        death = next((_death(pid, code) for pid, code in codes if code), None)
        if death is None:
            raise error
        if threading.current_thread() is threading.main_thread():
            raise error from death
        raise death

    def leave(self) -> None:
        """Ends a ``next()`` that waits for a worker, or for its pictures."""
        self._left = True
        self._stop_decoding()

    def _stop_decoding(self) -> None:
        super()._stop_decoding()  # type: ignore[misc]  # of DecodingIterator, into which this is mixed

    def _refuse(self) -> None:
        """Raises what ends ``next()`` if the epoch has ended during the call."""
        raise closed_meanwhile()

    def _next_data(self) -> Any:
        self._took = False
        return super()._next_data()

    def _process_data(self, *data: Any) -> Any:
        self._took = True  # also for an error, which is raised from here
        return super()._process_data(*data)

    def _shutdown_workers(self) -> None:
        # torch also calls this in a forked child, when the last reference there is gone, and would then
        # tell the parent's workers to end.
        if not self._home.here:
            abandon(self)
            return
        self._left = True
        if self._workers_status is None:
            self._workers_status = [True] * len(self._workers)
        super()._shutdown_workers()

    def _reset(self, loader: Loader, first_iter: bool = False) -> None:
        self._left = False
        self._resuming = not first_iter
        super()._reset(loader, first_iter)

    def _try_put_index(self) -> None:
        self._resuming = False
        super()._try_put_index()

    @property
    def serves_again(self) -> bool:
        """Whether persistent workers could make another epoch."""
        return not (self._shutdown or self._resuming) and all(
            worker.is_alive() for worker in self._workers
        )


def _death(pid: int | None, exitcode: int) -> RuntimeError:
    """The death of a worker, in the words of torch's signal handler."""
    if exitcode > 0:
        return RuntimeError(
            f"DataLoader worker (pid {pid}) exited unexpectedly with exit code {exitcode}. Details are "
            "lost due to multiprocessing. Rerunning with num_workers=0 may give better error trace."
        )
    text = f"DataLoader worker (pid {pid}) is killed by signal: {signal.strsignal(-exitcode)}. "
    if -exitcode == signal.SIGBUS:
        text += (
            "It is possible that dataloader's workers are out of shared memory. Please try to raise "
            "your shared memory limit."
        )
    return RuntimeError(text)


def abandon(iterator: Any) -> None:
    """Drops an iterator in a forked child. Its workers and their queues belong to the parent, so nothing
    may be put into them here. Threads that do not exist here may hold the locks."""
    iterator._shutdown = True
    # What torch registered under this object's address must go, because the next iterator may get the
    # same address.
    if getattr(iterator, "_worker_pids_set", False):
        iterator._worker_pids_set = False
        signal_handling._remove_worker_pids(id(iterator))


def count_ready(iterator: Any) -> None:
    """Counts the batches that have come from the workers when the loop asks for the next one. Counts
    nothing while a delivery reads ahead: a ring counts what is ready for the training loop."""
    if getattr(iterator, "_ahead", False) or not TIMED:
        return
    try:
        ready = iterator._data_queue.qsize()
    except NotImplementedError:  # macOS
        return
    ready += sum(len(info) == 2 for info in list(iterator._task_info.values()))
    iterator._statistics.note_ready(ready)
