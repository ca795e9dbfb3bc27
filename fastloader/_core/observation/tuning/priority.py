"""The priority of workers, which is lower than the training loop's."""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Callable

_log = logging.getLogger("fastloader")


class LowPriorityWorker:
    """A worker_init_fn that makes the worker yield to the thread that launches the training step, and
    then calls the user's."""

    def __init__(self, given: Callable[[int], None] | None) -> None:
        self._given = given

    def __call__(self, worker_id: int) -> None:
        lower_own_priority()
        if self._given is not None:
            self._given(worker_id)


def lower_own_priority() -> None:
    """Lowers the priority of the calling thread, as native threads do. Only on Linux does a thread have
    its own priority. Elsewhere its number might be that of another process."""
    if sys.platform != "linux":
        return
    thread = threading.get_native_id()
    try:
        before = os.getpriority(os.PRIO_PROCESS, thread)
        os.setpriority(os.PRIO_PROCESS, thread, min(before + 5, 19))
    except OSError as error:
        # A sandbox may forbid even this. A worker without lower priority works all the same.
        _log.info("fastloader: a worker keeps its priority: %s", error)
