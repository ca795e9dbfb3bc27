"""The shared slots of one iterator's workers, as the main process sees them."""

from __future__ import annotations

import collections
import os
import pickle
from typing import Any

import torch

from fastloader._core.machine import extension, limits
from fastloader._core.sources.python.shared_slots import sender as slot_sender
from fastloader._core.sources.python.shared_slots.parcel import SlotParcel, WorkerTime
from fastloader._core.sources.python.shared_slots.pickler import arriving
from fastloader._core.sources.python.shared_slots.sender import Sender

# A smaller leaf is copied out of its slot: a training loop that keeps the labels of an epoch must not
# keep its pictures.
_SMALL = 64 << 10


class SlotCounts:
    """Sums over the batches of one loader's workers."""

    def __init__(self) -> None:
        self.used = 0
        # The seconds that batches have cost their workers, and how many batches those were.
        self.fetch_s = 0.0
        self.collate_s = 0.0
        self.fetched = 0
        self.why_pickled: collections.Counter[str] = collections.Counter()


class SharedSlots:
    """The slots of one iterator's workers. Pickled for a spawned worker, they become that worker's
    `Sender`."""

    def __init__(self, workers: int, slots_per_worker: int, counts: SlotCounts):
        slots = workers * slots_per_worker
        # Slots may be large, because memory that no batch touches costs nothing.
        self.native = extension.native.SharedSlotTable(
            workers=workers,
            slots_per_worker=slots_per_worker,
            slot_bytes=max(1 << 20, memory_limit() // 2 // slots),
        )
        self.pid = os.getpid()
        self.counts = counts
        self._dispatching = 0
        self._sender: Sender | None = None

    def serves(self, workers: int, slots_per_worker: int) -> bool:
        native = self.native
        of_that_size = (native.workers, native.slots_per_worker) == (workers, slots_per_worker)
        # Spawned workers need the descriptor, which other code may have closed.
        return of_that_size and native.has_descriptor

    def begin(self) -> None:
        self._dispatching = 0

    def next_worker(self) -> int:
        """The number of the worker for the next index queue, of which each worker has one."""
        number = self._dispatching
        self._dispatching += 1
        return number

    def sender(self) -> Sender:
        """The `Sender` of a forked worker, to be asked for in that worker."""
        if self._sender is None:
            self._sender = Sender(self.native.in_child())
        return self._sender

    def __reduce__(self) -> Any:
        from multiprocessing.reduction import (
            DupFd,
        )  # not there on Windows, nor is the native module

        native = self.native
        slots = native.workers * native.slots_per_worker
        return slot_sender.attach, (DupFd(native.fd), slots, native.slot_bytes)

    def arrive(self, parcel: SlotParcel) -> SlotParcel | _Arrival:
        """What opens a parcel from a worker. It holds the slot in which the batch lies."""
        self._count(parcel.spent)
        if parcel.why_pickled:
            self.counts.why_pickled[parcel.why_pickled] += 1
        if parcel.slot is None:
            return parcel
        self.counts.used += 1
        return _Arrival(self.native.receive(parcel.slot), parcel.content)

    def _count(self, spent: WorkerTime) -> None:
        self.counts.fetch_s += spent.fetch
        self.counts.collate_s += spent.collate
        self.counts.fetched += 1


class _Arrival:
    """A batch in a slot. Each storage is built once, and holds a share of the slot."""

    def __init__(self, lease: Any, content: bytes | tuple[int, int]) -> None:
        self.lease = lease
        self._content = content
        self._storages: dict[int, torch.UntypedStorage] = {}

    def opened(self) -> Any:
        """The batch."""
        content = self._content
        pickled = self.lease.view(*content) if isinstance(content, tuple) else content
        before = getattr(arriving, "batch", None)
        arriving.batch = self
        try:
            return pickle.loads(pickled)
        finally:
            arriving.batch = before

    def storage(self, offset: int, size: int) -> torch.UntypedStorage:
        storage = self._storages.get(offset)
        if storage is None:
            if size <= _SMALL:
                storage = torch.UntypedStorage(size)
                self.lease.copy_out(offset, size, storage.data_ptr())
            else:
                storage = torch.from_dlpack(self.lease.tensor(offset, size)).untyped_storage()
            self._storages[offset] = storage
        return storage


def memory_limit() -> int:
    """The bytes that this process may use: the machine's, or less in a container."""
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min(machine, limits.memory_limit() or machine)
