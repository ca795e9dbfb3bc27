"""The slots of shared memory that one loader's worker processes collate into, over its epochs.

torch's iterator stays as it is, but gets a multiprocessing context of ours. The queues of that context
say which slot a batch may use, and find the batch there when it comes back (`processes/queues.py`).
"""

from __future__ import annotations

import logging
import os
import weakref
from collections.abc import Callable
from typing import Any

import torch

from fastloader._core.machine import extension
from fastloader._core.order.loader import Loader
from fastloader._core.sources.python.loader_view import LoaderView
from fastloader._core.sources.python.processes.queues import Context
from fastloader._core.sources.python.shared_slots.shared_slots import (
    SharedSlots,
    SlotCounts,
    memory_limit,
)
from fastloader.errors import Error

_log = logging.getLogger("fastloader")

# Slots of a worker besides those in its queue: one under the batch that the training loop looks at, one
# under the batch before it, one for a loop that looks further back or has forked meanwhile.
_SPARE_SLOTS = 3


class LoaderSlots:
    """The `SharedSlots` of one loader. Each iterator with workers has its own. The last ones are kept
    for the next epoch."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._idle: SharedSlots | None = None
        self._last: weakref.ref[SharedSlots] | None = None
        self._why_not = ""
        self.counts = SlotCounts()

    def iterate(self, loader: Loader, make: Callable[[Any], Any]) -> Any:
        """Makes torch's iterator with workers, by ``make(loader)``, over shared slots if there are."""
        slots = self._take(loader.num_workers, loader.prefetch_factor)
        if os.name != "posix":
            return make(loader)
        context = Context(loader.multiprocessing_context or torch.multiprocessing, slots)
        iterator = make(LoaderView(loader, multiprocessing_context=context))
        if slots is None:
            return iterator
        finalizer = weakref.finalize(iterator, self._give_back, slots, context.processes)
        finalizer.atexit = False
        return iterator

    def _take(self, workers: int, prefetch: int | None) -> SharedSlots | None:
        self._forget_the_parents()
        wish = _wish()
        natively = wish != "0" and extension.load() is not None
        numbers = isinstance(workers, int) and isinstance(prefetch, int)
        if (
            not natively or not numbers or not prefetch or prefetch < 0
        ):  # torch refuses wrong numbers in its own words
            self._why_not = "switched off" if wish == "0" else "the native module is not in use"
            if wish == "1" and not natively:
                raise Error("FASTLOADER_WORKER_RING=1 needs the native module, which is not in use")
            return None
        each = prefetch + _SPARE_SLOTS
        slots, self._idle = self._idle, None
        if slots is None or not slots.serves(workers, each):
            try:
                slots = SharedSlots(workers, each, self.counts)
            except (Error, MemoryError) as error:
                if wish == "1":
                    raise
                if not self._why_not:
                    _log.warning(
                        "fastloader: batches of worker processes go through torch's shared memory: %s",
                        error,
                    )
                self._why_not = str(error)
                return None
        self._why_not = ""
        self._last = weakref.ref(slots)
        slots.begin()
        return slots

    def _give_back(self, slots: SharedSlots, processes: list[Any]) -> None:
        if self._pid != os.getpid() or slots.pid != os.getpid():
            return
        # A worker that is still alive may be writing. Such slots live as long as their tensors.
        if any(process.is_alive() for process in processes):
            return
        slots.native.reclaim()
        # Slots that take much memory are not kept, because others may need the memory between epochs.
        if slots.native.touched_bytes() <= memory_limit() // 8:
            self._idle = slots

    def _forget_the_parents(self) -> None:
        if self._pid != os.getpid():
            # The workers of the process that forked this one go on using its slots.
            self._pid = os.getpid()
            self._idle = None

    def close(self) -> None:
        self._idle = None

    def stats(self) -> dict[str, Any]:
        counted: dict[str, Any] = {
            "slots_used": self.counts.used,
            "fallbacks": sum(self.counts.why_pickled.values()),
            "why": dict(self.counts.why_pickled),
            "why_no_ring": self._why_not,
            "slots": 0,
            "slots_held": 0,
            "slot_bytes": 0,
            "ring_bytes": 0,
        }
        slots = None if self._last is None else self._last()
        if slots is not None and slots.pid == os.getpid():
            native = slots.native
            counted["slots"] = native.workers * native.slots_per_worker
            counted["slots_held"] = native.slots_held()
            counted["slot_bytes"] = native.slot_bytes
            counted["ring_bytes"] = native.touched_bytes()
        return counted


def _wish() -> str:
    value = os.environ.get("FASTLOADER_WORKER_RING", "")
    if value not in ("", "0", "1"):
        raise ValueError(
            f"FASTLOADER_WORKER_RING={value!r}: use 0 (torch's shared memory files) or 1 (the ring, "
            "or an error)"
        )
    return value
