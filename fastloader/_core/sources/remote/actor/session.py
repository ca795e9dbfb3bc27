"""One worker of a loader in an actor: it makes the batches that a worker process would make."""

from __future__ import annotations

import dataclasses
import os
import pickle
import random
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch._utils import ExceptionWrapper
from torch.utils.data import dataloader
from torch.utils.data._utils import worker as torch_worker

from fastloader._core.sources.python.naming import name_sample
from fastloader._core.sources.remote.actor.parcel import Parcel, packed
from fastloader._core.sources.remote.actor.pictures import RemotePictures

_STOP = torch_worker._IterableDatasetStopIteration


@dataclasses.dataclass
class Setup:
    """What torch gives to each of its workers. ``stateless``: whether a batch depends on its index batch
    alone, so that any worker may make it."""

    kind: int
    dataset: Any
    auto_collation: bool
    collate_fn: Callable[[Any], Any]
    drop_last: bool
    base_seed: int
    init_fn: Callable[[int], None] | None
    workers: int
    stateless: bool = False


@dataclasses.dataclass
class Beginning:
    """Where a worker begins. ``worker``: its number. ``state``: of its generators; None for that of its
    seed. ``resumed``: the message that began the epoch, if that is not the first of persistent workers.
    ``again``: pickled index batches of this epoch, and how often each, whose batches are made again and
    not sent: an iterable dataset, and one with a state, comes to where it was in no other way."""

    worker: int
    state: bytes | None = None
    resumed: bytes | None = None
    again: Sequence[tuple[bytes, int]] = ()


class Session:
    """Does as torch's _worker_loop, one call at a time. Several workers may live in one actor, where
    each has its own dataset and its own state of the global generators.

    ``node``: the name of the node, for messages."""

    _seated: Session | None = None  # whose the global generators and the worker info are

    def __init__(self, node: str, beginning: Beginning, load: Callable[[], Setup]) -> None:
        self._node = node
        self._worker = beginning.worker
        self._ended = False
        self._state: bytes | None = None
        self._failed: ExceptionWrapper | None = None
        # torch's function that makes a fetcher, or what the worker_init_fn has put in its place.
        kinds: Any = dataloader._DatasetKind
        self._create = torchs = kinds.__dict__["create_fetcher"]
        try:
            self._setup = setup = load()
            if type(setup.dataset) is RemotePictures:
                setup.dataset.wrap = self._wrapped
            self._sit_down()
            torch.set_num_threads(1)
            self._seed(setup)
            info = {"id": self._worker, "num_workers": setup.workers, "dataset": setup.dataset}
            self._info = torch_worker.WorkerInfo(seed=setup.base_seed + self._worker, **info)
            torch_worker._worker_info = self._info
            if setup.init_fn is not None:
                setup.init_fn(self._worker)
            self._create = kinds.__dict__["create_fetcher"]
            self._fetcher = self._made_fetcher()
            if beginning.state is not None:
                _restore(beginning.state)
            if beginning.resumed is not None:
                self._resume(beginning.resumed)
            for message, times in beginning.again:
                for _ in range(times):
                    self._make_again(message)
        except Exception:
            self._failed = self._wrapped()
        finally:
            kinds.create_fetcher = torchs

    def _seed(self, setup: Setup) -> None:
        seed = setup.base_seed + self._worker
        random.seed(seed)
        torch.manual_seed(seed)
        np.random.seed(torch_worker._generate_state(setup.base_seed, self._worker))

    def _sit_down(self) -> None:
        """Puts this worker's generators in the place of another one's."""
        before = Session._seated
        if before is self:
            return
        if before is not None:
            before._state = _states()
        Session._seated = self
        if self._state is not None:
            _restore(self._state)
            torch_worker._worker_info = self._info

    def leave(self) -> None:
        """Tells that the session is over."""
        if Session._seated is self:
            Session._seated = None

    def _made_fetcher(self) -> Any:
        """A fetcher, which a worker_init_fn of ours makes in torch's place. That also changes how
        torch's worker loop tells that the data have ended."""
        setup, names = self._setup, torch_worker.__dict__
        create: Any = self._create
        create = create.__func__ if isinstance(create, staticmethod) else create
        arguments = (setup.auto_collation, setup.collate_fn, setup.drop_last)
        try:
            return create(setup.kind, setup.dataset, *arguments)
        finally:
            self._stop = names[_STOP.__name__]
            torch_worker._IterableDatasetStopIteration = _STOP  # type: ignore[misc]

    # --- the calls ---------------------------------------------------------------------------------

    def resume(self, message: bytes) -> Parcel:
        """Begins the next epoch of a persistent worker. The parcel has the state before that."""
        begun = time.perf_counter()
        self._sit_down()
        state = None if self._failed is not None or self._setup.stateless else _states()
        try:
            if self._failed is None:
                self._resume(message)
        except Exception:
            self._failed = self._wrapped()
        return Parcel(b"", [], [], [], state, time.perf_counter() - begun, time.time())

    def _resume(self, message: bytes) -> None:
        pickle.loads(message)  # which tells the dataset the epoch
        self._ended = False
        self._fetcher = self._made_fetcher()

    def make(self, message: bytes) -> Parcel:
        """Makes the batch of a pickled index batch. An error takes its place."""
        begun = time.perf_counter()
        self._sit_down()
        if self._ended:
            return Parcel(b"", [], [], [], None, 0.0, time.time())
        try:
            made = packed(self._fetched(message))
        except Exception:
            made = packed(self._wrapped())
        stateless = self._failed is not None or self._setup.stateless
        state = None if stateless else _states()
        return Parcel(*made, state, time.perf_counter() - begun, time.time())

    def _fetched(self, message: bytes) -> Any:
        if self._failed is not None:
            return self._failed
        index = pickle.loads(message)
        try:
            return self._fetcher.fetch(index)
        except StopIteration:
            if self._setup.kind != dataloader._DatasetKind.Iterable:
                raise
            self._ended = True
            return self._stop(self._worker)

    def _make_again(self, message: bytes) -> None:
        try:
            if not self._ended:
                self._fetched(message)
        except Exception:
            pass  # it was raised in the place of that batch, too

    def _wrapped(self) -> ExceptionWrapper:
        """The error that is being handled, with the node where it was raised."""
        error = sys.exc_info()[1]
        name_sample(error)
        where = f"in Ray actor {self._worker} on node {self._node}"
        return ExceptionWrapper(where=where + lacking(error, self._node))


def lacking(error: BaseException | None, node: str) -> str:
    """What to do about a file that a node does not have; empty for another error."""
    while error is not None and not isinstance(error, FileNotFoundError):
        error = error.__cause__
    if error is None or error.filename is None:
        return ""
    path = os.fsdecode(error.filename) if isinstance(error.filename, str | bytes) else ""
    if not path:
        return ""
    if not os.path.isabs(path):
        return (
            f" (node {node} has no {path!r}, and actors run in other folders than the trainer: give the "
            "dataset an absolute path)"
        )
    return (
        f" (node {node} has no {path!r}: put the data where all nodes have it under the same path, or "
        "choose the nodes that have it by ray_options={'resources': ...})"
    )


def _states() -> bytes:
    """The states of the global generators."""
    return pickle.dumps(
        (random.getstate(), torch.get_rng_state().numpy(), np.random.get_state()), protocol=5
    )


def _restore(states: bytes) -> None:
    of_python, of_torch, of_numpy = pickle.loads(states)
    random.setstate(of_python)
    torch.set_rng_state(torch.from_numpy(of_torch.copy()))
    np.random.set_state(of_numpy)
