"""The end of an iterator's worker processes."""

from __future__ import annotations

import time
from typing import Any

from torch.utils.data import _utils

# Seconds that a process has for what it does about SIGTERM.
_LAST_WORDS = 0.5


def end_processes(iterator: Any, patience: float | None = None) -> None:
    """Ends the workers of torch's iterator before torch does. Those that wait for work end at once. One
    that is in the user's code has torch's time for that, which torch gives to one after the other, or
    ``patience`` seconds. Then it is terminated or, if it does not care for that, killed."""
    # As torch: Python ends, and multiprocessing with it.
    if _utils is None or _utils.python_exit_status is not False:
        return
    iterator._workers_done_event.set()
    workers = iterator._workers
    _join(workers, _utils.MP_STATUS_CHECK_INTERVAL if patience is None else patience)
    if not any(worker.is_alive() for worker in workers):
        return
    # torch's handler of SIGCHLD would raise that they were killed.
    if iterator._worker_pids_set:
        _utils.signal_handling._remove_worker_pids(id(iterator))
        iterator._worker_pids_set = False
    for end in ("terminate", "kill"):
        for worker in workers:
            if worker.is_alive():
                getattr(worker, end)()
        _join(workers, _LAST_WORDS)


def _join(workers: Any, seconds: float) -> None:
    until = time.monotonic() + seconds
    for worker in workers:
        worker.join(max(0.0, until - time.monotonic()))
