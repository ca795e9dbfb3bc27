"""torch's iterators over a `FastLoader`: on the loop's thread, and over workers. The latter can be told
to stop waiting, and carry the states of datasets that have one."""

from __future__ import annotations

import queue
import signal
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import torch
from torch._utils import ExceptionWrapper
from torch.utils.data import dataloader
from torch.utils.data._utils import signal_handling

from fastloader._core.machine.process import HomeProcess
from fastloader._core.observation import trace
from fastloader._core.observation.statistics import (
    TIMED,
    closed_meanwhile,
)
from fastloader._core.observation.tuning import LowPriorityWorker
from fastloader._core.order.generators import is_stateful
from fastloader._core.order.loader import Loader, auto_workers
from fastloader._core.order.position import Position
from fastloader._core.order.progress import as_given
from fastloader._core.sources.encoded.batch import EncodedBatch
from fastloader._core.sources.encoded.epoch import EncodedPictures
from fastloader._core.sources.python.arguments import LoaderView
from fastloader._core.sources.python.loader_iterator import LoaderIterator
from fastloader._core.sources.python.naming import NamingWorker, name_sample
from fastloader._core.sources.python.processes import (
    OutlivingWorker,
    end_at_exit,
    end_processes,
    is_handled,
)
from fastloader._core.sources.python.stateful import (
    AskingForState,
    Ended,
    Reported,
    StatefulWorker,
)
from fastloader.datasets.joint import fetching


class SingleProcessIterator(dataloader._SingleProcessDataLoaderIter, LoaderIterator):
    """torch's iterator without workers, on the training loop's thread."""

    def __init__(self, loader: Loader, pictures: EncodedPictures) -> None:
        self._pictures = pictures
        super().__init__(loader)
        position, saved = self._position, self._pass.saved
        if not position.iterable:
            return
        if self._restoring:
            position.users_generator = torch.get_rng_state()
        iterator = self._dataset_fetcher.dataset_iter
        self._pass.fetcher = self._dataset_fetcher
        if saved is not None and saved.get("ended"):
            self._dataset_fetcher.ended = True
        if is_stateful(iterator):
            self._pass.dataset_iterator = iterator
            if saved is not None and saved["iterator_state"] is not None:
                with position.on_users_generator():
                    iterator.load_state_dict(saved["iterator_state"])
        elif saved is not None and not is_stateful(position.dataset):
            self._begin_again()
            self._fast_forward()

    def _next_data(self) -> Any:
        if (data := self._undelivered) is None:
            begun = time.perf_counter()
            try:
                data = super()._next_data()
            except Exception as error:
                name_sample(error)
                raise
            finally:
                fetching.under_way = fetching.refused = ""  # this is the loop's thread
            if type(data) is EncodedBatch:
                self.encoded.begin(0, data)
            now = time.perf_counter()
            # Before the loop waits for the decode threads, which is no work of the dataset's.
            self._statistics.add_time("fetch", now - begun)
            if trace.active is not None:
                trace.add("fetch", begun, now)
        if type(data) is EncodedBatch or self.encoded.refused or self._lays_out:
            data = self._deliver(data)
        self._position.read_here = True
        return data


# ---- torch's worker iterator, which can be told to stop waiting for its workers.


_TURN = 0.1  # seconds


def poll(
    try_get: Callable[[float], Any],
    timeout: float | None,
    check: Callable[[], None],
    workers: Sequence[Any],
) -> Any:
    """Tries to get a batch by torch's ``try_get`` for ``timeout`` seconds, which the user has set.
    Without ``timeout`` tries for one turn, after which torch calls again. ``check`` is called before
    each turn, and raises what ends the wait."""
    until = None if timeout is None else time.monotonic() + timeout
    while True:
        check()
        turn = _TURN if until is None else min(_TURN, max(0.0, until - time.monotonic()))
        try:
            got = try_get(turn)
        except RuntimeError as error:
            if isinstance(error.__cause__, queue.Empty):  # torch has found a worker dead by itself
                _tell_of_death(workers, error)
            raise
        if got[0] or until is None or time.monotonic() >= until:
            return got


def _tell_of_death(workers: Sequence[Any], error: RuntimeError) -> NoReturn:
    """Raises how a worker died, in the place of torch's signal handler.

    That handler interrupts the main thread and raises how the worker died, and ``error`` from that
    if the main thread was waiting here. If this look at the workers comes first, it has taken from
    the system what the handler would ask for."""
    codes = [(worker.pid, worker.exitcode) for worker in workers]
    death = next((_death(pid, code) for pid, code in codes if code), None)
    if death is None:
        raise error
    if threading.current_thread() is threading.main_thread():
        raise error from death
    raise death


class WorkerIterator(dataloader._MultiProcessingDataLoaderIter, LoaderIterator):
    """torch's iterator over workers: processes, threads or actors. It waits for them in short turns, and
    looks in between whether it is still wanted.

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
    _filled_place: bool  # whether what next() raised last took a batch's place
    _followed = False  # whether a delivery advances it; see `lookahead`

    def _try_get_data(self, timeout: float | None = None) -> Any:
        return poll(super()._try_get_data, timeout, self._check_left, self._workers)

    def _check_left(self) -> None:
        if self._left:
            self._refuse()

    def leave(self) -> None:
        """Ends a ``next()`` that waits for a worker, or for its pictures."""
        self._left = True
        self._stop_decoding()

    def _refuse(self) -> None:
        """Raises what ends ``next()`` if the epoch has ended during the call."""
        raise closed_meanwhile()

    def _next_data(self) -> Any:
        data = self._undelivered
        return self._deliver(self._receive() if data is None else data)

    def _receive(self) -> Any:
        """Receives the next batch, whose pictures may still be encoded."""
        self._filled_place = False
        count_ready(self)
        if self.encoded.seen:
            self._begin_arrived()
        return super()._next_data()

    def _get_data(self) -> Any:
        got = super()._get_data()
        self._note_arrival(*got)
        return got

    def _process_data(self, *data: Any) -> Any:
        self._filled_place = True  # also for an error, which is raised from here
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
    if iterator._followed or not TIMED:
        return
    try:
        ready = iterator._data_queue.qsize()
    except NotImplementedError:  # macOS
        return
    ready += sum(len(info) == 2 for info in list(iterator._task_info.values()))
    iterator._statistics.note_ready(ready)


# ---- Over worker processes.


class ProcessIterator(WorkerIterator):
    """torch's iterator over worker processes. If the dataset or its iterator has a state, batches bring
    the state of their worker once a state was asked for."""

    _in_processes = _notes_arrivals = True
    # Kept here, because modules are empty when Python has ended, and torch's finalizer comes later.
    _end_processes = staticmethod(end_processes)
    _own_processes = True  # whether the workers are processes that this one has started
    _arrived: int | None = None  # torch's number of the batch that came last

    def __init__(self, loader: Loader, pictures: EncodedPictures) -> None:
        self._home = HomeProcess()
        self._pictures = pictures
        position: Position = loader._runtime.position
        self._stateful = position.iterable or is_stateful(position.dataset)
        # Batches always bring the state here, because the batches could not be read again: the states
        # of persistent workers may come from earlier epochs.
        self._always = position.iterable and loader.persistent_workers
        states, resuming = position.worker_states()
        self._first_worker = position.first_worker() % loader.num_workers
        again = self._reads_again = position.reads_again(states, resuming)
        self._before = {int(each): saved["samples"] for each, saved in states.items() if resuming}
        seen: Any = loader
        if self._own_processes:
            seen = LoaderView(seen, worker_init_fn=NamingWorker(seen.worker_init_fn))
        if self._stateful:
            begin = StatefulWorker(seen.worker_init_fn, states, resuming)
            seen = LoaderView(seen, worker_init_fn=begin)
        if auto_workers(loader) is not None:
            seen = LoaderView(seen, worker_init_fn=LowPriorityWorker(seen.worker_init_fn))
        outlives = self._own_processes and is_handled()
        if outlives:
            seen = LoaderView(seen, worker_init_fn=OutlivingWorker(seen.worker_init_fn))
        super().__init__(seen)
        if outlives:
            end_at_exit(self)
        if again:
            self._fast_forward()

    def _reset(self, loader: Loader, first_iter: bool = False) -> None:
        super()._reset(loader, first_iter)
        self._pass.workers_began = first_iter

    def _draw_index(self) -> Any:
        index = super()._draw_index()
        if self._pass.outstanding is not None:
            self._pass.outstanding[self._send_idx] = as_given(self._drawn)
        asked = self._stateful and (self._always or self._position.asked)
        return AskingForState(index) if asked else index

    def _try_put_index(self) -> None:
        # The first index batch may belong to a later worker, because a state may be from the middle of a
        # round over the workers.
        if self._first_worker and self._send_idx == 0:
            for _ in range(self._first_worker):
                next(self._worker_queue_idx_cycle)
        self._first_worker = 0
        super()._try_put_index()

    def _get_data(self) -> Any:
        got = super()._get_data()
        self._arrived = got[0]
        return got

    def _note_arrival(self, number: Any, data: Any) -> None:
        if type(data) is Ended:
            self._pass.ended[str(data.worker_id)] = data.state
        super()._note_arrival(number, data.batch if type(data) is Reported else data)

    def _receive(self) -> Any:
        if self._pass.outstanding is None:
            return self._receive_reported()
        self._arrived = None
        try:
            return self._receive_reported()
        finally:
            if self._arrived is not None:  # a batch, or an error in the place of one
                self._pass.arrivals.append(self._arrived)

    def _receive_reported(self) -> Any:
        if not self._stateful:
            return super()._receive()
        try:
            data = super()._receive()
        except StopIteration:
            raise
        except Exception:
            if self._filled_place:
                self._pass.reports.append((None, None))
            raise
        if type(data) is not Reported:
            self._pass.reports.append((None, None))
            return data
        self._pass.reports.append((data.worker, data.state))
        if type(data.batch) is ExceptionWrapper:
            data.batch.reraise()
        return data.batch

    def close(self) -> None:
        super().close()
        if self._home.here:  # the workers are this process's
            self._shutdown_workers()

    def _shutdown_workers(self) -> None:
        if self._own_processes and not self._shutdown and self._home.here:
            self._end_processes(self)
        super()._shutdown_workers()
