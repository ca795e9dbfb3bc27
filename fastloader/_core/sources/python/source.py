"""Batches that Python makes, through torch's own iterators."""

from __future__ import annotations

import errno
import functools
import weakref
from collections.abc import Callable, Iterator
from typing import Any

from fastloader._core.batch.augmentation import EpochDraws
from fastloader._core.batch.image_leaves import MadeUnder, made_under_only
from fastloader._core.handoff import Fallback, Handoff, Obstacles, SamplePart
from fastloader._core.machine import devices
from fastloader._core.machine.limits import (
    RAY_ACTORS,
    WORKER_PROCESSES,
    WORKER_THREADS,
    counted,
    out_of_files,
)
from fastloader._core.observation.statistics import LOOP, Figures, Stage, Statistics
from fastloader._core.order.epoch_order import EpochOrder
from fastloader._core.order.loader import Loader, decode_threads_beside
from fastloader._core.pictures.images import ErrorPolicy
from fastloader._core.pictures.in_place import InPlace, ShowingOwn, parts_of
from fastloader._core.pictures.sample_parts import in_place_parts, python_parts
from fastloader._core.sources.encoded.epoch import EncodedPictures, own_code
from fastloader._core.sources.python.arguments import LoaderView
from fastloader._core.sources.python.iterators import (
    ProcessIterator,
    SingleProcessIterator,
    WorkerIterator,
    abandon,
)
from fastloader._core.sources.python.loader_iterator import LoaderIterator
from fastloader._core.sources.python.lookahead import Lookahead, follow_loop
from fastloader._core.sources.python.shared_slots import LoaderSlots
from fastloader._core.sources.python.threads import ThreadIterator
from fastloader.datasets._remote.shard_cache import ShardCache
from fastloader.datasets.mongo import MongoImages
from fastloader.datasets.pictures import Pictures
from fastloader.transforms._normalization import Normalization

# What several of them are called, and one.
_WORKERS = {
    "process": (WORKER_PROCESSES, "worker process"),
    "thread": (WORKER_THREADS, "worker thread"),
    "ray": (RAY_ACTORS, "Ray actor"),
}


class PythonSource(Fallback):
    """Makes batches of every dataset: on the loop's own thread, or in worker processes or threads."""

    def __init__(self, statistics: Statistics, policy: ErrorPolicy) -> None:
        self._statistics = statistics
        self.encoded = EncodedPictures(policy)
        self.slots = LoaderSlots()
        self._iterators: weakref.WeakSet[LoaderIterator] = weakref.WeakSet()
        # What makes the samples in the place of the loader's dataset, in iterators that begin now.
        self._in_place: InPlace | None = None
        # What makes torch's iterator, by worker_backend, if that is not "process".
        self.iterators: dict[str, Callable[[Any, EncodedPictures], LoaderIterator]] = {
            "thread": ThreadIterator
        }
        # Whether the delivery of epochs that begin now copies every tensor of a batch.
        self.copied = False

    def plan(
        self,
        loader: Loader,
        wanted: Normalization | None,
        reason: str = "",
        stand_in: InPlace | None = None,
        normalized: Normalization | None = None,
        obstacles: Callable[[], Obstacles] = lambda: Obstacles(None, "", ""),
    ) -> PythonPlan:
        return PythonPlan(loader, reason, self, stand_in, normalized, obstacles)

    def torch_iterator(self, loader: Loader, in_place: InPlace | None) -> Any:
        """Asks the loader for torch's iterator, which in turn asks `iterator` for it."""
        self._in_place = in_place
        try:
            try:
                return loader._torch_iterator()
            except OSError as error:  # a pipe to a worker that could not be opened
                if error.errno != errno.EMFILE:
                    raise
                raise OSError(errno.EMFILE, f"{error.strerror}{out_of_files()}") from error
            except RuntimeError:
                # Persistent workers that were about to end, or are still at a batch that took too long.
                known = loader._iterator
                if not isinstance(known, WorkerIterator) or not known._resuming:
                    raise
            return loader._torch_iterator()
        finally:
            self._in_place = None

    def iterator(self, loader: Loader) -> LoaderIterator:
        made: LoaderIterator
        seen: Any = loader
        if self._in_place is not None:
            in_place = self._in_place
            seen = LoaderView(
                loader,
                dataset=in_place,
                worker_init_fn=ShowingOwn(in_place, loader.worker_init_fn),
                collate_fn=in_place.collate or loader.collate_fn,
            )
        loader.check_worker_number_rationality()
        if loader.num_workers == 0:
            made = SingleProcessIterator(seen, self.encoded)
        elif loader.worker_backend in self.iterators:
            made = self.iterators[loader.worker_backend](seen, self.encoded)
        else:
            made = self.slots.iterate(
                seen, functools.partial(ProcessIterator, pictures=self.encoded)
            )
        self._iterators.add(made)
        return made

    def drop_ended(self, loader: Loader) -> bool:
        known: Any = loader._iterator  # unless a subclass of the loader has made another kind
        if isinstance(known, LoaderIterator) and not known._home.here:
            # Its persistent workers serve the process that forked this one.
            abandon(known)
            loader._iterator = None
            return False
        if isinstance(known, WorkerIterator):
            if known.serves_again:
                return False
            # Its workers were ended by close(), or by Ctrl-C, which every process of a terminal gets; or
            # its last iter() has failed.
            known.close()
        elif not getattr(known, "_shutdown", False):
            return False
        loader._iterator = None
        return True

    def figures(self, loader: Loader) -> Figures:
        workers = loader.num_workers
        return Figures(
            stages=tuple(self._stages(loader)),
            depth=workers * (loader.prefetch_factor or 2) if workers else None,
        )

    def _stages(self, loader: Loader) -> Iterator[Stage]:
        yield from self.encoded.stages()
        workers = loader.num_workers
        if workers and loader.worker_backend == "process":
            counts = self.slots.counts
            if counts.fetched:
                makers, batches = WORKER_PROCESSES, counts.fetched
                fetched = counts.fetch_s - counts.collate_s
                yield Stage("fetch", fetched, batches, "batch", makers, workers, bound="Python")
                collated = counts.collate_s
                yield Stage("collate", collated, batches, "batch", makers, workers, bound="Python")
            return
        if workers and loader.worker_backend == "ray":  # actors tell of their time
            return
        seconds, count = self._statistics.total("fetch")
        if count:
            where = WORKER_THREADS if workers else LOOP
            threads = max(1, workers)
            yield Stage("fetch", seconds, count, "batch", where, threads, bound="Python")

    def stats(self, loader: Loader) -> dict[str, Any]:
        processes = loader.num_workers > 0 and loader.worker_backend == "process"
        counted: dict[str, Any] = {"workers": self.slots.stats()} if processes else {}
        databases = [each for each in parts_of(loader.dataset) if type(each) is MongoImages]
        if databases:
            totals = [each.counts() for each in databases]
            counted["documents"] = {key: sum(each[key] for each in totals) for key in totals[0]}
        parts = [each for each in parts_of(loader.dataset) if isinstance(each, Pictures)]
        caches = {
            id(each.cache): each.cache for each in parts if isinstance(each.cache, ShardCache)
        }
        if caches:
            totals = [each.counts() for each in caches.values()]
            counted["remote"] = {key: sum(each[key] for each in totals) for key in totals[0]}
        return {**counted, **self.encoded.stats()}

    def begin_epoch(self, refused: str) -> None:
        self.encoded.begin(refused)

    def replay(self, index: int) -> Any | None:
        return self.encoded.replay(index)

    @property
    def makes_encoded(self) -> bool:
        return self.encoded.all_native

    def end_iterators(self) -> None:
        for iterator in list(self._iterators):
            iterator.close()

    def close(self) -> None:
        self.slots.close()


class PythonPlan:
    """One epoch of a `PythonSource`."""

    draws: EpochDraws | None = None
    normalizes = False
    fills_slots = False

    def __init__(
        self,
        loader: Loader,
        reason: str,
        source: PythonSource,
        in_place: InPlace | None,
        normalized: Normalization | None,
        obstacles: Callable[[], Obstacles] = lambda: Obstacles(None, "", ""),
    ) -> None:
        self.normalization = normalized
        self._obstacles = obstacles
        self.made_under: MadeUnder = source.encoded.places.made_under
        if isinstance(in_place, InPlace):  # of pictures, whatever stands in
            self.made_under = made_under_only(in_place.images.form.picture_key)
        self._loader = loader
        self._source = source
        self._in_place = in_place
        self._reason = reason
        self.ahead = loader.num_workers > 0
        self.exclusive = loader.persistent_workers
        self.workers, self._worker = _WORKERS[loader.worker_backend]
        # Memory is pinned only for an accelerator, as in torch.
        self.pins = loader.pin_memory and devices.can_pin()

    def __str__(self) -> str:
        workers, count = "", self._loader.num_workers
        if count:
            workers = f", {counted(count, self._worker)}"
        if self._in_place is not None and self._in_place.native:
            return f"{self._reason}{workers}"
        return f"Python path: {self._reason}{workers}{self._source.encoded.plan_words(count)}"

    def parts(self) -> list[SamplePart]:
        loader, obstacles = self._loader, self._obstacles()
        where = f"in the {self.workers}" if loader.num_workers else f"on {LOOP}"
        if isinstance(self._in_place, InPlace):  # of pictures, whatever stands in
            return in_place_parts(self._in_place, obstacles, where)
        if obstacles.form is not None:
            own = own_code(where)
            return python_parts(obstacles.form, obstacles, own, own, own)
        decoding = counted(decode_threads_beside(loader), "decode thread")
        if loader.num_workers and loader.worker_backend != "thread":
            decoding += " each"
        found = self._source.encoded.parts(where, decoding)
        if found:
            return found
        why = obstacles.pictures
        if not loader._runtime.statistics.batches:  # else no encoded picture was in them
            why = f"{why}; the parts of its samples are known once a batch has come"
        return [SamplePart("", own_code(where), "every part", why)]

    def open(self, order: EpochOrder | None, handoff: Handoff) -> Iterator[Any]:
        self._source.encoded.memory = handoff.memory
        self._source.copied = handoff.copied
        try:
            self._source.encoded.stores = handoff.copied
            return self._opened(handoff.pin)
        finally:  # iterators that torch is asked for in another way have no delivery
            self._source.encoded.stores = False

    def _opened(self, pin: bool) -> Iterator[Any]:
        loader = self._loader
        if pin or not self.pins:
            return self._source.torch_iterator(loader, self._in_place)
        # The source need not pin: the ring is pinned already, or the delivery pins what it normalises.
        # torch's pin thread would copy every batch once more, and take the GIL from the training loop.
        # torch's iterator reads the flag once, when it is made.
        loader.pin_memory = False
        try:
            return self._source.torch_iterator(loader, self._in_place)
        finally:
            loader.pin_memory = True

    def follow_loop(self, batches: Iterator[Any]) -> Lookahead | None:
        return follow_loop(batches)
