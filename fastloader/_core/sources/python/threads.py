"""Makes batches on worker threads, for datasets that release the GIL."""

from __future__ import annotations

import os
import queue
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

from torch._utils import ExceptionWrapper
from torch.utils.data import _DatasetKind, _utils
from torch.utils.data._utils import worker

from fastloader._core.machine import process
from fastloader._core.machine.process import HomeProcess, Stop
from fastloader._core.observation.statistics import Statistics
from fastloader._core.observation.tuning import LowPriorityWorker
from fastloader._core.order.loader import Loader, auto_workers
from fastloader._core.sources import worker_info
from fastloader._core.sources.encoded.asked import KeyedIndex
from fastloader._core.sources.encoded.collation import EncodedCollation
from fastloader._core.sources.encoded.epoch import EncodedPictures
from fastloader._core.sources.python.arguments import LoaderView, named_arguments
from fastloader._core.sources.python.iterators import WorkerIterator
from fastloader._core.sources.python.naming import name_sample
from fastloader.datasets.joint import fetching

# ---- What a worker thread does: fetch batches until the iterator tells it to end.


def work(
    dataset_kind: int,
    dataset: Any,
    index_queue: Any,
    data_queue: Any,
    done_event: process.Stop,
    auto_collation: bool,
    collate_fn: EncodedCollation,
    drop_last: bool,
    base_seed: int,
    init_fn: Callable[[int], None] | None,
    worker_id: int,
    num_workers: int,
) -> None:
    """Does as torch's _worker_loop. It leaves out what concerns a whole process: global seeds, signal
    handlers, and torch's number of threads."""
    where = f"in DataLoader worker thread {worker_id}"
    process.become(done_event)
    worker_info.become(worker_info.make_info(worker_id, num_workers, base_seed, dataset))
    puts_off = collate_fn.puts_off
    fetcher: Any = None
    failed: ExceptionWrapper | None = None

    def begin() -> Any:
        return _DatasetKind.create_fetcher(
            dataset_kind, dataset, auto_collation, collate_fn, drop_last
        )

    try:
        if init_fn is not None:
            init_fn(worker_id)
        fetcher = begin()
    except BaseException:
        failed = ExceptionWrapper(where=where)
    ended = False
    while True:
        task = index_queue.get()
        if task is None:
            return
        if isinstance(task, worker._ResumeIteration):  # the next epoch of persistent workers
            ended = False
            try:
                fetcher, failed = begin(), None
            except BaseException:
                failed = ExceptionWrapper(where=where)
            data_queue.put((task, None))
            continue
        if done_event.is_set() or ended:
            continue
        number, index = task
        data: Any
        begun = time.perf_counter()
        if failed is not None:  # every batch of this worker
            data = failed
        else:
            try:
                fetching.under_way, fetching.refused = puts_off, ""
                data = fetcher.fetch(index.arrived() if isinstance(index, KeyedIndex) else index)
            except BaseException as error:  # SystemExit too, which would end the thread unseen
                if isinstance(error, StopIteration) and dataset_kind == _DatasetKind.Iterable:
                    data = worker._IterableDatasetStopIteration(worker_id)
                    ended = True
                else:
                    name_sample(error)
                    data = ExceptionWrapper(where=where)
        if data_queue.statistics is not None:
            data_queue.statistics.add_time("fetch", time.perf_counter() - begun)
        data_queue.put((number, data))
        del data, task, index  # so that nothing of a batch is kept while waiting for the next


# ---- torch's iterator over worker threads, for datasets that release the GIL.
#
# Worker threads run under the GIL. A free-threaded Python is not supported: the native module
# does not declare ``mod_gil_not_used()``, so importing it switches the GIL on there. It must
# not declare that before code that relies on the GIL (`lookahead`) no longer does, and the
# tests have run on such a Python.
#
# torch's iterator over worker processes does the bookkeeping, so that order, look-ahead,
# timeout, persistence and errors are torch's by construction. It is given threads and their
# queues in the place of processes and theirs. Nothing is pickled, and nothing goes through
# shared memory.


class _Queue(queue.SimpleQueue):  # type: ignore[type-arg]
    """A queue with the methods that torch calls on multiprocessing's queues. It does not have a feeder
    thread to wait for."""

    statistics: Statistics | None = None

    def cancel_join_thread(self) -> None:
        pass

    def close(self) -> None:
        pass


class _Worker:
    """A thread as torch's iterator sees its processes."""

    def __init__(self, target: Any, args: tuple[Any, ...]) -> None:
        given = named_arguments(target, args)
        # The thread is a daemon, because it may stay in the dataset for ever. The exit hook ends it in
        # order.
        self._thread = threading.Thread(
            target=work,
            kwargs=given,
            name=f"fastloader-worker-{given['worker_id']}",
            daemon=True,
        )
        self.name = self._thread.name
        self.daemon = True
        self._stop: Stop = given["done_event"]
        # Names the worker in messages. torch also looks whether a child process of that number has
        # ended.
        self.pid = os.getpid()

    def start(self) -> None:
        self._thread.start()

    def is_alive(self) -> bool:
        return self._thread.is_alive()

    @property
    def exitcode(self) -> int | None:
        """As of a process that was not killed: trainers look at it."""
        return None if self._thread.ident is None or self.is_alive() else 0

    def join(self, timeout: float | None = None) -> None:
        """Waits until the thread has ended, or ``timeout`` seconds from when the workers were told to
        end. torch waits for each worker, and once more for each that it has killed. A process that was
        killed ends at once. Threads that are in the dataset would make a loop that was interrupted wait
        all these times, one after the other."""
        if self._thread is threading.current_thread():  # garbage is collected on any thread
            return
        if timeout is not None and self._stop.set_at is not None:
            timeout = max(0.0, self._stop.set_at + timeout - time.monotonic())
        self._thread.join(timeout)

    def terminate(self) -> None:
        """Does nothing: a thread cannot be killed, and ends when the dataset returns."""

    kill = terminate


class _Context:
    """Stands in the place of the multiprocessing module."""

    Event = Stop
    Process = _Worker

    def __init__(self, statistics: Statistics) -> None:
        self._statistics = statistics

    def Queue(self) -> _Queue:
        made = _Queue()
        made.statistics = self._statistics
        return made


class ThreadIterator(WorkerIterator):
    """torch's iterator over workers, which are threads here."""

    def __init__(self, loader: Loader, pictures: EncodedPictures) -> None:
        self._home = HomeProcess()
        self._pictures = pictures
        worker_info.teach()
        seen: Any = loader
        if auto_workers(loader) is not None:
            seen = LoaderView(loader, worker_init_fn=LowPriorityWorker(loader.worker_init_fn))
        position = loader._runtime.position
        again = self._reads_again = position.iterable and position.worker_states()[1]
        context = _Context(loader._runtime.statistics)
        super().__init__(LoaderView(seen, multiprocessing_context=context))
        if again:
            self._fast_forward()
        process.at_exit(_end_all)
        live.add(self)

    def _next_data(self) -> Any:
        self._home.check()
        data = super()._next_data()
        self._position.read_here = True
        return data

    def close(self) -> None:
        """Ends the epoch and the worker threads, from any thread, and waits for what each thread is at.
        Further calls of ``next()`` raise StopIteration, and a call that is under way raises Error."""
        super().close()
        self._shutdown_workers()
        if self._home.here:
            self._end_threads()

    def _end_threads(self) -> None:
        """Does what `_shutdown_workers` does not do once torch's own function of the exit was called,
        which may come before ours. multiprocessing then ends processes, and no module ends threads."""
        if self._shutdown:
            return
        self._shutdown = True
        self._workers_done_event.set()
        for indices in self._index_queues:
            indices.put(None)
        for thread in self._workers:
            thread.join(_utils.MP_STATUS_CHECK_INTERVAL)


live: weakref.WeakSet[ThreadIterator] = weakref.WeakSet()


def _end_all() -> None:
    for iterator in list(live):
        iterator.close()
