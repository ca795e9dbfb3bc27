"""Carries batches from worker processes to the loop in slots of shared memory, into which they are
collated."""

from __future__ import annotations

import collections
import io
import logging
import math
import os
import pickle
import threading
import time
import weakref
from collections.abc import Callable
from multiprocessing.reduction import ForkingPickler
from queue import Empty
from typing import Any, NamedTuple

import torch
from torch._utils import ExceptionWrapper
from torch.multiprocessing.reductions import reduce_storage, reduce_tensor
from torch.utils.data import get_worker_info
from torch.utils.data._utils.collate import collate_tensor_fn, default_collate_fn_map
from torch.utils.data._utils.worker import _IterableDatasetStopIteration

from fastloader._core.batch import layout
from fastloader._core.batch.tree import is_dense, is_leaf
from fastloader._core.machine import extension, limits
from fastloader._core.machine.limits import out_of_files
from fastloader._core.machine.process import HomeProcess
from fastloader._core.order.loader import Loader, collation_of
from fastloader._core.sources.encoded.collation import puts_off
from fastloader._core.sources.python.arguments import LoaderView
from fastloader._core.sources.python.processes import Ending, Inbox
from fastloader.datasets.joint import fetching
from fastloader.errors import Error

# ---- What crosses the workers' queue in place of a batch.


# The reasons why a batch, or a part of it, takes torch's way.
NO_SLOT = "no slot was free"
HELD = "the worker's own code holds its slots"
TOO_LARGE = "did not fit into a slot"
SHARED = "in shared memory already"
VIEW = "views of a large storage that share memory"


class WorkerTime(NamedTuple):
    """The seconds that a batch has cost its worker."""

    fetch: float  # the whole batch
    collate: float  # the part of it that stacks tensors


class SlotParcel(NamedTuple):
    """The message that crosses the queue in place of a batch."""

    slot: int | None  # None: nothing lies in a slot
    content: bytes | tuple[int, int]  # the pickle, or (offset, bytes) in the slot
    why_pickled: str  # why something in it took torch's way; "" if nothing did
    spent: WorkerTime

    def opened(self) -> Any:
        """Opens the batch, of which nothing lies in a slot."""
        assert isinstance(self.content, bytes)
        return pickle.loads(self.content)


def pickled_error(error: ExceptionWrapper) -> bytes:
    """Pickles what is sent in a batch's place."""
    try:
        return bytes(ForkingPickler.dumps(error))
    except Exception:  # its type is one that pickle does not find; the text says which
        error.exc_type = RuntimeError
        return bytes(ForkingPickler.dumps(error))


# ---- The pickler of a batch whose tensors go into a slot.


# A longer pickle travels in the slot, because the pipe takes 64 KiB at a time.
SHORT = 16 << 10


class SlotPickler:
    """Pickles one batch, and decides what becomes of its tensors. It is no `ForkingPickler` itself: that
    would hold itself through its table, and with it every object that it has seen, until the next
    garbage collection."""

    def __init__(self, slots: Any, slot: int, why_shared: str) -> None:
        self._slots = slots
        self._slot = slot
        self._why_shared = why_shared
        self._rows_apart = True
        self._begin()

    def _begin(self) -> None:
        self._placed: dict[int, int] = {}  # the offset in the slot, by the address of a storage
        self.why_pickled = ""
        self._rows: dict[int, list[tuple[int, int]]] = {}  # (address, size) of rows, by storage
        self._left: set[int] = set()  # addresses of large storages that take torch's way

    @property
    def placed(self) -> bool:
        """Whether anything lies in the slot."""
        return bool(self._placed or any(self._rows.values()))

    def dump(self, data: Any) -> bytes:
        try:
            return self._dump(data)
        except _Overlap:
            self._rows_apart = False
            self._begin()
            return self._dump(data)

    def _dump(self, data: Any) -> bytes:
        file = io.BytesIO()
        pickler = ForkingPickler(file)
        pickler.dispatch_table = {
            **pickler.dispatch_table,
            torch.Tensor: self._tensor,
            torch.UntypedStorage: self._storage,
        }
        pickler.dump(data)
        return file.getvalue()

    def _tensor(self, tensor: torch.Tensor) -> Any:
        if tensor.layout is torch.strided and tensor.device.type == "cpu":
            storage = tensor.untyped_storage()
            whole = storage.nbytes()
            size = tensor.numel() * tensor.element_size()
            # One row of a dataset must not take the whole dataset along. With torch it does: torch
            # moves the whole storage to shared memory.
            if whole > SHORT and whole > 2 * size and not storage.is_shared():
                row = self._row(tensor, storage.data_ptr(), size)
                if row is not None:
                    return row
                self._left.add(storage.data_ptr())
        return reduce_tensor(tensor)

    def _row(self, tensor: torch.Tensor, storage: int, size: int) -> Any:
        if (
            not self._rows_apart
            or not is_leaf(tensor)
            or not is_dense(tensor)
            or size == 0
            or storage in self._placed
            or storage in self._left
        ):
            return None
        address = tensor.data_ptr()
        rows = self._rows.setdefault(storage, [])
        for other, length in rows:
            if address < other + length and other < address + size:
                raise _Overlap  # the two share memory, and must share it when they arrive
        offset = self._slots.place(self._slot, address, size)
        if offset is None:
            return None
        rows.append((address, size))
        return rebuild_row, (offset, size, tensor.dtype, tensor.size(), tensor.stride())

    def _storage(self, storage: torch.UntypedStorage) -> Any:
        size = storage.nbytes()
        if size == 0 or storage.device.type != "cpu":
            return reduce_storage(storage)
        address = storage.data_ptr()
        if address in self._rows:
            raise _Overlap
        offset = self._placed.get(address)
        if offset is None:
            if storage.is_shared():
                self.why_pickled = self._why_shared
                return reduce_storage(storage)
            if address in self._left:
                self.why_pickled = VIEW
                return reduce_storage(storage)
            offset = self._slots.place(self._slot, address, size)
            if offset is None:
                self.why_pickled = TOO_LARGE
                return reduce_storage(storage)
            self._placed[address] = offset
        return rebuild_storage, (offset, size)


class _Overlap(Exception):
    """Two tensors of the batch share memory of a storage that should not travel as a whole."""


# The batch that a thread of the main process unpickles now. It is kept here because pickle hands no
# context through.
arriving = threading.local()


def rebuild_storage(offset: int, size: int) -> torch.UntypedStorage:
    return arriving.batch.storage(offset, size)


def rebuild_row(offset: int, size: int, dtype: Any, shape: Any, stride: Any) -> torch.Tensor:
    storage = rebuild_storage(offset, size)
    return torch.empty(0, dtype=dtype, device="cpu").set_(storage, 0, shape, stride)


# ---- The worker's end of the shared slots. Batches are collated into a slot, and a parcel that
# says where they lie goes through torch's queue.
#
# All of it happens at two places that torch leaves open. First, `default_collate` looks up how
# tensors are collated, in a table made for extension: here they are stacked straight into the
# slot. Second, the queue pickles. torch makes a shared memory file of each *storage* then, and
# here the storage is copied into the slot instead. So tensor subclasses, views of one storage,
# sparse tensors and objects with tensors inside go the way that they always went.


def attach(fd: Any, slots: int, slot_bytes: int) -> Sender:
    """Makes the `Sender` of a spawned worker, which unpickles this call. ``fd`` is multiprocessing's
    DupFd."""
    if extension.load() is None:
        raise Error(
            "a worker process cannot load fastloader's native module, which its parent uses: "
            + (extension.problem() or "FASTLOADER_NATIVE=0 is set there")
        )
    return Sender(extension.native.WorkerSlots(fd=fd.detach(), slots=slots, slot_bytes=slot_bytes))


class Sender:
    """The slots of this worker process. The thread that runs the dataset places batches one after the
    other, and the queue's thread packs them."""

    def __init__(self, slots: Any) -> None:
        self.slots = slots
        # Slots that the main process has handed to this worker. If no batch came of one (an exception,
        # the end of an iterable dataset), it stays for the next. The queue's thread appends to it too.
        self._pocket: collections.deque[int] = collections.deque()
        self._current: int | None = None
        self._full = False  # whether a part of the current batch did not fit
        self._begun = 0.0
        self._collating = 0.0  # seconds of the current batch
        self._thread = threading.get_ident()
        _install(self)

    def begin(self, slot: int | None) -> None:
        """Begins a batch that the main process asked for, with a slot for it or without."""
        self._begun, self._collating = time.perf_counter(), 0.0
        if slot is not None:
            self._pocket.append(slot)
        if self._current is not None:  # the slot of a batch that was asked for and never made
            self._pocket.append(self._current)
            self._current = None
        for _ in range(len(self._pocket)):
            candidate = self._pocket.popleft()
            if self.slots.begin(candidate):
                self._current = candidate
                self._full = False
                return
            self._pocket.append(candidate)

    def wrap(self, data: Any) -> Any:
        """Wraps ``data``, which the worker has made, for torch's queue."""
        slot, self._current = self._current, None
        spent = WorkerTime(time.perf_counter() - self._begun, self._collating)
        if slot is not None:
            return Outgoing(data, spent, self, slot, TOO_LARGE if self._full else SHARED)
        batch = not isinstance(data, ExceptionWrapper | _IterableDatasetStopIteration)
        why = (HELD if self._pocket else NO_SLOT) if batch else ""
        return Outgoing(data, spent, why_pickled=why)

    def collate(self, batch: Any, collate_fn_map: Any) -> Any:
        """Stacks tensors, in the slot if torch.stack leaves them there."""
        out = self._room(batch)
        if out is None:
            return collate_tensor_fn(batch, collate_fn_map=collate_fn_map)
        begun = time.perf_counter()
        # The tensors' own __torch_function__ decides the result, which may be another than `out`, or no
        # tensor.
        stacked = torch.stack(batch, 0, out=out)
        self._collating += time.perf_counter() - begun
        return stacked

    def empty(self, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        """Makes a tensor in the slot, or in ordinary memory if it does not go there."""
        size = math.prod(shape) * dtype.itemsize
        if self._current is not None and size and threading.get_ident() == self._thread:
            capsule = self.slots.collate(self._current, size)
            if capsule is not None:
                storage = torch.from_dlpack(capsule).untyped_storage()
                made = torch.empty(0, dtype=dtype, device="cpu")
                return made.set_(storage, 0, shape)  # type: ignore[call-overload]
            self._full = True
        return layout.empty_elsewhere(shape, dtype)

    def _room(self, batch: Any) -> torch.Tensor | None:
        """Returns the place in the slot where the tensors are stacked; None if they do not go there."""
        first = batch[0]
        slot = self._current
        if (
            slot is None
            or type(first).__torch_dispatch__ is not torch.Tensor.__torch_dispatch__
            or first.device.type != "cpu"
            or first.layout is not torch.strided
            or first.is_nested
            or first.is_quantized
            or threading.get_ident() != self._thread
        ):
            return None
        count = first.numel()
        total = sum(each.numel() for each in batch)
        if total == 0 or total != count * len(batch):
            return None
        capsule = self.slots.collate(slot, total * first.element_size())
        if capsule is None:
            self._full = True
            return None
        storage = torch.from_dlpack(capsule).untyped_storage()
        # Made as in default_collate, or the batch of a tensor subclass would be of another type.
        typed = torch.TypedStorage(wrap_storage=storage, dtype=first.dtype, _internal=True)
        return first.new(typed).resize_(len(batch), *first.shape)

    def keep(self, slot: int) -> None:
        """Keeps a slot of which nothing was sent, for a later batch."""
        self._pocket.append(slot)

    def pack(self, slot: int, data: Any, why_shared: str, spent: WorkerTime) -> SlotParcel:
        pickler = SlotPickler(self.slots, slot, why_shared)
        content = pickler.dump(data)
        if len(content) > SHORT:
            offset = self.slots.place_bytes(slot, content)
            if offset is not None:
                self.slots.finish(slot)
                return SlotParcel(slot, (offset, len(content)), pickler.why_pickled, spent)
        if not pickler.placed:
            self.keep(slot)
            return SlotParcel(None, content, pickler.why_pickled, spent)
        self.slots.finish(slot)
        return SlotParcel(slot, content, pickler.why_pickled, spent)


class Outgoing:
    """A batch on its way to the queue's thread. That thread makes a `SlotParcel` of it while the worker
    is at the next batch, as it would have made torch's shared memory files. ``sender`` is given with a
    slot; ``why_pickled``: why something in the batch takes torch's way, if something does."""

    def __init__(
        self,
        data: Any,
        spent: WorkerTime,
        sender: Sender | None = None,
        slot: int | None = None,
        why_pickled: str = "",
    ) -> None:
        self.data = data
        self.spent = spent
        self.sender = sender
        self.slot = slot
        self.why_pickled = why_pickled

    def __reduce__(self) -> Any:
        try:
            if self.sender is not None and self.slot is not None:
                packed = self.sender.pack(self.slot, self.data, self.why_pickled, self.spent)
            else:
                content = bytes(ForkingPickler.dumps(self.data))
                packed = SlotParcel(None, content, self.why_pickled, self.spent)
        except BaseException:
            # The error is sent, because torch's queue would print it and let the training loop wait
            # for ever.
            packed = SlotParcel(None, pickled_error(self._error()), "", self.spent)
            if self.sender is not None and self.slot is not None:
                self.sender.keep(self.slot)
        return SlotParcel, tuple(packed)

    def _error(self) -> ExceptionWrapper:
        if isinstance(self.data, ExceptionWrapper):  # of a type that cannot be pickled
            return self.data
        info = get_worker_info()
        number = "?" if info is None else info.id
        return ExceptionWrapper(where=f"in DataLoader worker process {number}{out_of_files()}")


_sender: Sender | None = None


def _install(sender: Sender) -> None:
    """Makes default_collate, and our layouts, use ``sender`` in this worker process. The table of the
    former says how tensors are collated. An entry that the user has put there stays."""
    global _sender
    _sender = sender
    layout.empty = sender.empty
    if default_collate_fn_map.get(torch.Tensor) is collate_tensor_fn:
        default_collate_fn_map[torch.Tensor] = _collate_tensors


def _collate_tensors(batch: Any, *, collate_fn_map: Any = None) -> Any:
    if _sender is None:
        return collate_tensor_fn(batch, collate_fn_map=collate_fn_map)
    return _sender.collate(batch, collate_fn_map)


# ---- The shared slots of one iterator's workers, as the main process sees them.


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
        """Returns the number of the worker for the next index queue, of which each worker has one."""
        number = self._dispatching
        self._dispatching += 1
        return number

    def sender(self) -> Sender:
        """Makes the `Sender` of a forked worker. It is called in that worker."""
        if self._sender is None:
            self._sender = Sender(self.native.in_child())
        return self._sender

    def __reduce__(self) -> Any:
        from multiprocessing.reduction import (
            DupFd,
        )  # not there on Windows, nor is the native module

        native = self.native
        slots = native.workers * native.slots_per_worker
        return attach, (DupFd(native.fd), slots, native.slot_bytes)

    def arrive(self, parcel: SlotParcel) -> SlotParcel | _Arrival:
        """Returns an object that opens a parcel from a worker. It holds the slot in which the batch
        lies."""
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
        """Opens the batch."""
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
    """Returns the bytes that this process may use: the machine's, or less in a container."""
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min(machine, limits.memory_limit() or machine)


# ---- torch's queues of indices and batches, between the loop and its worker processes.
#
# What is sent is pickled beside the number of its batch, so that an error at either end takes
# the place of that batch. torch's own queues print the error of a batch that cannot be pickled,
# or lose the number of one that cannot be unpickled, and the loop waits for ever.


class LoaderQueue:
    """One of the iterator's queues. The main process puts index batches, and each goes with a slot, if
    there are slots. A worker puts batches. Everything else passes unchanged.

    Args:
        results: the queue of the batches; None for that one itself.
        puts_off: what becomes of what is put off in samples, for `fetching`.
    """

    def __init__(
        self,
        queue: Any,
        slots: SharedSlots | None,
        ending: Ending,
        results: LoaderQueue | None,
        puts_off: str,
    ) -> None:
        self._home = HomeProcess()
        self._queue = queue
        self._slots = slots
        self._ending = ending
        self._results = results
        self._puts_off = puts_off
        self._inbox = Inbox(queue)
        # (message, number, what came) of a message that is not opened yet: Ctrl-C may end the opening.
        self._came: tuple[Any, int, Any] | None = None
        self._worker: int | None = None
        self._in_child: WorkerQueue | None = None

    def put(self, item: Any) -> None:
        if not self._home.here:
            self._forked().put(item)
            return
        if item is None and self._ending.is_set():
            # The workers know. And the garbage collector may have closed the queue's pipe, whose number
            # may be another one's by now: the queue's thread, which a put() starts, would close that.
            return
        if type(item) is tuple and type(item[0]) is int:
            number, index = item
            # Here, and not on the queue's thread: the index batch may change, or fail to be pickled.
            try:
                content = bytes(ForkingPickler.dumps(index))
            except Exception:
                where = f"where the indices of batch {number} were pickled for a worker"
                content = pickled_error(ExceptionWrapper(where=where))
            item = number, content, self._slot()
        self._queue.put(item)

    def _slot(self) -> int | None:
        if self._slots is None:
            return None
        if self._worker is None:
            self._worker = self._slots.next_worker()
        slot: int | None = self._slots.native.take(self._worker)
        return slot

    def get(self, timeout: float | None = None) -> Any:
        if not self._home.here:
            return self._forked().get(timeout)
        message = self._inbox.receive(timeout)
        if message is None:
            raise Empty
        if self._came is None or self._came[0] is not message:
            item = pickle.loads(message)
            if type(item[1]) is not SlotParcel:
                self._inbox.taken()
                return item
            number, parcel = item
            self._came = (
                message,
                number,
                parcel if self._slots is None else self._slots.arrive(parcel),
            )
        _, number, arrival = self._came
        try:
            data = arrival.opened()
        except KeyboardInterrupt:
            raise  # the batch is still to come
        except BaseException:
            where = f"where batch {number} of a worker was unpickled{out_of_files()}"
            data = ExceptionWrapper(where=where)
        self._came = None
        self._inbox.taken()
        return number, data

    def _forked(self) -> WorkerQueue:
        if self._in_child is None:
            sender = None if self._slots is None else self._slots.sender()
            results = None if self._results is None else self._results._forked()
            self._in_child = WorkerQueue(self._queue, sender, self._ending, results, self._puts_off)
        return self._in_child

    def __getattr__(self, name: str) -> Any:
        return getattr(self._queue, name)

    def __reduce__(self) -> Any:
        own = self._queue, self._slots, self._ending, self._results, self._puts_off
        return WorkerQueue, own


class WorkerQueue:
    """One of the iterator's queues, as the worker process sees it."""

    def __init__(
        self,
        queue: Any,
        sender: Sender | None,
        ending: Ending,
        results: WorkerQueue | None,
        puts_off: str,
    ) -> None:
        self._queue = queue
        self._sender = sender
        self._ending = ending
        self._results = results
        self._puts_off = puts_off
        self._inbox: Inbox | None = None

    def put(self, item: Any) -> None:
        if type(item) is tuple and type(item[0]) is int:
            number, data = item
            if self._sender is None:
                item = number, Outgoing(data, WorkerTime(0.0, 0.0))
            else:
                item = number, self._sender.wrap(data)
        self._queue.put(item)

    def get(self, timeout: float | None = None) -> Any:
        """Returns what torch's worker loop is to do next; None if it is to end."""
        if self._inbox is None:
            self._inbox = Inbox(self._queue)
            self._inbox.wake_by(self._ending.in_worker())
        message = self._inbox.receive(timeout)
        if self._ending.is_set():
            return None
        if message is None:
            raise Empty
        item = pickle.loads(message)
        self._inbox.taken()
        if type(item) is not tuple or type(item[0]) is not int:
            return item
        number, content, slot = item
        if self._sender is not None:
            self._sender.begin(slot)
        try:
            index = pickle.loads(content)
        except Exception:
            index = ExceptionWrapper(where=f"where the indices of batch {number} were unpickled")
        if isinstance(index, ExceptionWrapper):
            assert self._results is not None
            self._results.put((number, index))
            raise Empty  # torch's worker loop asks for the next
        # torch's worker loop fetches next.
        fetching.under_way, fetching.refused = self._puts_off, ""
        return number, index

    def __getattr__(self, name: str) -> Any:
        return getattr(self._queue, name)


class Context:
    """A multiprocessing context that gives such queues and remembers its processes."""

    def __init__(self, base: Any, slots: SharedSlots | None, puts_off: str) -> None:
        self._base = base
        self._slots = slots
        self._puts_off = puts_off
        self._ending = Ending()
        self._results: LoaderQueue | None = None
        self.processes: list[Any] = []

    def Event(self) -> Ending:
        return self._ending

    def Queue(self) -> LoaderQueue:
        """Makes a queue. torch asks for the queue of the batches first, and then for one of indices for
        each worker."""
        queue = self._base.Queue()
        made = LoaderQueue(queue, self._slots, self._ending, self._results, self._puts_off)
        if self._results is None:
            self._results = made
        return made

    def Process(self, *args: Any, **named: Any) -> Any:
        process = self._base.Process(*args, **named)
        self.processes.append(process)
        return process

    def __getattr__(self, name: str) -> Any:
        return getattr(self._base, name)


# ---- The slots of shared memory that one loader's worker processes collate into, over its
# epochs.
#
# torch's iterator stays as it is, but gets a multiprocessing context of ours. The queues of
# that context say which slot a batch may use, and find the batch there when it comes back
# (`shared_slots.py`).


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
        base = loader.multiprocessing_context or torch.multiprocessing
        context = Context(base, slots, puts_off(collation_of(loader), loader._auto_collation))
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
        per_worker = prefetch + _SPARE_SLOTS
        slots, self._idle = self._idle, None
        if slots is None or not slots.serves(workers, per_worker):
            try:
                slots = SharedSlots(workers, per_worker, self.counts)
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
