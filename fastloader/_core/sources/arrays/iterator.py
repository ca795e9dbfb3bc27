"""One epoch over a dataset of arrays: batches gathered by native threads, not collated."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch.utils.data import default_collate
from torch.utils.data.dataloader import _BaseDataLoaderIter

from fastloader._core.handoff import DEFAULT_DEPTH
from fastloader._core.machine import devices, extension
from fastloader._core.machine import devices as default_device
from fastloader._core.machine.limits import available_threads
from fastloader._core.observation.statistics import LoopIterator, Statistics
from fastloader._core.order.epoch_order import EpochOrder
from fastloader._core.order.loader import Loader
from fastloader._core.sources.arrays.indices import as_indices, index_batches
from fastloader._core.sources.arrays.memory import ArrayMemory
from fastloader._core.sources.arrays.recognize import NativeArrays

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
            base_seed = default_device.drawn_seed(loader.generator)
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
    """``num_workers`` threads or, without, as many as torch's own operations use, caller included."""
    return workers or max(1, min(available_threads(), torch.get_num_threads()))
