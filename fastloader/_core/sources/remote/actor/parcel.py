"""A batch on its way from an actor to the trainer.

Ray writes the memory of numpy arrays into its shared memory as it is, and shows it on the other side
without a copy. So all memory of a batch travels in arrays, beside a short pickle of the rest.
"""

from __future__ import annotations

import collections
import io
import pickle
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from ray import cloudpickle
from torch.multiprocessing.reductions import reduce_tensor, reduce_typed_storage

from fastloader._core.batch.tree import is_dense, is_leaf

# A tensor that is less than half of a storage larger than this travels without the rest.
_SHORT = 16 << 10


class Parcel(NamedTuple):
    """``content`` is a pickled batch without the memory of its ``storages`` and its numpy ``arrays``,
    empty if nothing is to be delivered. ``lendable``: which storages are only those of leaves.
    ``state``: of the worker's generators after the batch; None if nothing draws from them. ``spent``:
    the seconds that the actor was at it. ``sent``: when it was done, by the clock of its node."""

    content: bytes
    storages: list[Any]
    lendable: list[bool]
    arrays: list[Any]
    state: bytes | None
    spent: float
    sent: float

    @property
    def size(self) -> int:
        """In bytes."""
        memory = sum(array.nbytes for array in (*self.storages, *self.arrays))
        return int(len(self.content) + memory)


def packed(batch: Any) -> tuple[bytes, list[Any], list[bool], list[Any]]:
    """(content, storages, lendable, arrays) of a batch.

    Raises:
        ValueError: for a tensor on a device.
        Exception: what cannot be pickled raises.
    """
    file = io.BytesIO()
    buffers: list[pickle.PickleBuffer] = []
    packer = _Packer(file, buffers)
    packer.dump(batch)
    arrays = [np.frombuffer(buffer.raw(), np.uint8) for buffer in buffers]
    return file.getvalue(), packer.storages, packer.lendable, arrays


def received(parcel: Parcel, lends: bool) -> Parcel:
    """The parcel in memory of this process. ``lends``: whether the tensors of leaves stay in Ray's
    memory, which they hold, and which may not be written to. Runs no code of the batch's classes."""
    storages = [
        array if lends and lendable else array.copy()
        for array, lendable in zip(parcel.storages, parcel.lendable, strict=True)
    ]
    return parcel._replace(storages=storages, arrays=[array.copy() for array in parcel.arrays])


def opened(parcel: Parcel) -> Any:
    """The batch of a parcel that was `received`."""
    return _Opener(parcel).load()


class _Packer(cloudpickle.CloudPickler):
    """Pickles a batch, and leaves out the memory of its tensors. Tensors that share memory share it when
    they arrive."""

    dispatch_table: ClassVar[Any] = collections.ChainMap(
        {
            torch.nn.Parameter: reduce_tensor,
            torch.storage.TypedStorage: reduce_typed_storage,
        },
        cloudpickle.CloudPickler.dispatch_table,
    )

    def __init__(self, file: io.BytesIO, buffers: list[pickle.PickleBuffer]) -> None:
        super().__init__(file, protocol=5, buffer_callback=buffers.append)
        self.storages: list[Any] = []
        self._held: list[Any] = []  # so that no other storage gets the address of one of them
        self._numbers: dict[int, int] = {}  # by the address of a storage
        self._leaves: set[int] = set()
        self._others: set[int] = set()

    @property
    def lendable(self) -> list[bool]:
        """Of which storages all tensors are leaves of the batch, which a delivery can copy."""
        return [place in self._leaves and place not in self._others for place in self._numbers]

    def reducer_override(self, value: Any) -> Any:
        if type(value) is torch.Tensor:
            return self._reduced(value)
        return super().reducer_override(value)

    def _reduced(self, tensor: torch.Tensor) -> Any:
        if not is_leaf(tensor):
            if tensor.layout is torch.strided and not tensor.is_nested:
                self._others.add(tensor.untyped_storage().data_ptr())
            return reduce_tensor(tensor)
        whole, size = tensor.untyped_storage().nbytes(), tensor.numel() * tensor.element_size()
        # One row of a dataset must not take the whole dataset along.
        if whole > _SHORT and whole > 2 * size:
            kept = torch.preserve_format if is_dense(tensor) else torch.contiguous_format
            tensor = tensor.clone(memory_format=kept)
        self._leaves.add(tensor.untyped_storage().data_ptr())
        return reduce_tensor(tensor)

    def persistent_id(self, value: Any) -> int | None:
        if type(value) is not torch.UntypedStorage:
            return None
        if value.device.type != "cpu":
            raise ValueError(
                f"a batch of a Ray actor has a tensor on {value.device}: its dataset and collate_fn "
                "must leave tensors on the CPU, and the loader takes them to its device"
            )
        place, size = value.data_ptr() or -1 - len(self._numbers), value.nbytes()
        if place not in self._leaves:
            self._others.add(place)
        if place not in self._numbers:
            self._numbers[place] = len(self.storages)
            flat = torch.empty(0, dtype=torch.uint8, device="cpu").set_(value, 0, (size,), (1,))
            self.storages.append(flat.numpy())
            self._held.append(value)
        return self._numbers[place]


class _Opener(pickle.Unpickler):
    def __init__(self, parcel: Parcel) -> None:
        super().__init__(io.BytesIO(parcel.content), buffers=parcel.arrays)
        self._arrays = parcel.storages
        self._storages: dict[int, torch.UntypedStorage] = {}

    def persistent_load(self, number: int) -> torch.UntypedStorage:
        if number not in self._storages:
            array = self._arrays[number]
            if array.nbytes == 0:
                storage = torch.UntypedStorage(0, device="cpu")
            else:
                shown = array if array.flags.writeable else np.asarray(_Lent(array))
                storage = torch.from_numpy(shown).untyped_storage()
            self._storages[number] = storage
        return self._storages[number]


class _Lent:
    """Shows a read-only array as one that can be written to. torch has no read-only tensors, and warns
    of each array that is; the delivery to which the tensor goes only reads it."""

    def __init__(self, array: Any) -> None:
        self.array = array  # which holds the memory
        shown = dict(array.__array_interface__)
        self.__array_interface__ = {**shown, "data": (shown["data"][0], False)}
