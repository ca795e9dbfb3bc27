"""torch's own iterator over workers that live in Ray's actors."""

from __future__ import annotations

import threading
from typing import Any

from fastloader._core.machine import devices
from fastloader._core.order.loader import Loader
from fastloader._core.sources.python.loader_view import LoaderView
from fastloader._core.sources.python.torch_iterators import MultiProcessIterator
from fastloader._core.sources.python.worker_arguments import named_arguments
from fastloader._core.sources.remote.actor.pictures import PictureBatch, RemotePictures
from fastloader._core.sources.remote.actor.session import Setup
from fastloader._core.sources.remote.crew import Crew
from fastloader._core.sources.remote.worker import Worker


class RayIterator(MultiProcessIterator):
    """torch's iterator over workers, of which each lives in an actor. torch's own bookkeeping decides
    what is asked of which worker and when, as with worker processes."""

    _own_processes = False

    def __init__(self, loader: Loader, crew: Crew) -> None:
        self._crew = crew
        self._lend(loader)
        seen: Any = LoaderView(loader, multiprocessing_context=_Context(crew))
        super().__init__(seen)

    def _reset(self, loader: Loader, first_iter: bool = False) -> None:
        self._lend(loader)
        super()._reset(loader, first_iter)

    def _lend(self, loader: Loader) -> None:
        """Leaves batches in Ray's memory until they are copied, if they are copied anyway."""
        pins = loader.pin_memory and devices.can_pin()
        self._crew.lends = loader._runtime.python.copied or pins

    def _decoded(self, data: Any) -> Any:
        if type(data) is not PictureBatch:
            return super()._decoded(data)
        self._undelivered = data
        pictures: RemotePictures = self._dataset
        try:
            made = pictures.received(data)
        except Exception:
            self._undelivered = None
            raise
        self._undelivered = None
        return made


class _Context:
    """Stands in the place of the multiprocessing module. torch asks it for the queue of the results, and
    for each worker for a queue of index batches and then for a process."""

    Event = threading.Event

    def __init__(self, crew: Crew) -> None:
        self._crew = crew
        self._results: _Results | None = None

    def Queue(self) -> Any:
        if self._results is None:
            self._results = _Results(self._crew)
            return self._results
        return _Indices(self._crew)

    def Process(self, target: Any, args: tuple[Any, ...]) -> Worker:
        """``target`` is torch's _worker_loop."""
        given = named_arguments(target, args)
        setup = Setup(
            kind=given["dataset_kind"],
            dataset=given["dataset"],
            auto_collation=given["auto_collation"],
            collate_fn=given["collate_fn"],
            drop_last=given["drop_last"],
            base_seed=given["base_seed"],
            init_fn=given["init_fn"],
            workers=given["num_workers"],
        )
        worker = self._crew.worker(setup, given["worker_id"])
        given["index_queue"].worker = worker
        return worker


class _Queue:
    """The methods that torch calls on multiprocessing's queues. There is no feeder thread."""

    def __init__(self, crew: Crew) -> None:
        self._crew = crew

    def cancel_join_thread(self) -> None:
        pass

    def close(self) -> None:
        pass


class _Results(_Queue):
    """What the workers send."""

    def get(self, timeout: float | None = None) -> Any:
        return self._crew.get(timeout)

    def put(self, item: Any) -> None:
        self._crew.put(item)

    def qsize(self) -> int:
        return self._crew.qsize()

    def empty(self) -> bool:
        return self._crew.qsize() == 0


class _Indices(_Queue):
    """What one worker is asked for."""

    worker: Worker

    def put(self, item: Any) -> None:
        if item is None:
            self._crew.end(self.worker)
        else:
            self._crew.ask(self.worker, item)
