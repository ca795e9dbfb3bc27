"""The consumer's end of the rings that worker processes collate into.

torch's iterator is left as it is. It gets a multiprocessing context of ours, whose queues say which
slot a batch may use and find the batch there when it comes back.
"""

from __future__ import annotations

import collections
import logging
import multiprocessing
import os
import pickle
import weakref
from collections.abc import Callable
from queue import Empty
from typing import Any

import torch

from fastloader._core.machine import extension, limits
from fastloader._core.sources.python.shared_slots import sender as slot_sender
from fastloader._core.sources.python.shared_slots.sender import Ordinary, Parcel, Sender, Spent
from fastloader.errors import Error

_log = logging.getLogger("fastloader")

# Besides those in a worker's queue: one under the batch that the consumer looks at, one under the
# batch before it, one for a user who looks further back or has forked meanwhile.
_SPARE_SLOTS = 3

# A smaller leaf is copied out of its slot: whoever keeps the labels of an epoch must not keep its
# pictures.
_SMALL = 64 << 10


class WorkerRings:
    """The rings of one loader: one for each iterator with workers, the last one kept for the next
    epoch."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._idle: Ring | None = None
        self._last: weakref.ref[Ring] | None = None
        self._why_not = ""
        self.used = 0
        # What batches have cost the workers that made them; how many those were.
        self.fetch_s = 0.0
        self.collate_s = 0.0
        self.fetched = 0
        self.ordinary: collections.Counter[str] = collections.Counter()

    def iterate(self, loader: Any, make: Callable[[Any], Any]) -> Any:
        """``make(loader)``, which makes torch's iterator with workers, over a ring."""
        ring = self._take(loader.num_workers, loader.prefetch_factor)
        if ring is None:
            return make(loader)
        context = _Context(loader.multiprocessing_context or torch.multiprocessing, ring)
        iterator = make(_LoaderView(loader, context))
        finalizer = weakref.finalize(iterator, self._give_back, ring, context.processes)
        finalizer.atexit = False
        return iterator

    def _take(self, workers: int, prefetch: int) -> Ring | None:
        self._forget_the_parents()
        wish = _wish()
        native = None if wish == "0" else extension.load()
        numbers = isinstance(workers, int) and isinstance(prefetch, int)
        if native is None or not numbers or prefetch <= 0:  # torch has its own words for that
            self._why_not = "switched off" if wish == "0" else "the native module is not in use"
            if wish == "1" and native is None:
                raise Error("FASTLOADER_WORKER_RING=1 needs the native module, which is not in use")
            return None
        each = prefetch + _SPARE_SLOTS
        ring, self._idle = self._idle, None
        if ring is None or not ring.serves(workers, each):
            try:
                ring = Ring(native, workers, each, self)
            except (Error, MemoryError) as error:
                if wish == "1":
                    raise
                if not self._why_not:
                    _log.warning("fastloader: batches of workers take torch's way: %s", error)
                self._why_not = str(error)
                return None
        self._why_not = ""
        self._last = weakref.ref(ring)
        ring.begin()
        return ring

    def _give_back(self, ring: Ring, processes: list[Any]) -> None:
        if self._pid != os.getpid() or ring.pid != os.getpid():
            return
        # A worker that is still there may be writing. Such a ring is left to its tensors.
        if any(process.is_alive() for process in processes):
            return
        ring.native.reclaim()
        # Between epochs others may need the memory more.
        if ring.native.touched_bytes() <= memory_limit() // 8:
            self._idle = ring

    def _forget_the_parents(self) -> None:
        if self._pid != os.getpid():
            # The workers of the process that forked this one go on using its ring.
            self._pid = os.getpid()
            self._idle = None

    def close(self) -> None:
        self._idle = None

    def stats(self) -> dict[str, Any]:
        counted: dict[str, Any] = {
            "slots_used": self.used,
            "fallbacks": sum(self.ordinary.values()),
            "why": dict(self.ordinary),
            "why_no_ring": self._why_not,
            "slots": 0,
            "slots_held": 0,
            "slot_bytes": 0,
            "ring_bytes": 0,
        }
        ring = None if self._last is None else self._last()
        if ring is not None and ring.pid == os.getpid():
            native = ring.native
            counted["slots"] = native.workers * native.slots_per_worker
            counted["slots_held"] = native.slots_held()
            counted["slot_bytes"] = native.slot_bytes
            counted["ring_bytes"] = native.touched_bytes()
        return counted


class Ring:
    """One ring. Pickled for a spawned worker, it becomes that worker's Sender."""

    def __init__(self, native: Any, workers: int, slots_per_worker: int, counts: WorkerRings):
        slots = workers * slots_per_worker
        # Sparse: what no batch touches costs nothing.
        self.native = native.WorkerRing(
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
        # Where other code has closed its descriptor, spawned workers cannot be given it.
        return of_that_size and native.has_descriptor

    def begin(self) -> None:
        self._dispatching = 0

    def next_worker(self) -> int:
        """A number for an index queue, of which each worker has one."""
        number = self._dispatching
        self._dispatching += 1
        return number

    def sender(self) -> Sender:
        """In a forked worker."""
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

    def open(self, data: Any) -> Any:
        """The batch that ``data`` from a worker stands for."""
        if type(data) is Ordinary:
            self.counts.ordinary[data.reason] += 1
            self._count(data.spent)
            return data.batch
        if type(data) is not Parcel:
            return data
        slot, content, ordinary, spent = data
        self._count(spent)
        if ordinary:
            self.counts.ordinary[ordinary] += 1
        if slot is None:
            assert isinstance(content, bytes)
            return pickle.loads(content)
        arrival = _Arrival(self.native.receive(slot))
        self.counts.used += 1
        pickled = arrival.lease.view(*content) if isinstance(content, tuple) else content
        before = getattr(slot_sender.arriving, "batch", None)
        slot_sender.arriving.batch = arrival
        try:
            return pickle.loads(pickled)
        finally:
            slot_sender.arriving.batch = before

    def _count(self, spent: Spent) -> None:
        self.counts.fetch_s += spent.fetch
        self.counts.collate_s += spent.collate
        self.counts.fetched += 1


class _Arrival:
    """A batch being unpickled. Each storage is built once and holds a share of the slot."""

    def __init__(self, lease: Any) -> None:
        self.lease = lease
        self._storages: dict[int, torch.UntypedStorage] = {}

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


class RingQueue:
    """One of the iterator's queues. What the consumer puts is an index batch, and goes with a slot;
    what a worker puts is a batch, and comes out of one. Everything else passes."""

    def __init__(self, queue: Any, ring: Ring) -> None:
        self._queue = queue
        self._ring = ring
        self._worker: int | None = None
        self._in_child: WorkerQueue | None = None

    def put(self, item: Any, *args: Any, **named: Any) -> None:
        if self._ring.pid != os.getpid():
            self._forked().put(item, *args, **named)
            return
        if type(item) is tuple and type(item[0]) is int:
            if self._worker is None:
                self._worker = self._ring.next_worker()
            item = (*item, self._ring.native.take(self._worker))
        self._queue.put(item, *args, **named)

    def get(self, *args: Any, **named: Any) -> Any:
        if self._ring.pid != os.getpid():
            return self._forked().get(*args, **named)
        item = self._queue.get(*args, **named)
        if type(item) is tuple and type(item[0]) is int:
            return item[0], self._ring.open(item[1])
        return item

    def _forked(self) -> WorkerQueue:
        if self._in_child is None:
            self._in_child = WorkerQueue(self._queue, self._ring.sender())
        return self._in_child

    def __getattr__(self, name: str) -> Any:
        return getattr(self._queue, name)

    def __reduce__(self) -> Any:
        return WorkerQueue, (self._queue, self._ring)


class WorkerQueue:
    """The same in the worker."""

    def __init__(self, queue: Any, sender: Sender) -> None:
        self._queue = queue
        self._sender = sender

    def put(self, item: Any, *args: Any, **named: Any) -> None:
        if type(item) is tuple and type(item[0]) is int:
            item = (item[0], self._sender.wrap(item[1]))
        self._queue.put(item, *args, **named)

    def get(self, *args: Any, **named: Any) -> Any:
        try:
            item = self._queue.get(*args, **named)
        except Empty:
            # torch's watchdog asks for its parent when the worker begins. In a worker whose parent has
            # died by then it watches over init, for ever. Not getppid() alone: that is the fork server.
            parent = multiprocessing.parent_process()
            if parent is not None and parent.pid != os.getppid() and not parent.is_alive():
                raise SystemExit from None
            raise
        if type(item) is tuple and type(item[0]) is int:
            self._sender.begin(item[2])
            return item[:2]
        return item

    def __getattr__(self, name: str) -> Any:
        return getattr(self._queue, name)


class _Context:
    """A multiprocessing context with such queues, which remembers the processes."""

    def __init__(self, base: Any, ring: Ring) -> None:
        self._base = base
        self._ring = ring
        self.processes: list[Any] = []

    def Queue(self) -> RingQueue:
        return RingQueue(self._base.Queue(), self._ring)

    def Process(self, *args: Any, **named: Any) -> Any:
        process = self._base.Process(*args, **named)
        self.processes.append(process)
        return process

    def __getattr__(self, name: str) -> Any:
        return getattr(self._base, name)


class _LoaderView:
    """The loader, but for its multiprocessing context."""

    def __init__(self, loader: Any, context: _Context) -> None:
        self._seen = loader
        self.multiprocessing_context = context

    def __getattr__(self, name: str) -> Any:
        return getattr(self._seen, name)


def _wish() -> str:
    value = os.environ.get("FASTLOADER_WORKER_RING", "")
    if value not in ("", "0", "1"):
        raise ValueError(
            f"FASTLOADER_WORKER_RING={value!r}: use 0 (torch's shared memory files) or 1 (the ring, "
            "or an error)"
        )
    return value


def memory_limit() -> int:
    """Bytes this process may use: the machine's, or less in a container."""
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min(machine, limits.memory_limit() or machine)
