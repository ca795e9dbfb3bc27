"""The worker's end of a ring: batches are collated into a slot, and a parcel that says where goes
through torch's queue.

Everything is done at two places that torch leaves open. `default_collate` looks up how tensors are
collated in a table made for extension: here they are stacked straight into the slot. And the queue
pickles: what torch does to a *storage* then (a shared memory file for each) is replaced by a copy
into the slot, so that tensor subclasses, views of one storage, sparse tensors and objects with tensors
inside go the way they always went.
"""

from __future__ import annotations

import collections
import io
import threading
import time
from multiprocessing.reduction import ForkingPickler
from typing import Any, NamedTuple

import torch
from torch._utils import ExceptionWrapper
from torch.multiprocessing.reductions import reduce_storage, reduce_tensor
from torch.utils.data import get_worker_info
from torch.utils.data._utils.collate import collate_tensor_fn, default_collate_fn_map
from torch.utils.data._utils.worker import _IterableDatasetStopIteration

from fastloader._core.batch.tree import is_dense, is_leaf
from fastloader._core.machine import extension
from fastloader.errors import Error

# A pickle that is longer travels in the slot: the pipe takes 64 KiB at a time.
_SHORT = 16 << 10

# Why a batch, or a part of it, takes torch's way.
NO_SLOT = "no slot was free"
HELD = "the worker's own code holds its slots"
TOO_LARGE = "did not fit into a slot"
SHARED = "in shared memory already"
VIEW = "views of a large storage that share memory"


class Spent(NamedTuple):
    """Seconds that a batch has cost its worker."""

    fetch: float  # all of it
    collate: float  # stacking tensors, of that


class Parcel(NamedTuple):
    """What crosses the queue in place of a batch."""

    slot: int | None  # None: nothing lies in a slot
    content: bytes | tuple[int, int]  # the pickle, or (offset, bytes) in the slot
    ordinary: str  # why something in it took torch's way; "" if nothing did
    spent: Spent


class Ordinary(NamedTuple):
    """A batch that takes torch's way as a whole."""

    batch: Any
    reason: str
    spent: Spent


def attach(fd: Any, slots: int, slot_bytes: int) -> Sender:
    """In a spawned worker, which unpickles this call. ``fd`` is multiprocessing's DupFd."""
    native = extension.load()
    if native is None:
        raise Error(
            "a worker process cannot load fastloader's native module, which its parent uses: "
            + (extension.problem() or "FASTLOADER_NATIVE=0 is set there")
        )
    return Sender(native.WorkerSlots(fd=fd.detach(), slots=slots, slot_bytes=slot_bytes))


class Sender:
    """The slots of this worker process. Batches are placed one after the other by the thread that runs
    the dataset, and packed by the queue's."""

    def __init__(self, slots: Any) -> None:
        self.slots = slots
        # Slots the consumer has handed to this worker. One whose batch came to nothing (an exception,
        # the end of an iterable dataset) stays for the next. Appended to by the queue's thread too.
        self._pocket: collections.deque[int] = collections.deque()
        self._current: int | None = None
        self._full = False  # something of the current batch did not fit
        self._begun = 0.0
        self._collating = 0.0  # seconds, of the current batch
        self._thread = threading.get_ident()
        _install(self)

    def begin(self, slot: int | None) -> None:
        """A batch was asked for, with a slot for it or without."""
        self._begun, self._collating = time.perf_counter(), 0.0
        if slot is not None:
            self._pocket.append(slot)
        if self._current is not None:  # of a batch that was asked for and never made
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
        """What to put into torch's queue for what the worker has made."""
        slot, self._current = self._current, None
        spent = Spent(time.perf_counter() - self._begun, self._collating)
        if slot is not None:
            return Outgoing(self, slot, data, TOO_LARGE if self._full else SHARED, spent)
        if isinstance(data, ExceptionWrapper | _IterableDatasetStopIteration):
            return data
        return Ordinary(data, HELD if self._pocket else NO_SLOT, spent)

    def collate(self, batch: Any, collate_fn_map: Any) -> Any:
        """The stacked tensors: in the slot, if torch.stack leaves them there."""
        out = self._room(batch)
        if out is None:
            return collate_tensor_fn(batch, collate_fn_map=collate_fn_map)
        begun = time.perf_counter()
        # What the tensors' own __torch_function__ makes of it: not always `out`, nor a tensor.
        stacked = torch.stack(batch, 0, out=out)
        self._collating += time.perf_counter() - begun
        return stacked

    def _room(self, batch: Any) -> torch.Tensor | None:
        """Where in the slot to stack them; None if they do not go there."""
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
        # As default_collate makes it, or the batch of a tensor subclass would be of another type.
        typed = torch.TypedStorage(wrap_storage=storage, dtype=first.dtype, _internal=True)
        return first.new(typed).resize_(len(batch), *first.shape)

    def keep(self, slot: int) -> None:
        """Nothing of it was sent: it serves for a later batch."""
        self._pocket.append(slot)

    def pack(self, slot: int, data: Any, why_shared: str, spent: Spent) -> Parcel:
        placing = _Placing(self.slots, slot, why_shared)
        content = placing.dump(data)
        if len(content) > _SHORT:
            offset = self.slots.place_bytes(slot, content)
            if offset is not None:
                self.slots.finish(slot)
                return Parcel(slot, (offset, len(content)), placing.ordinary, spent)
        if not placing.placed:
            self.keep(slot)
            return Parcel(None, content, placing.ordinary, spent)
        self.slots.finish(slot)
        return Parcel(slot, content, placing.ordinary, spent)


class Outgoing:
    """A batch on its way to the queue's thread, which makes a Parcel of it, as it would have made
    torch's shared memory files of it: while the worker is at the next batch."""

    def __init__(self, sender: Sender, slot: int, data: Any, why_shared: str, spent: Spent) -> None:
        self.sender = sender
        self.slot = slot
        self.data = data
        self.why_shared = why_shared
        self.spent = spent

    def __reduce__(self) -> Any:
        try:
            packed = self.sender.pack(self.slot, self.data, self.why_shared, self.spent)
            return Parcel, tuple(packed)
        except Exception:
            # torch's queue would print this and leave the consumer waiting for ever.
            info = get_worker_info()
            wrapper = ExceptionWrapper(
                where=f"in DataLoader worker process {'?' if info is None else info.id}"
            )
            content = bytes(ForkingPickler.dumps(wrapper))
            self.sender.keep(self.slot)
            return Parcel, (None, content, "", self.spent)


class _Placing:
    """What becomes of one batch's tensors. Not the pickler itself: that would hold itself through its
    table, and every object it has seen, until the garbage collector comes by."""

    def __init__(self, slots: Any, slot: int, why_shared: str) -> None:
        self._slots = slots
        self._slot = slot
        self._why_shared = why_shared
        self._rows_apart = True
        self._begin()

    def _begin(self) -> None:
        self._placed: dict[int, int] = {}  # address of a storage: its offset in the slot
        self.ordinary = ""
        self._rows: dict[int, list[tuple[int, int]]] = {}  # by storage: (address, size) of its rows
        self._left: set[int] = set()

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
            # One row of the data set must not take the data set along, as it does with torch, which
            # moves that to shared memory.
            if whole > _SHORT and whole > 2 * size and not storage.is_shared():
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
                raise _Overlap  # the two share memory, and must do so when they arrive
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
                self.ordinary = self._why_shared
                return reduce_storage(storage)
            if address in self._left:
                self.ordinary = VIEW
                return reduce_storage(storage)
            offset = self._slots.place(self._slot, address, size)
            if offset is None:
                self.ordinary = TOO_LARGE
                return reduce_storage(storage)
            self._placed[address] = offset
        return rebuild_storage, (offset, size)


class _Overlap(Exception):
    """Two tensors of the batch share memory of a storage that should not travel as a whole."""


# The batch being unpickled on each thread of the consumer: pickle hands no context through.
arriving = threading.local()


def rebuild_storage(offset: int, size: int) -> torch.UntypedStorage:
    return arriving.batch.storage(offset, size)


def rebuild_row(offset: int, size: int, dtype: Any, shape: Any, stride: Any) -> torch.Tensor:
    storage = rebuild_storage(offset, size)
    return torch.empty(0, dtype=dtype, device="cpu").set_(storage, 0, shape, stride)


_sender: Sender | None = None


def _install(sender: Sender) -> None:
    """In this worker process, default_collate's table says how tensors are collated; what the user
    has put there stays."""
    global _sender
    _sender = sender
    if default_collate_fn_map.get(torch.Tensor) is collate_tensor_fn:
        default_collate_fn_map[torch.Tensor] = _collate_tensors


def _collate_tensors(batch: Any, *, collate_fn_map: Any = None) -> Any:
    if _sender is None:
        return collate_tensor_fn(batch, collate_fn_map=collate_fn_map)
    return _sender.collate(batch, collate_fn_map)
