"""Recognising datasets whose rows lie in tensors or numpy arrays.

A batch equals ``default_collate([dataset[i] for i in batch])``: it has the same containers, dtypes,
shapes, strides and values, in the sampler's order.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import torch
from torch.utils.data import (
    StackDataset,
    Subset,
    TensorDataset,
)

from fastloader._core.batch.tree import is_leaf
from fastloader._core.machine import identity
from fastloader._core.machine.mapped_memory import file_at
from fastloader._core.machine.torch_datasets import kind_of
from fastloader._core.order.loader import Loader
from fastloader._core.sources.collation import check_collation
from fastloader._core.sources.sequences import picked_by
from fastloader.datasets.arrays import PackedArrays
from fastloader.errors import NotNative

# Bytes of one array in one batch. Below this, torch's own memory is as fast as a pool's, and a page for
# each tensor that a user keeps would be too much.
FEW_BYTES = 64 << 10

# Of a mapped file, rows with gaps are read with the gaps, if all is no more than so many times a row.
MUCH_MORE = 4

# The dtypes of which every torch selects rows.
_SELECTABLE = frozenset(
    (
        *(torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64),
        *(torch.float16, torch.bfloat16, torch.float32, torch.float64),
        *(torch.complex64, torch.complex128),
    )
)


@dataclasses.dataclass
class Leaf:
    """One array. Its row ``rows[i]`` belongs to sample ``i``, or its row ``i`` if ``rows`` is None."""

    tensor: torch.Tensor
    rows: Any | None  # int64; negative ones count from the end
    bytes_needed: int = 0  # of the storage, which was taken away if it has fewer
    file: str = ""  # that is mapped to it

    def __post_init__(self) -> None:
        # An alias, so that assigning to the dataset's tensor.data during an epoch frees nothing.
        tensor = self.tensor = self.tensor.detach()
        self.storage = tensor.untyped_storage()
        self.row_shape = tuple(tensor.shape[1:])
        self.row_bytes = tensor.element_size() * math.prod(self.row_shape)
        self.row_step = tensor.stride(0) * tensor.element_size()
        self.bytes_needed = self.storage.nbytes()
        # torch selects rows that are not contiguous.
        self.flat = len(tensor) == 0 or tensor[0].is_contiguous()
        self.row_map = None if self.rows is None else torch.from_numpy(self.rows)
        reach = sum((n - 1) * step for n, step in zip(tensor.shape, tensor.stride()))
        if tensor.numel():
            self.file = file_at(tensor.data_ptr(), (reach + 1) * tensor.element_size())
        # The bytes from the first to the last of a row that has gaps; 0: it has none, or torch reads it.
        self.spread = 0
        if self.file and not self.flat:
            spread = (reach + 1) * tensor.element_size() - (len(tensor) - 1) * self.row_step
            self.spread = spread if spread <= MUCH_MORE * self.row_bytes else 0

    def is_there(self) -> bool:
        return self.storage.nbytes() >= self.bytes_needed


@dataclasses.dataclass
class NativeArrays:
    """A dataset in arrays. ``structure`` is a batch in which each tensor is replaced by the number of
    its leaf."""

    dataset: Any
    leaves: list[Leaf]
    structure: Any
    name: str

    def __post_init__(self) -> None:
        self._is_list = self.structure == list(range(len(self.leaves)))
        # The most samples that a batch for `selected` may have.
        self.few = 0
        if all(
            leaf.flat and not leaf.file and leaf.tensor.dtype in _SELECTABLE for leaf in self.leaves
        ):
            self.few = FEW_BYTES // max(1, *(leaf.row_bytes for leaf in self.leaves))

    def collated(self, outputs: list[torch.Tensor]) -> Any:
        return outputs if self._is_list else _filled(self.structure, outputs)

    def selected(self, indices: torch.Tensor) -> list[torch.Tensor] | None:
        """Selects the rows of a small batch into torch's own memory, with one call for each array.
        Returns None for what is no index to torch, such as a negative number."""
        outputs = []
        try:
            for leaf in self.leaves:
                if leaf.storage.nbytes() < leaf.bytes_needed:
                    return None
                rows = indices if leaf.row_map is None else leaf.row_map.index_select(0, indices)
                outputs.append(leaf.tensor.index_select(0, rows))
        except (IndexError, RuntimeError):  # the array's shape decides which of them
            return None
        return outputs


def _filled(structure: Any, outputs: list[torch.Tensor]) -> Any:
    if type(structure) is int:
        return outputs[structure]
    if type(structure) is dict:
        return {key: _filled(each, outputs) for key, each in structure.items()}
    return [_filled(each, outputs) for each in structure]


_KINDS = (PackedArrays, StackDataset, Subset, TensorDataset)


def holds_arrays(dataset: Any) -> bool:
    """Whether the dataset is of a kind whose samples are rows of arrays. A subclass counts that has
    nothing of its own that matters."""
    kind = _kind_of(dataset)
    if kind is Subset:
        return holds_arrays(dataset.dataset)
    if kind is StackDataset:
        return all(holds_arrays(each) for each in _stacked(dataset))
    return kind in (TensorDataset, PackedArrays, torch.Tensor, np.ndarray, np.memmap)


def recognize_arrays(loader: Loader) -> NativeArrays:
    """Returns the arrays that the loader's dataset holds.

    Raises:
        NotNative: with the reason in words, if the batches cannot be gathered.
    """
    check_collation(loader)
    if loader.timeout and not loader.num_workers:
        raise NotNative("timeout without workers is an error of torch's")
    if loader.num_workers and not loader.prefetch_factor:
        raise NotNative("prefetch_factor=0 is an error of torch's")
    if not isinstance(loader.num_workers, int) or not isinstance(loader.prefetch_factor or 0, int):
        raise NotNative("num_workers or prefetch_factor that is no int is an error of torch's")
    if loader.pin_memory and loader.pin_memory_device:
        raise NotNative("pin_memory_device is given")
    leaves: list[Leaf] = []
    structure, name = _read(loader.dataset, None, leaves)
    if not leaves:
        raise NotNative("the dataset holds no tensors")
    return NativeArrays(loader.dataset, leaves, structure, name)


def _kind_of(dataset: Any) -> type:
    return kind_of(dataset) or type(dataset)


def _stacked(dataset: Any) -> list[Any]:
    inner = dataset.datasets
    return list(inner.values()) if isinstance(inner, dict) else list(inner)


def _read(dataset: Any, rows: Any | None, leaves: list[Leaf]) -> tuple[Any, str]:
    """Appends the dataset's leaves, as seen through ``rows``, and returns (structure, name)."""
    kind = _kind_of(dataset)
    if own := identity.own_part(dataset, kind) if kind in _KINDS else "":
        raise NotNative(own)
    if kind is Subset:
        structure, name = _read(dataset.dataset, _picked(dataset, rows), leaves)
        return structure, f"Subset of {name}"
    if kind is StackDataset:
        inner = dataset.datasets
        if isinstance(inner, dict):
            parts = {key: _read(each, rows, leaves) for key, each in inner.items()}
            name = ", ".join(f"{key}: {part[1]}" for key, part in parts.items())
            return {key: part[0] for key, part in parts.items()}, f"StackDataset of {name}"
        read = [_read(each, rows, leaves) for each in inner]
        return [part[0] for part in read], "StackDataset of " + ", ".join(p[1] for p in read)
    if kind in (TensorDataset, PackedArrays):
        structure = [_read_array(tensor, rows, leaves) for tensor in dataset.tensors]
        count = len(structure)
        if kind is PackedArrays and dataset.single:
            (structure,) = structure
        return structure, f"{kind.__name__} of {count} tensor{'s' if count != 1 else ''}"
    return _read_array(dataset, rows, leaves), kind.__name__.lower()


def _picked(dataset: Any, rows: Any | None) -> Any:
    """The indices of a Subset as int64, as seen through ``rows`` of the Subsets around it."""
    found = picked_by(dataset)
    if rows is None:
        return found
    try:
        return found[rows]
    except IndexError:
        raise NotNative("a Subset holds indices that its dataset has not") from None


def _read_array(source: Any, rows: Any | None, leaves: list[Leaf]) -> int:
    kind = type(source)
    if kind in (np.ndarray, np.memmap):
        if source.ndim == 0 or not source.dtype.isnative or min(source.strides) < 0:
            raise NotNative("torch takes no array that is foreign-endian or runs backwards")
        if source.ndim == 1 and source.dtype == np.uint64:
            raise NotNative("numbers of uint64 are an error of torch's default_collate")
        try:
            source = torch.from_numpy(source)
        except (TypeError, ValueError) as error:
            raise NotNative(f"torch takes no array of {source.dtype}: {error}") from None
    elif not is_leaf(source):
        what = f"a {kind.__module__}.{kind.__qualname__}"
        if kind is torch.Tensor:
            what = "one that requires grad" if source.requires_grad else "no dense CPU tensor"
        raise NotNative(f"a tensor of the dataset is {what}")
    if source.dim() == 0:
        raise NotNative("a tensor of the dataset has no rows")
    leaves.append(Leaf(source, rows))
    return len(leaves) - 1
