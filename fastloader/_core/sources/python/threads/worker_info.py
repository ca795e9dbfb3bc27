"""Who a worker thread is: what torch's ``get_worker_info()`` says in it, in the threads that it
starts, and in the processes that it forks.

torch up to 2.13 keeps this in a global of the process, one for all its threads. The worker threads that
are to come to torch (pytorch#161044) have one each, in ``worker._thread_local_worker_info``, which its
``get_worker_info`` asks first. Where that is, ours is kept there, and nothing of torch's is replaced.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
import functools
import gc
import os
import random
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch.utils.data._utils import collate, worker

# Its attribute worker_info is this thread's; None or not there in a thread that is no worker's. A torch
# that knows worker threads has one of its own, which takes this one's place.
_here: Any = threading.local()


@dataclasses.dataclass(frozen=True)
class WorkerGenerators:
    """``get_worker_info().rng`` in a thread: generators of its own, seeded as a process's global ones
    would be. The fields are named as in torch 2.13."""

    random_generator: random.Random
    torch_generator: torch.Generator
    numpy_generator: Any


def make_info(worker_id: int, num_workers: int, base_seed: int, dataset: Any) -> Any:
    seed = base_seed + worker_id
    generators = WorkerGenerators(
        random.Random(seed),
        torch.Generator().manual_seed(seed),
        np.random.default_rng(worker._generate_state(base_seed, worker_id)),
    )
    return worker.WorkerInfo(
        id=worker_id,
        num_workers=num_workers,
        seed=seed,
        dataset=dataset,
        rng=generators,  # type: ignore[arg-type]
        worker_method="thread",
    )


def of_this_thread() -> Any:
    return getattr(_here, "worker_info", None)


def become(info: Any) -> None:
    """This thread is that worker from now on."""
    _here.worker_info = info


# --- what torch and Python are taught ---------------------------------------------------------------

_teaching = threading.Lock()  # guards _taught, and _here until then
_taught = False


def teach() -> None:
    """Before the first worker thread: once for a process."""
    global _here, _taught
    with _teaching:
        if _taught:
            return
        torchs = getattr(worker, "_thread_local_worker_info", None)
        if torchs is not None:
            _here = torchs
        else:
            _replace(worker.get_worker_info, _answer_threads(worker.get_worker_info))
        _hand_down()
        os.register_at_fork(after_in_child=_become_process)
        _taught = True


def _answer_threads(of_process: Callable[[], Any]) -> Callable[[], Any]:
    def get_worker_info() -> Any:
        info = of_this_thread()
        # default_collate allocates shared memory where there is a worker's info: not in a thread.
        if info is None or sys._getframe(1).f_globals is vars(collate):
            return of_process()
        return info

    # As which pickle finds it.
    for name in ("__module__", "__qualname__", "__doc__"):
        setattr(get_worker_info, name, getattr(of_process, name))
    return get_worker_info


def _replace(old: Any, new: Any) -> None:
    """In every namespace that code looks names up in, since ``from torch.utils.data import
    get_worker_info`` has made copies. What is imported later gets the new one anyway."""
    for namespace in [*_namespaces(old)]:
        for name, value in list(namespace.items()):
            if value is old:
                namespace[name] = new


def _namespaces(holding: Any) -> Iterator[dict[str, Any]]:
    for module in list(sys.modules.values()):  # those that gc.freeze() has hidden, too
        if isinstance(getattr(module, "__dict__", None), dict):
            yield vars(module)
    for holder in gc.get_referrers(holding):  # those of no module: cloudpickle's, exec's
        if type(holder) is dict and "__builtins__" in holder:
            yield holder


def _hand_down() -> None:
    """A thread that a worker starts, and a call that it gives to a pool of threads, belong to that
    worker, as they would in a worker process."""
    start = threading.Thread.start
    submit: Any = concurrent.futures.ThreadPoolExecutor.submit

    @functools.wraps(start)
    def start_as_worker(self: threading.Thread) -> None:
        info = of_this_thread()
        if info is None or self._started.is_set():  # type: ignore[attr-defined]
            start(self)
            return
        run, attributes = self.run, vars(self)
        own = attributes.get("run")  # else the class's

        def run_as_worker() -> None:
            put_back()  # or thread and function would hold each other
            become(info)
            run()

        def put_back() -> None:
            if attributes.get("run") is run_as_worker:
                del attributes["run"]
                if own is not None:
                    attributes["run"] = own

        attributes["run"] = run_as_worker
        try:
            start(self)
        except BaseException:
            put_back()  # it may be started again, by anybody
            raise

    @functools.wraps(submit)
    def submit_as_worker(
        self: concurrent.futures.ThreadPoolExecutor, fn: Any, /, *args: Any, **named: Any
    ) -> Any:
        # None as well: a thread that another worker has started serves this call.
        return submit(self, functools.partial(_call_as, of_this_thread(), fn), *args, **named)

    threading.Thread.start = start_as_worker  # type: ignore[method-assign]
    concurrent.futures.ThreadPoolExecutor.submit = submit_as_worker  # type: ignore[assignment, method-assign]


def _call_as(info: Any, function: Callable[..., Any], /, *args: Any, **named: Any) -> Any:
    before = of_this_thread()
    become(info)
    try:
        return function(*args, **named)
    finally:
        become(before)


def _become_process() -> None:
    """In a process that a worker has forked, what was the thread's is the process's, as if a worker
    process had forked it. A DataLoader's worker then says who it is in its turn."""
    info = of_this_thread()
    if info is not None:
        worker._worker_info = info
        become(None)
