"""What a worker thread does: fetch batches until the iterator tells it to end."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from torch._utils import ExceptionWrapper
from torch.utils.data import _DatasetKind
from torch.utils.data._utils import worker

from fastloader._core.machine import process
from fastloader._core.sources.python.naming import name_sample
from fastloader._core.sources.python.threads import worker_info


def work(
    dataset_kind: int,
    dataset: Any,
    index_queue: Any,
    data_queue: Any,
    done_event: process.Stop,
    auto_collation: bool,
    collate_fn: Callable[[Any], Any],
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
                data = fetcher.fetch(index)
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
