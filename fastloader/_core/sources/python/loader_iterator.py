"""What each iterator of torch's does over a `FastLoader`: it draws what an epoch is drawn by, begins to
decode the pictures that samples left encoded, and counts for ``state_dict``."""

from __future__ import annotations

import functools
import time
import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch.utils.data import _DatasetKind, dataloader, default_collate
from torch.utils.data._utils.pin_memory import pin_memory
from torch.utils.data._utils.worker import _IterableDatasetStopIteration

from fastloader._core.batch.layout import opened
from fastloader._core.machine import devices, extension
from fastloader._core.machine.eager import eager
from fastloader._core.machine.process import HomeProcess, ProcessLock
from fastloader._core.observation import trace
from fastloader._core.observation.statistics import (
    LeftOut,
    Statistics,
    closed_meanwhile,
    is_closed_meanwhile,
)
from fastloader._core.order.epoch_order import EpochOrder
from fastloader._core.order.generators import is_stateful
from fastloader._core.order.loader import Loader, collation_of, decode_threads_beside
from fastloader._core.order.position import Position
from fastloader._core.order.progress import Progress
from fastloader._core.pictures.images import CropSeeds, EpochKeys, WorkerSamples, repeats_below
from fastloader._core.pictures.in_place import InPlace, RowPictures
from fastloader._core.sources.encoded.asked import KeyedIndex
from fastloader._core.sources.encoded.batch import EncodedBatch
from fastloader._core.sources.encoded.collation import EncodedCollation, puts_off
from fastloader._core.sources.encoded.epoch import EncodedPictures, stop
from fastloader._core.sources.python.arguments import LoaderView
from fastloader._core.sources.python.stateful import EpochForWorker
from fastloader.datasets.joint import fetching
from fastloader.errors import Error
from fastloader.transforms._job import Decode

_next = dataloader._BaseDataLoaderIter.__next__


class LoaderIterator(dataloader._BaseDataLoaderIter):
    """An epoch of a `FastLoader` by one of torch's iterators. It stands between torch's class and the
    base of that in the order of resolution, so that it can exchange sampler, collate_fn and seed before
    worker processes are started with them.

    Subclasses call `_note_arrival` for what comes from a worker, and `_deliver` for what goes to the
    loop. They add to `_draw_index`.
    """

    _dataset: Any
    # Of pictures that samples left encoded. None until the epoch has begun, which may fail.
    encoded: Any = None
    _pictures: EncodedPictures
    # A batch whose pictures the loop waits for: Ctrl-C may end the waiting.
    _undelivered: Any = None
    # Ends the decoding with the iterator. The loader keeps the epoch, for replay().
    _dropped: Any = None
    _in_order = True  # torch 2.5 and older know of nothing else
    _send_idx = 0  # torch's number of the batch that is asked for next, if several are at a time
    _drawn: Any = None  # what the sampler gave last
    _seeds: CropSeeds | None = None  # of the epoch, if an `InPlace` makes the samples
    _keys: EpochKeys | None = None  # None without an epoch of the loader's
    _reads_again = False  # whether the epoch first makes again what was received before its state
    # How many samples each worker had made before, if they go on from their own states.
    _before: dict[int, int] | None = None
    _samples: WorkerSamples | None = None  # of an iterable dataset at workers
    _in_processes = False  # whether worker processes make the samples
    _workers_make = False  # whether they make the pictures, too
    _lays_out = False  # whether the loader's `Layout` collates
    _token = _puts_off = ""  # of the `EncodedCollation`
    _keys_go_along = False  # whether what makes the samples gets the keys of their draws
    _notes_arrivals = False  # whether it notes which batch came, if that need not be the next one

    def __init__(self, loader: Loader) -> None:
        self._home = HomeProcess()
        self._lays_out = loader._runtime.layout is not None
        self._position: Position = loader._runtime.position
        self._statistics: Statistics = loader._runtime.statistics
        self.progress: Progress | None = None  # set on the iterator that the user gets
        self._closed = False
        # Guards a batch on its way to the loop: of several threads that call next(), each gets other
        # batches. close() does not take it.
        self._calls = ProcessLock()
        # Whether what next() raised last took a batch's place. A sampler's error does, too.
        self._filled_place = True
        # Index batches come from the position, whatever a subclass of the loader says.
        indices = devices.UsersOwn(self._position)
        collate_fn = self._begin_pictures(loader, making=True)
        seen: Any = LoaderView(loader, _index_sampler=indices, collate_fn=collate_fn)
        with devices.for_draws(loader.generator):  # for the draw of the seed
            super().__init__(seen)
        self._index_sampler: Any = self._position
        # Profilers know it by the name of torch's class.
        torchs = next(kind for kind in type(self).__mro__ if kind.__module__ == dataloader.__name__)
        self._profile_name = f"enumerate(DataLoader)#{torchs.__name__}.__next__"
        self._pass = self._begun_pass()
        self._base_seed = self._pass.take_seed(int(self._base_seed))
        if loader.num_workers == 0:  # others are reset
            self._begin_draws(loader)
        # torch calls iter(dataset) next, and a dataset may restore the global generator there.
        self._restoring = (
            loader.num_workers == 0
            and self._position.iterable
            and self._position.users_generator is not None
            and is_stateful(self._position.dataset)
        )
        if self._restoring:
            torch.set_rng_state(self._position.users_generator)

    def _reset(self, loader: Loader, first_iter: bool = False) -> None:
        if not first_iter:
            self._begin_pictures(loader)
        super()._reset(loader, first_iter)
        self._pass = self._begun_pass()
        self._pass.take_seed(int(self._base_seed))
        self._begin_draws(loader)
        self._pass.in_order = self._in_order
        if self._notes_arrivals and not self._pass.in_order and not self._position.iterable:
            self._pass.outstanding = {}
        if not first_iter and self._position.announces and hasattr(self._dataset, "set_epoch"):
            # Sent as the seed, which is the first thing that live workers are sent in an epoch.
            self._shared_seed = EpochForWorker(self._pass.epoch)

    def _begun_pass(self) -> Progress:
        position = self._position
        if position.current is None or not position.beginning:  # made without iter(loader)
            return Progress(position.epoch, None, position.iterable)
        return position.current

    def _begin_pictures(self, loader: Loader, making: bool = False) -> Any:
        """Begins an epoch, and returns what collates. ``making``: whether the iterator is being made."""
        collate: Any = None if making else self._collate_fn
        if making:
            # Threads of this process would share the GIL with the loop and with each other.
            in_python = not loader.native or extension.load() is None
            self._workers_make = self._in_processes and in_python
            native = None
            collate_fn = collation_of(loader)
            if not in_python and collate_fn is not default_collate:
                decode = Decode(loader.decode, loader.truncated)
                native = decode_threads_beside(loader), decode
            self._keys_go_along = self._workers_make or collate_fn is not default_collate
            collate = EncodedCollation(
                collate_fn,
                self._workers_make,
                native,
                loader.on_error,
                noted=isinstance(loader.dataset, RowPictures),
                batched=loader._auto_collation,
                normalizes=loader._runtime.normalization is not None,
            )
            collate.stores = self._pictures.stores
            self._token, self._puts_off = collate.token, collate.puts_off
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

    def _begin_draws(self, loader: Loader) -> None:
        """Begins what the loader draws in an epoch. To be called once in each, when torch's seed is
        drawn and no index is."""
        if not self._position.beginning:  # made without iter(loader)
            return
        order = EpochOrder(self._position, loader)
        seed = order.epoch_seed(int(self._base_seed))
        if isinstance(self._dataset, InPlace):
            self._seeds = self._dataset.begin_epoch(order, seed)
        iterable = self._dataset_kind == _DatasetKind.Iterable
        first = order.first_sample
        at_workers = iterable and self._num_workers > 0
        if self._reads_again or at_workers:
            first -= self._position.samples_before()
        before, self._before, self._reads_again = self._before or {}, None, False
        self._keys = EpochKeys(seed, order.may_repeat, first, iterable, before)
        self._samples = WorkerSamples(before) if at_workers else None

    def _begin_again(self) -> None:
        """To be called before an epoch makes again what was received before its state was saved."""
        if self._keys is not None:
            self._keys.first -= self._position.samples_before()

    def _epoch_keys(self) -> EpochKeys:
        if self._keys is None:  # made without iter(loader)
            iterable = self._dataset_kind == _DatasetKind.Iterable
            return EpochKeys(int(self._base_seed), True, 0, iterable, {})
        self._keys.repeats |= repeats_below(self._dataset)
        return self._keys

    def _next_index(self) -> Any:
        return self._draw_index()

    def _draw_index(self) -> Any:
        """Draws an index batch, and adds what its samples are drawn by."""
        self._drawn = index = super()._next_index()
        if self._seeds is not None:
            index = self._seeds.with_seeds(index, len(self._dataset), self._auto_collation)
        encoded = self.encoded  # written out, because it is done for every batch of every dataset
        position = encoded.position
        encoded.asked[self._send_idx] = index, position
        try:
            encoded.position += len(index) if self._auto_collation else 1
        except TypeError:  # the user's own index of a batch
            encoded.position += 1
        if self._keys_go_along and self._seeds is None:
            count = encoded.position - position
            token = self._token
            keyed = KeyedIndex(index, encoded.keys(), position, count, encoded.wanted, token)
            index = keyed if self._num_workers else keyed.arrived(self._dataset)
        if not self._num_workers:  # this thread fetches, next
            fetching.under_way = self._puts_off
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

    def _deliver(self, data: Any) -> Any:
        """Returns what the loop gets of a batch that has come: the batch with its pictures."""
        self._undelivered = data
        try:
            made = self.encoded.finished(data)
            late = type(data) is EncodedBatch and bool(data.columns)
            if self.progress is not None and self._lays_out:
                made, late = opened(made), True
            if late and self._pin_memory:  # torch had no tensor to pin
                made = pin_memory(made)
        except Exception:
            self._undelivered = None
            raise
        self._undelivered = None
        return made

    @eager
    def __next__(self) -> Any:
        progress = self.progress
        if progress is not None and progress.unsettled:
            progress.check()
        if self._closed:
            raise StopIteration
        if progress is None:  # another iterator takes the batch further, and counts
            return self._pass_on()
        with self._calls.lock:
            return self._next_counted(progress)

    def _next_counted(self, progress: Progress) -> Any:
        """Gives the loop its next batch, and counts it."""
        statistics = self._statistics
        start = time.perf_counter()
        first = statistics.begin_wait(start, progress)
        ended = False
        try:
            batch = self._next_kept(progress.delivered)
            if self._closed:
                raise closed_meanwhile()
        except Exception as error:
            if self._closed:
                if is_closed_meanwhile(error):
                    raise
                raise closed_meanwhile() from error
            ended = isinstance(error, StopIteration)
            if ended:
                progress.end()
                raise
            statistics.errors += 1
            if self._filled_place:
                progress.delivered(came=False)
            raise
        finally:
            now = time.perf_counter()
            statistics.end_wait(now, progress, now - start, first, ended)
            if trace.active is not None:
                trace.add("wait", start, now)
        progress.delivered()
        statistics.batches += 1
        return batch

    def _next_kept(self, left_out: Callable[[], None]) -> Any:
        """Returns torch's next batch of which not every sample was skipped. ``left_out`` counts the
        others."""
        while True:
            try:
                return _next(self)  # which profilers see
            except LeftOut:
                left_out()

    def _pass_on(self) -> Any:
        """Does as torch's ``__next__``, but opens no range without a profiler. A range costs a third of
        what a small batch costs. The iterator that takes the batch further warns of wrong lengths."""
        if devices.is_profiling() or self._IterableDataset_len_called is not None:
            # Profiles have one wait of that name for a batch: the loop's.
            self._profile_name = "fastloader#batch"
            return _next(self)
        batch: Any = self._next_data()
        self._num_yielded += 1
        return batch

    def _fast_forward(self) -> None:
        """Reads again what lies before the state, because the dataset does not have a state, or its
        workers were not asked for theirs."""
        for number in range(self._pass.batches):
            try:
                _next(self)
            except StopIteration:
                raise Error(
                    f"the dataset ended after {number} batches, the state was saved after "
                    f"{self._pass.batches}"
                ) from None
            except Exception:
                pass  # it was raised in the place of a batch then, too
            self._pass.read_again()

    def close(self) -> None:
        """Ends the epoch early, from any thread. Further calls of ``next()`` raise StopIteration, and a
        call that is under way raises Error."""
        self._closed = True
        self._stop_decoding()

    def _stop_decoding(self) -> None:
        """From any thread."""
        if self.encoded is not None:
            self.encoded.stop()


def _made(dataset: Any, collate: Any, index: Any, batched: bool) -> Any:
    """A batch of one sample, or a sample that is not batched."""
    collation = EncodedCollation(collate)
    fetching.under_way = puts_off(collate, batched)
    try:
        sample = dataset[index]
    finally:
        fetching.under_way = ""
    return collation([sample] if batched else sample)
