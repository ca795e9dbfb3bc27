"""Gathers batches from tensors and numpy arrays by native threads, without collating samples."""

from __future__ import annotations

import array
import collections
import contextlib
import dataclasses
import math
import time
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch.utils.data import (
    BatchSampler,
    RandomSampler,
    SequentialSampler,
    StackDataset,
    Subset,
    TensorDataset,
    default_collate,
)
from torch.utils.data.dataloader import _BaseDataLoaderIter

from fastloader._core.batch.augmentation import EpochDraws
from fastloader._core.batch.tree import is_leaf
from fastloader._core.handoff import DEFAULT_DEPTH, Handoff, SamplePart, Source
from fastloader._core.machine import devices, extension, identity
from fastloader._core.machine.limits import GATHER_THREADS, available_threads, counted
from fastloader._core.machine.mapped_memory import file_at
from fastloader._core.machine.torch_datasets import kind_of
from fastloader._core.observation.statistics import (
    PER_PROCESSOR,
    AutoChoice,
    Figures,
    LoopIterator,
    Stage,
    Statistics,
)
from fastloader._core.order.epoch_order import EpochOrder
from fastloader._core.order.loader import Loader
from fastloader._core.sources.arguments import check_native, check_no_image_options
from fastloader._core.sources.collation import check_collation
from fastloader._core.sources.sequences import picked_by
from fastloader.datasets.arrays import PackedArrays
from fastloader.errors import NotNative
from fastloader.transforms._normalization import Normalization

if TYPE_CHECKING:
    from fastloader import _native


# ---- The index batches of an epoch over arrays, as int64 without a Python int for each index.


CHUNK = 1 << 16  # indices of a sequential sampler that are made at a time

_TOGETHER = 32  # index batches that are cut at a time

_MASKS = frozenset([bool, torch.Tensor])


def index_batches(sampler: Any) -> Iterator[Any]:
    """Iterates over the sampler, but with int64 tensors for torch's own samplers in torch's own
    BatchSampler. They hold the same indices, drawn from the same generators at the same moments."""
    if type(sampler) is BatchSampler and type(sampler.sampler) in (
        RandomSampler,
        SequentialSampler,
    ):
        kinds = (BatchSampler, type(sampler.sampler))
        if not any(identity.change(kind, kind) for kind in kinds):
            return _batched(sampler)
    return iter(sampler)


def _batched(sampler: Any) -> Iterator[torch.Tensor]:
    """Gives what BatchSampler.__iter__ gives. No index is pulled before it is needed, as there."""
    size = sampler.batch_size
    parts: list[torch.Tensor] = []  # the parts of a batch that is not full yet
    missing = size
    for chunk in _drawn(sampler.sampler):
        begin, count = 0, chunk.numel()
        if parts:
            begin = min(missing, count)
            parts.append(chunk[:begin])
            missing -= begin
            if missing:
                continue
            yield torch.cat(parts)
            parts, missing = [], size
        end = begin + (count - begin) // size * size
        # Views are made together, because one at a time costs as much as gathering a small batch.
        for at in range(begin, end, _TOGETHER * size):
            yield from chunk[at : min(end, at + _TOGETHER * size)].split(size)
        if end < count:
            parts, missing = [chunk[end:]], size - (count - end)
    if parts and not sampler.drop_last:
        yield parts[0] if len(parts) == 1 else torch.cat(parts)


def _drawn(sampler: Any) -> Iterator[torch.Tensor]:
    """Gives what RandomSampler and SequentialSampler of torch 2.4 to 2.13 give, a tensor at a time."""
    n = len(sampler.data_source)
    if type(sampler) is SequentialSampler:
        for begin in range(0, n, CHUNK):
            yield torch.arange(begin, min(begin + CHUNK, n), dtype=torch.int64, device="cpu")
        return
    if sampler.generator is None:
        seed = int(torch.empty((), dtype=torch.int64).random_().item())
        generator = torch.Generator()
        generator.manual_seed(seed)
    else:
        generator = sampler.generator
    if sampler.replacement:
        for _ in range(sampler.num_samples // 32):
            yield torch.randint(high=n, size=(32,), dtype=torch.int64, generator=generator)
        yield torch.randint(
            high=n, size=(sampler.num_samples % 32,), dtype=torch.int64, generator=generator
        )
    else:
        for _ in range(sampler.num_samples // n):
            yield torch.randperm(n, generator=generator)
        yield torch.randperm(n, generator=generator)[: sampler.num_samples % n]


def as_indices(batch: Any) -> Any | None:
    """Returns a batch of indices as a buffer of int64; None if it holds anything but whole numbers."""
    kind = type(batch)
    try:
        if kind is torch.Tensor:
            if batch.dtype is not torch.int64 or batch.dim() != 1 or batch.device.type != "cpu":
                return None
            return batch.detach().contiguous().numpy()
        if kind in (list, tuple):
            # A bool, or a tensor of one, is a mask to tensors but a number to array.array.
            if not batch or not _MASKS.isdisjoint(map(type, batch)):
                return None
            return np.frombuffer(array.array("q", batch), dtype=np.int64)
        if kind is np.ndarray and batch.ndim == 1 and batch.dtype.kind in "iu":
            return np.ascontiguousarray(batch, dtype=np.int64)
    except (TypeError, OverflowError):
        pass
    return None


# ---- Recognising datasets whose rows lie in tensors or numpy arrays.
#
# A batch equals ``default_collate([dataset[i] for i in batch])``: it has the same containers,
# dtypes, shapes, strides and values, in the sampler's order.


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


def _places(structure: Any, place: str = "") -> list[str]:
    """Lists where the leaves of a `NativeArrays.structure` stand, in words; the only one of samples that
    are no containers is every part."""
    if type(structure) is int:
        return [place or "every part"]
    items = structure.items() if type(structure) is dict else enumerate(structure)
    return [each for key, inner in items for each in _places(inner, f"{place}[{key!r}]")]


def _filled(structure: Any, outputs: list[torch.Tensor]) -> Any:
    if type(structure) is int:
        return outputs[structure]
    if type(structure) is dict:
        return {key: _filled(each, outputs) for key, each in structure.items()}
    return [_filled(each, outputs) for each in structure]


_KINDS = (PackedArrays, StackDataset, Subset, TensorDataset)


def holds_arrays(dataset: Any) -> bool:
    """Returns whether the dataset is of a kind whose samples are rows of arrays. A subclass counts that
    has nothing of its own that matters."""
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
    """Returns the indices of a Subset as int64, as seen through ``rows`` of the Subsets around it."""
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


# ---- Memory of batches of arrays.


class ArrayMemory:
    """Memory of batches, which the loader keeps over its epochs. Small tensors are torch's. Large ones
    come from a pool for each array, and go back when the last view of them dies."""

    def __init__(self) -> None:
        self._pools: dict[int, _native.BufferPool] = {}
        self.torch_batches = 0  # batches that were fetched and collated in torch's way
        self.gathered = 0  # all other batches
        self.gather_s = 0.0  # the thread time that gathering these took

    def empty(self, number: int, shape: tuple[int, ...], dtype: torch.dtype, pin: bool) -> Any:
        count = math.prod(shape) * dtype.itemsize
        if pin or count < FEW_BYTES or extension.load() is None:
            return torch.empty(shape, dtype=dtype, device="cpu", pin_memory=pin)
        pool = self._pools.get(number)
        if pool is None:
            pool = self._pools[number] = extension.native.BufferPool()
        storage = torch.from_dlpack(pool.bytes(count)).untyped_storage()
        # Not made as a view of the bytes, because views share a version counter and cannot be detached
        # in place.
        return torch.empty(0, dtype=dtype, device="cpu").set_(storage, 0, shape, _contiguous(shape))

    def stats(self) -> dict[str, Any]:
        counted: collections.Counter[str] = collections.Counter()
        for pool in self._pools.values():
            counted.update(pool.stats())
        return {"torch_batches": self.torch_batches, "buffers": dict(counted)}


def _contiguous(shape: tuple[int, ...]) -> list[int]:
    strides = [1] * len(shape)
    for i in range(len(shape) - 1, 0, -1):
        strides[i - 1] = strides[i] * shape[i]
    return strides


def warn_unpinned() -> None:
    """Warns as torch, from 2.6 on, warns of pin_memory=True without an accelerator."""
    if not hasattr(torch, "accelerator"):  # torch < 2.6
        return
    warnings.warn(
        "'pin_memory' argument is set as true but no accelerator is found, then device pinned memory "
        "won't be used.",
        stacklevel=4,
    )


# ---- One epoch over a dataset of arrays: batches gathered by native threads, not collated.


IN_FLIGHT = DEFAULT_DEPTH  # batches gathered ahead; the argument `depth` does not change this
# A smaller batch needs no help: the calling thread is done before another one has woken up.
HELPED_BYTES = 1 << 20

_SAME_SIZE = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


@dataclasses.dataclass
class PendingGather:
    """A batch that was begun. Without ``outputs`` it is fetched in torch's way."""

    batch: Any
    indices: Any = None
    outputs: list[torch.Tensor] | None = None
    job: Any = None
    # By the number of its leaf: the memory that rows with gaps are read to.
    spread: dict[int, torch.Tensor] = dataclasses.field(default_factory=dict)
    gathered: list[int] = dataclasses.field(default_factory=list)  # the numbers of the job's leaves


class _NoThread:
    """Stands for the pin thread of an iterator that does not need one."""

    def join(self, timeout: float | None = None) -> None:
        pass

    def is_alive(self) -> bool:
        return False


class ArrayIterator(LoopIterator, _BaseDataLoaderIter):  # type: ignore[misc]
    """One epoch over arrays. With ``num_workers=0`` everything happens in ``next()``. With more, as many
    index batches are drawn ahead as torch draws, and native threads gather the first few of them.

    It derives from torch's base for the attributes that others read off an iterator. It does not run the
    base's constructor, because the loader itself makes the draws and warnings of that."""

    def __init__(
        self,
        arrays: NativeArrays,
        loader: Loader,
        order: EpochOrder,
        memory: ArrayMemory,
        statistics: Statistics | None,
        pin: bool,
        base_seed: int | None,
    ) -> None:
        super().__init__(statistics)
        self._arrays = arrays
        self._memory = memory
        self._pin = pin
        self._few = 0 if pin else arrays.few
        self._natively = extension.load() is not None
        workers = loader.num_workers
        self._note_attributes(loader)
        self._ahead = workers * (loader.prefetch_factor or 0)
        self.threads = array_threads(workers)
        self._index_batches: Iterator[Any] | None = None
        # Draws come in the order of torch's iterators, whose constructor and _reset() both call iter().
        if base_seed is None:
            self._index_batches = order.index_batches(index_batches)
            base_seed = devices.drawn_seed(loader.generator)
        if workers or self._index_batches is None:
            self._index_batches = order.index_batches(index_batches)
        self.base_seed = self._base_seed = order.take_base_seed(base_seed)
        # Index batches, and errors, each in a tuple of its own: a sampler may give one object twice.
        self._waiting: collections.deque[tuple[Any]] = collections.deque()
        # What was begun, or an error, behind the tuple that it comes from.
        self._flight: collections.deque[tuple[tuple[Any], Any]] = collections.deque()
        self._finishing = False  # whether next() is at the first, which is not ahead any more
        self._top_up()

    def _note_attributes(self, loader: Loader) -> None:
        """Sets torch's attributes, for frameworks that look at its iterators."""
        self._dataset = loader.dataset
        self._dataset_kind = loader._dataset_kind
        self._auto_collation = loader._auto_collation
        self._collate_fn = loader.collate_fn
        self._drop_last = loader.drop_last
        self._index_sampler = loader._runtime.position
        self._num_workers = loader.num_workers
        self._prefetch_factor = loader.prefetch_factor
        self._timeout = loader.timeout
        self._persistent_workers = loader.persistent_workers
        self._pin_memory = self._pin
        self._num_yielded = 0
        if self._num_workers:
            self._workers: list[Any] = []  # there are none
            if self._pin:
                self._pin_memory_thread = _NoThread()

    def _drop_begun(self) -> None:
        """Drops the index batch whose batch is in flight already."""
        with contextlib.suppress(IndexError):  # there is none, or closed meanwhile
            if self._flight[-1][0] is self._waiting[0]:
                self._waiting.popleft()

    def _top_up(self) -> None:
        self._drop_begun()  # which Ctrl-C may have prevented
        while self._index_batches is not None and self._outstanding() < self._ahead:
            try:
                self._waiting.append((next(self._index_batches),))
            except StopIteration:
                self._index_batches = None
            except Exception as error:  # the sampler's error takes its batch's place
                self._waiting.append((error,))
        while self._waiting and len(self._flight) < IN_FLIGHT + self._finishing:
            # The index batch stays until its batch is in flight, because Ctrl-C may come in between.
            waiting = self._waiting[0]
            begun = waiting[0]
            if not isinstance(begun, BaseException):
                begun = self._begin(begun, self.threads)
            self._flight.append((waiting, begun))
            self._drop_begun()

    def _outstanding(self) -> int:
        return len(self._waiting) + len(self._flight) - self._finishing

    def _check(self) -> None:
        if self._ahead:  # a forked child does not have the threads
            super()._check()

    def _next(self) -> Any:
        delivered = self._next_ahead() if self._ahead else self._next_now()
        self._num_yielded += 1
        return delivered

    def _next_now(self) -> Any:
        """Gathers a batch now. The index batch stays until the batch is delivered, or an error in its
        place, because Ctrl-C may come in between."""
        if not self._waiting:
            if self._index_batches is None:
                raise StopIteration
            self._waiting.append((next(self._index_batches),))
        try:
            delivered = self._deliver_now(self._waiting[0][0])
        except Exception:
            self._waiting.clear()
            raise
        self._waiting.clear()
        return delivered

    def _deliver_now(self, batch: Any) -> Any:
        if type(batch) is torch.Tensor and 0 < batch.numel() <= self._few:
            begun = time.perf_counter()
            outputs = self._arrays.selected(batch)
            if outputs is not None:
                self._memory.gathered += 1
                self._memory.gather_s += time.perf_counter() - begun
                return self._arrays.collated(outputs)
        return self._finish(self._begin(batch, 0))

    def _next_ahead(self) -> Any:
        self._top_up()
        if not self._flight:
            raise StopIteration
        first = self._flight[0][1]
        if isinstance(first, PendingGather) and first.job is not None:
            first.job.wait()
        # Ctrl-C leaves the batch where it is, because it stays in `_flight` until `_settle`.
        self._finishing = True
        self._top_up()
        try:
            if isinstance(first, BaseException):
                raise first
            delivered = self._finish(first)
        except Exception:
            self._settle()
            del first  # breaks the cycle of this frame and the error
            raise
        self._settle()
        return delivered

    def _settle(self) -> None:
        self._finishing = False
        with contextlib.suppress(IndexError):  # closed meanwhile
            self._flight.popleft()

    def _begin(self, batch: Any, threads: int) -> PendingGather:
        """Offers the batch to ``threads`` threads. With 0, others help only if there is much to do."""
        leaves = self._arrays.leaves
        indices = as_indices(batch)
        if indices is None or not len(indices) or not all(leaf.is_there() for leaf in leaves):
            return PendingGather(batch)
        count = len(indices)
        with devices.ordinary_tensors():  # the loop may be in another inference mode by then
            outputs = [
                self._memory.empty(number, (count, *leaf.row_shape), leaf.tensor.dtype, self._pin)
                for number, leaf in enumerate(leaves)
            ]
        if not self._natively:
            return PendingGather(batch, indices, outputs)
        if not threads and count * sum(leaf.row_bytes for leaf in leaves) >= HELPED_BYTES:
            threads = self.threads - 1
        arrays = []
        maps = []
        pending = PendingGather(batch, indices, outputs)
        for number, (leaf, output) in enumerate(zip(leaves, outputs)):
            rows = leaf.rows
            size = (0, 0) if rows is None else (rows.ctypes.data if len(rows) else 8, len(rows))
            maps.append((*size, len(leaf.tensor)))
            if leaf.spread:
                output = pending.spread[number] = torch.empty(
                    count * leaf.spread, dtype=torch.uint8, device="cpu"
                )
            if leaf.flat or leaf.spread:
                row = (leaf.spread or leaf.row_bytes, leaf.row_step)
                to = (output.data_ptr(), number, bool(leaf.file))
                arrays.append((leaf.tensor.data_ptr(), *row, *to))
                pending.gathered.append(number)
        try:
            pending.job = extension.native.GatherBatch(
                arrays, maps, (outputs, leaves, pending.spread), indices=indices.ctypes.data,
                count=count, threads=threads,
            )  # fmt: skip
        except IndexError:
            return PendingGather(batch)  # so that torch raises in its own words
        return pending

    def _finish(self, pending: PendingGather) -> Any:
        begun = time.perf_counter()
        if pending.job is not None:
            pending.job.wait()
            self._check_read(pending)
        if pending.outputs is None or not self._select(pending):
            return self._fetch(pending.batch)
        memory = self._memory
        memory.gathered += 1
        memory.gather_s += (
            time.perf_counter() - begun if pending.job is None else pending.job.seconds()
        )
        return self._arrays.collated(pending.outputs)

    def _check_read(self, pending: PendingGather) -> None:
        """Raises OSError for the sample of a row that could not be read."""
        unread = pending.job.unread()
        if unread is None:
            return
        array, position = unread
        leaf = self._arrays.leaves[pending.gathered[array]]
        raise OSError(
            f"sample {pending.indices[position]} cannot be read: {leaf.file}, which is mapped to the "
            "dataset's array, was cut off, or its disk fails"
        )

    def _select(self, pending: PendingGather) -> bool:
        """Selects with torch what the native module did not gather. Returns False for an index that an
        array lacks."""
        assert pending.outputs is not None
        for number, (leaf, output) in enumerate(zip(self._arrays.leaves, pending.outputs)):
            if number in pending.spread:
                read = pending.spread[number].view(leaf.tensor.dtype)
                to_row = leaf.spread // leaf.tensor.element_size()
                output.copy_(read.as_strided(output.shape, (to_row, *leaf.tensor.stride()[1:])))
            if number in pending.gathered:
                continue
            try:
                rows = pending.indices if leaf.rows is None else leaf.rows[pending.indices]
            except IndexError:
                return False
            size = len(leaf.tensor)
            rows = np.where(rows < 0, rows + size, rows)
            if rows.min() < 0 or rows.max() >= size:
                return False
            # Selected as integers of the same size, because not every torch selects rows of every dtype.
            plain = _SAME_SIZE.get(leaf.tensor.element_size(), leaf.tensor.dtype)
            selected = output.view(plain)
            torch.index_select(leaf.tensor.view(plain), 0, torch.from_numpy(rows), out=selected)
        return True

    def _fetch(self, batch: Any) -> Any:
        """Does as torch's _MapDatasetFetcher, for indices out of range or that are no whole numbers."""
        dataset = self._arrays.dataset
        if hasattr(dataset, "__getitems__") and dataset.__getitems__:
            samples = dataset.__getitems__(batch)
        else:
            samples = [dataset[index] for index in batch]
        collated = default_collate(samples)
        self._memory.torch_batches += 1
        return torch.utils.data._utils.pin_memory.pin_memory(collated) if self._pin else collated

    def _shutdown_workers(self) -> None:
        """Ends the epoch; torch's iterator with workers has a method of this name."""
        self.close()

    def close(self) -> None:
        """Ends the epoch early, from any thread. Each thread still copies one piece of a batch at
        most."""
        self._closed = True
        self._index_batches = None
        self._waiting.clear()
        self._flight.clear()


def array_threads(workers: int) -> int:
    """Returns ``num_workers`` or, without workers, as many threads as torch's own operations use, caller
    included."""
    return workers or max(1, min(available_threads(), torch.get_num_threads()))


# ---- Batches gathered from arrays.


class ArraySource(Source):
    """Makes batches of a dataset whose rows lie in tensors or numpy arrays."""

    def __init__(self, statistics: Statistics) -> None:
        self.memory = ArrayMemory()
        self.last: Begun | None = None  # of the epoch begun last

    def plan(self, loader: Loader, wanted: Normalization | None) -> ArrayPlan | None:
        if not holds_arrays(loader.dataset):
            return None
        check_native(loader)
        if loader.worker_backend == "ray":
            raise NotNative(
                "arrays are gathered here, and worker_backend='ray' makes batches elsewhere"
            )
        check_no_image_options(loader, "the dataset is of arrays")
        return ArrayPlan(self, recognize_arrays(loader), loader)

    def forget(self) -> None:
        # The next epoch draws a new base seed, as in torch whose persistent workers have ended.
        self.last = None

    def figures(self, loader: Loader) -> Figures:
        memory = self.memory
        threads = None if self.last is None else self.last.threads
        stages: tuple[Stage, ...] = ()
        if memory.gathered:
            seconds, count, where = memory.gather_s, memory.gathered, GATHER_THREADS
            made = Stage("collate", seconds, count, "batch", where, threads or 1, bound="gather")
            stages = (made,)
        choice = None
        if threads is not None:
            choice = AutoChoice(threads, f"{PER_PROCESSOR}; threads that gather are not watched")
        return Figures(stages=stages, threads=threads, workers=choice)

    def stats(self, loader: Loader) -> dict[str, Any]:
        if self.last is None:
            return {}
        return {"arrays": {"threads": self.last.threads, **self.memory.stats()}}


class Begun(NamedTuple):
    """All that is known of an epoch without its iterator, which ends when the loop drops it."""

    threads: int
    base_seed: int


class ArrayPlan:
    """One epoch of an `ArraySource`."""

    normalization: Normalization | None = None
    draws: EpochDraws | None = None
    normalizes = False
    fills_slots = False
    exclusive = False
    workers = GATHER_THREADS

    def __init__(self, source: ArraySource, arrays: NativeArrays, loader: Loader) -> None:
        self._source = source
        self._arrays = arrays
        self._loader = loader
        self.ahead = loader.num_workers > 0
        # Memory is pinned only for an accelerator, as in torch.
        self.pins = loader.pin_memory and devices.can_pin()

    def __str__(self) -> str:
        return f"arrays: {self._arrays.name}, {self._gathered()}"

    def parts(self) -> list[SamplePart]:
        gathered = self._gathered()
        return [SamplePart(place, gathered) for place in _places(self._arrays.structure)]

    def _gathered(self) -> str:
        """Says when and by whom rows are gathered."""
        when = "ahead" if self.ahead else "when asked for"
        how = "by torch"
        if extension.load() is not None:
            how = f"by {counted(array_threads(self._loader.num_workers), 'thread')}"
        return f"gathered {when} {how}"

    def open(self, order: EpochOrder | None, handoff: Handoff) -> Iterator[Any]:
        assert order is not None
        source, loader = self._source, self._loader
        if source.last is None or not loader.persistent_workers:
            loader.check_worker_number_rationality()
        if loader.pin_memory and not self.pins:
            warn_unpinned()
        last = source.last
        iterator = ArrayIterator(
            self._arrays,
            loader,
            order,
            source.memory,
            handoff.statistics if handoff.held_by_loop else None,
            pin=self.pins and handoff.pin,
            # torch's persistent iterator draws its base seed once.
            base_seed=last.base_seed if loader.persistent_workers and last is not None else None,
        )
        source.last = Begun(iterator.threads, iterator.base_seed)
        return iterator

    def follow_loop(self, batches: Iterator[Any]) -> None:
        return None
