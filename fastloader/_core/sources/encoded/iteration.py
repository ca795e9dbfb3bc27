"""What torch's iterators do about pictures that samples left encoded."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from typing import Any

from torch.utils.data import _DatasetKind
from torch.utils.data._utils.worker import _IterableDatasetStopIteration
from torch.utils.data.dataloader import _BaseDataLoaderIter

from fastloader._core.machine import extension
from fastloader._core.observation.statistics import LeftOut
from fastloader._core.order.epoch_order import EpochOrder
from fastloader._core.order.loader import Loader
from fastloader._core.order.position import Position
from fastloader._core.pictures.images import EpochKeys, WorkerSamples, repeats_below
from fastloader._core.sources.encoded.collation import EncodedCollation, KeyedIndex
from fastloader._core.sources.encoded.epoch import EncodedPictures, stop


class DecodingIterator(_BaseDataLoaderIter):
    """Mixed into torch's iterators. Decoding begins when a batch comes from its worker, which may be
    long before the loop asks for it."""

    _position: Position
    _pictures: EncodedPictures  # the loader's
    encoded: Any = None  # an EncodedEpoch; None for torch's own iterator, which a delivery follows
    # A batch whose pictures the loop waits for: Ctrl-C may end the waiting.
    _undelivered: Any = None
    # Ends the decoding with the iterator. The loader keeps the epoch, for replay().
    _dropped: Any = None
    _send_idx = 0  # torch's number of the batch that is asked for next, if several are at a time
    _drawn_by: EpochKeys | None = None  # None without an epoch of the loader's
    _reads_again = False  # whether the epoch first makes again what was received before its state
    # How many samples each worker had made before, if they go on from their own states.
    _before: dict[int, int] | None = None
    _samples: WorkerSamples | None = None  # of an iterable dataset at workers
    _in_processes = False  # whether worker processes make the samples
    _workers_make = False  # whether they make the pictures, too

    def _begin_encoded(self, loader: Loader, making: bool = False) -> Any:
        """Begins an epoch, and returns what collates. ``making``: whether the iterator is being made."""
        collate: Any = None if making else self._collate_fn
        if making:
            # Threads of this process would share the GIL with the loop and with each other.
            in_python = not loader.native or extension.load() is None
            self._workers_make = self._in_processes and in_python
            collate = EncodedCollation(loader.collate_fn, self._workers_make)
        dataset = loader.dataset if making else self._dataset
        self._undelivered = None
        # The epoch must not hold the iterator, which would then live until garbage is collected.
        keys = weakref.WeakMethod(self._epoch_keys)
        self.encoded = self._pictures.epoch(
            loader, keys, dataset, functools.partial(_made, dataset, collate.collate_fn)
        )
        if self._dropped is not None:
            self._dropped.detach()
        # It is held until it is called, and a dataset may hold this iterator.
        self._dropped = weakref.finalize(self, stop, self.encoded.pending)
        self._dropped.atexit = False
        return collate

    def _begin_draws(self, order: EpochOrder, seed: int) -> None:
        super()._begin_draws(order, seed)  # type: ignore[misc]  # of SeedingIterator, which comes behind
        iterable = self._dataset_kind == _DatasetKind.Iterable
        first = order.first_sample
        at_workers = iterable and self._num_workers > 0
        if self._reads_again or at_workers:
            first -= self._position.samples_before()
        before, self._before, self._reads_again = self._before or {}, None, False
        self._drawn_by = EpochKeys(seed, order.may_repeat, first, iterable, before)
        self._samples = WorkerSamples(before) if at_workers else None

    def _begin_again(self) -> None:
        """To be called before an epoch makes again what was received before its state was saved."""
        if self._drawn_by is not None:
            self._drawn_by.first -= self._position.samples_before()

    def _epoch_keys(self) -> EpochKeys:
        if self._drawn_by is None:  # made without iter(loader)
            iterable = self._dataset_kind == _DatasetKind.Iterable
            return EpochKeys(int(self._base_seed), True, 0, iterable, {})
        self._drawn_by.repeats |= repeats_below(self._dataset)
        return self._drawn_by

    def _next_index(self) -> Any:
        index = super()._next_index()
        encoded = self.encoded
        if encoded is not None:  # written out, because it is done for every batch of every dataset
            position = encoded.position
            encoded.asked[self._send_idx] = index, position
            try:
                encoded.position += len(index) if self._auto_collation else 1
            except TypeError:  # the user's own index of a batch
                encoded.position += 1
            if self._workers_make:
                count = encoded.position - position
                return KeyedIndex(index, encoded.keys(), position, count, encoded.wanted)
        return index

    def _note_arrival(self, number: Any, data: Any) -> None:
        """To be called once for what comes from a worker."""
        encoded = self.encoded
        if self._samples is not None and number in encoded.asked:
            mine: Any = self
            index, _position = encoded.asked[number]
            samples = len(index) if self._auto_collation else 1
            encoded.asked[number] = index, self._samples.take(mine._task_info[number][0], samples)
        encoded.begin(number, data)

    def _begin_arrived(self) -> None:
        """Begins to decode the batches that have come, while the loop waits for an earlier one. To be
        called once a batch had an encoded picture."""
        mine: Any = self
        while mine._in_order and mine._tasks_outstanding > 0 and not mine._data_queue.empty():
            came, got = mine._try_get_data(0)
            if not came:
                return
            number, data = got
            mine._tasks_outstanding -= 1
            self._note_arrival(number, data)
            if self._dataset_kind == _DatasetKind.Iterable and isinstance(
                data, _IterableDatasetStopIteration
            ):  # as torch does it
                if self._persistent_workers:
                    mine._workers_status[data.worker_id] = False
                else:
                    mine._mark_worker_as_unavailable(data.worker_id)
                mine._try_put_index()
                continue
            mine._task_info[number] += (data,)

    def _decoded(self, data: Any) -> Any:
        """The batch with its pictures."""
        self._undelivered = data
        try:
            made = self.encoded.finished(data)
        except Exception:
            self._undelivered = None
            raise
        self._undelivered = None
        return made

    def _next_kept(self, left_out: Callable[[], None]) -> Any:
        """torch's next batch of which not every sample was skipped. ``left_out`` counts the others."""
        while True:
            try:
                return _BaseDataLoaderIter.__next__(self)  # which profilers see
            except LeftOut:
                left_out()

    def _stop_decoding(self) -> None:
        """From any thread."""
        if self.encoded is not None:
            self.encoded.stop()


def _made(dataset: Any, collate: Any, index: Any, batched: bool) -> Any:
    """A batch of one sample, or a sample that is not batched."""
    return EncodedCollation(collate)([dataset[index]] if batched else dataset[index])
