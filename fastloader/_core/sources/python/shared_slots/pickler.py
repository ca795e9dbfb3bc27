"""The pickler of a batch whose tensors go into a slot."""

from __future__ import annotations

import io
import threading
from multiprocessing.reduction import ForkingPickler
from typing import Any

import torch
from torch.multiprocessing.reductions import reduce_storage, reduce_tensor

from fastloader._core.batch.tree import is_dense, is_leaf
from fastloader._core.sources.python.shared_slots.parcel import TOO_LARGE, VIEW

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
