"""The worker's end of the shared slots. Batches are collated into a slot, and a parcel that says where
they lie goes through torch's queue.

All of it happens at two places that torch leaves open. First, `default_collate` looks up how tensors are
collated, in a table made for extension: here they are stacked straight into the slot. Second, the queue
pickles. torch makes a shared memory file of each *storage* then, and here the storage is copied into the
slot instead. So tensor subclasses, views of one storage, sparse tensors and objects with tensors inside
go the way that they always went.
"""

from __future__ import annotations

import collections
import threading
import time
from multiprocessing.reduction import ForkingPickler
from typing import Any

import torch
from torch._utils import ExceptionWrapper
from torch.utils.data import get_worker_info
from torch.utils.data._utils.collate import collate_tensor_fn, default_collate_fn_map
from torch.utils.data._utils.worker import _IterableDatasetStopIteration

from fastloader._core.machine import extension
from fastloader._core.machine.limits import out_of_files
from fastloader._core.sources.python.shared_slots.parcel import (
    HELD,
    NO_SLOT,
    SHARED,
    TOO_LARGE,
    SlotParcel,
    WorkerTime,
    pickled_error,
)
from fastloader._core.sources.python.shared_slots.pickler import SHORT, SlotPickler
from fastloader.errors import Error


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
        """What goes into torch's queue for ``data``, which the worker has made."""
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

    def _room(self, batch: Any) -> torch.Tensor | None:
        """The place in the slot where the tensors are stacked; None if they do not go there."""
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
    """Makes default_collate use ``sender`` in this worker process. Its table says how tensors are
    collated. An entry that the user has put there stays."""
    global _sender
    _sender = sender
    if default_collate_fn_map.get(torch.Tensor) is collate_tensor_fn:
        default_collate_fn_map[torch.Tensor] = _collate_tensors


def _collate_tensors(batch: Any, *, collate_fn_map: Any = None) -> Any:
    if _sender is None:
        return collate_tensor_fn(batch, collate_fn_map=collate_fn_map)
    return _sender.collate(batch, collate_fn_map)
