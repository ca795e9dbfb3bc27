"""The worker info of worker threads: what torch's ``get_worker_info()`` says in a worker thread, in the
threads that it starts, and in the processes that it forks.

torch up to 2.13 keeps the info in a global of the process, which all threads share. The worker threads
that torch will have (pytorch#161044) have one info each, in ``worker._thread_local_worker_info``, which
torch's ``get_worker_info`` asks first. If a torch has that, our info is kept there, and nothing of
torch's is replaced.
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

# Its attribute worker_info is the info of the current thread. In a thread that belongs to no worker it
# is None or absent. A torch that knows worker threads has such an object, which takes this one's place.
_here: Any = threading.local()


@dataclasses.dataclass(frozen=True)
class WorkerGenerators:
    """The generators of one worker thread: ``get_worker_info().rng``. They are seeded as the global ones
    of a worker process would be. The fields are named as in torch 2.13."""

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
    """Makes the current thread the worker of ``info`` from now on."""
    _here.worker_info = info


# --- what torch and Python are taught ---------------------------------------------------------------

_teaching = threading.Lock()  # guards _taught, and _here until that is True
_taught = False


def teach() -> None:
    """Teaches torch and Python about worker threads, once a process, before the first of them."""
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
        # default_collate must not see a thread's info, or it would allocate shared memory.
        if info is None or sys._getframe(1).f_globals is vars(collate):
            return of_process()
        return info

    # The names by which pickle finds it.
    functools.update_wrapper(get_worker_info, of_process)
    return get_worker_info


def _replace(old: Any, new: Any) -> None:
    """Replaces ``old`` in every namespace in which code looks names up, because ``from torch.utils.data
    import get_worker_info`` has made copies. Later imports get the new one anyway."""
    for namespace in [*_namespaces(old)]:
        for name, value in list(namespace.items()):
            if value is old:
                namespace[name] = new


def _namespaces(holding: Any) -> Iterator[dict[str, Any]]:
    for module in list(sys.modules.values()):  # also finds those that gc.freeze() has hidden
        if isinstance(getattr(module, "__dict__", None), dict):
            yield vars(module)
    for holder in gc.get_referrers(holding):  # also finds those of no module: cloudpickle's, exec's
        if type(holder) is dict and "__builtins__" in holder:
            yield holder


def _hand_down() -> None:
    """Makes the threads that a worker thread starts, and the calls that it gives to a pool of threads,
    belong to that worker, as they would in a worker process."""
    start = threading.Thread.start
    pool = _pool_class()
    submit: Any = getattr(pool, "submit", None)

    @functools.wraps(start)
    def start_as_worker(self: threading.Thread) -> None:
        info = of_this_thread()
        if info is None or self._started.is_set():  # type: ignore[attr-defined]
            start(self)
            return
        run, attributes = self.run, vars(self)
        own = attributes.get("run")  # None if the class's serves

        def run_as_worker() -> None:
            put_back()  # breaks the cycle of thread and function
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
            put_back()  # any thread may start it again
            raise

    threading.Thread.start = start_as_worker  # type: ignore[method-assign]
    if pool is None:
        return

    @functools.wraps(submit)
    def submit_as_worker(
        self: concurrent.futures.ThreadPoolExecutor, fn: Any, /, *args: Any, **named: Any
    ) -> Any:
        # None is handed on as well, because a thread that a worker has started may serve this call.
        return submit(self, functools.partial(_call_as, of_this_thread(), fn), *args, **named)

    pool.submit = submit_as_worker  # type: ignore[assignment, method-assign]


def _pool_class() -> type[concurrent.futures.ThreadPoolExecutor] | None:
    """Returns ThreadPoolExecutor, or None if nobody can make one any more: its module is loaded at the
    first look at it, and refuses to be once the interpreter has waited for its threads. An atexit
    function may begin an epoch as late as that."""
    try:
        return concurrent.futures.ThreadPoolExecutor
    except RuntimeError:
        return None


def _call_as(info: Any, function: Callable[..., Any], /, *args: Any, **named: Any) -> Any:
    before = of_this_thread()
    become(info)
    try:
        return function(*args, **named)
    finally:
        become(before)


def _become_process() -> None:
    """Makes the info of the thread the info of the process, in a process that a worker thread has
    forked. It is then as if a worker process had forked it. If it is a DataLoader's worker, torch sets
    its own info after that."""
    info = of_this_thread()
    if info is not None:
        worker._worker_info = info
        become(None)
