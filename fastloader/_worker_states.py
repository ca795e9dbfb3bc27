"""States of datasets in worker processes: restored when a worker begins, and sent with its batches."""

from __future__ import annotations

import dataclasses
import functools
import pickle
from collections.abc import Callable
from typing import Any

from torch.utils.data import dataloader
from torch.utils.data._utils import worker as worker_module
from torch.utils.data._utils.pin_memory import pin_memory

from fastloader._stateful import is_stateful
from fastloader.errors import Error

_STOP = worker_module._IterableDatasetStopIteration


@dataclasses.dataclass(frozen=True)
class AskingForState:
    """What a worker is sent for an index batch whose state is wanted. Nobody knows a batch ahead whether
    it will be; but a dataset that merely has methods of these names shall not pay for each batch."""

    index: Any


@dataclasses.dataclass(frozen=True)
class Ended(_STOP):
    """What a worker sends instead of torch's object when its dataset ends."""

    state: bytes | None


@dataclasses.dataclass
class Reported:
    """A batch, and the state, if it was wanted, that its worker's dataset was in behind it."""

    batch: Any
    worker: int
    state: bytes | None

    def pin_memory(self) -> Reported:
        return dataclasses.replace(self, batch=pin_memory(self.batch))


class StatefulWorker:
    """A worker_init_fn: the user's, and then restores the worker's dataset and reports its state. In
    the order of torchdata's StatefulDataLoader: dataset, ``iter(dataset)``, iterator."""

    def __init__(
        self,
        given: Callable[[int], None] | None,
        states: dict[str, Any],
        resuming: bool,
    ) -> None:
        self._given = given
        self._states = states
        self._resuming = resuming

    def __call__(self, worker: int) -> None:
        if self._given is not None:
            self._given(worker)
        # torch's worker loop looks it up here for every epoch. This process is the worker's own.
        kinds: Any = dataloader._DatasetKind
        kinds.create_fetcher = staticmethod(
            functools.partial(self._create_fetcher, worker, kinds.create_fetcher)
        )

    def _create_fetcher(
        self, worker: int, create: Callable[..., Any], kind: Any, dataset: Any, *rest: Any
    ) -> Any:
        saved = self._states.pop(str(worker), {"dataset": None, "iterator": None})
        if not self._resuming and saved["dataset"] is None and is_stateful(dataset):
            # The end of an epoch of a dataset that is its own iterator.
            saved = {"dataset": saved["iterator"], "iterator": None}
        if saved["dataset"] is not None:
            dataset.load_state_dict(saved["dataset"])
        fetcher = create(kind, dataset, *rest)
        iterator: Any = getattr(fetcher, "dataset_iter", None)
        if self._resuming and saved["iterator"] is not None:
            iterator.load_state_dict(saved["iterator"])
        self._resuming = False
        own = iterator is dataset
        reporter = _Reporter(
            worker,
            fetcher.fetch,
            dataset if is_stateful(dataset) and not own else None,
            iterator if is_stateful(iterator) else None,
        )
        fetcher.fetch = reporter.fetch
        worker_module.__dict__[_STOP.__name__] = reporter.ended if reporter.has_state else _STOP
        return fetcher


class _Reporter:
    """Fetches an epoch's batches in a worker."""

    def __init__(
        self, worker: int, fetch: Callable[[Any], Any], dataset: Any, iterator: Any
    ) -> None:
        self._worker = worker
        self._fetch = fetch
        self._parts = {"dataset": dataset, "iterator": iterator}
        self.has_state = dataset is not None or iterator is not None
        self._wanted = False  # of the batch that was asked for last

    def fetch(self, index: Any) -> Any:
        self._wanted = type(index) is AskingForState
        batch = self._fetch(index.index if self._wanted else index)
        return Reported(batch, self._worker, self._state()) if self.has_state else batch

    def ended(self, worker: int) -> Any:
        return Ended(worker, self._state())

    def _state(self) -> bytes | None:
        if not self._wanted:
            return None
        # At once and by value: the queue pickles later, when the dataset has gone on changing what it
        # gave, and would put its tensors into memory that both processes share.
        state = {
            name: None if part is None else part.state_dict() for name, part in self._parts.items()
        }
        try:
            return pickle.dumps(state)
        except Exception as error:
            raise Error(
                f"the state of the dataset in worker {self._worker} cannot be pickled, so that "
                f"state_dict() could not save it: {type(error).__name__}: {error}"
            ) from error
