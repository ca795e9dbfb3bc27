"""The workers' part of an epoch's state: the states of their datasets, which are restored when a worker
begins and sent with its batches, and the epoch's number for workers that live on."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import pickle
from collections.abc import Callable
from typing import Any

from torch._utils import ExceptionWrapper
from torch.utils.data import dataloader, get_worker_info
from torch.utils.data._utils import worker as worker_module
from torch.utils.data._utils.pin_memory import pin_memory

from fastloader._core.order.generators import begin_anew, is_stateful, restore
from fastloader._core.sources.python.naming import name_sample
from fastloader.errors import Error

_STOP = worker_module._IterableDatasetStopIteration


@dataclasses.dataclass(frozen=True)
class AskingForState:
    """An index batch on its way to a worker that is to send the state after it. Whether it will be
    wanted is not known a batch ahead. But a dataset that merely has methods of these names must not pay
    for each batch."""

    index: Any


@dataclasses.dataclass(frozen=True)
class Ended(_STOP):
    """A worker's message that its dataset has ended, in the place of torch's object."""

    state: bytes | None


@dataclasses.dataclass
class Reported:
    """A batch, or the error in its place as torch wraps it, with the state in which the worker's dataset
    was after it, if that was wanted."""

    batch: Any
    worker: int
    state: bytes | None

    def pin_memory(self) -> Reported:
        return dataclasses.replace(self, batch=pin_memory(self.batch))


class StatefulWorker:
    """A worker_init_fn that calls the user's, then restores the worker's dataset and reports its state.
    The order is that of torchdata's StatefulDataLoader: dataset, ``iter(dataset)``, iterator."""

    def __init__(
        self,
        given: Callable[[int], None] | None,
        states: dict[str, Any],
        resuming: bool,
    ) -> None:
        self._given = given
        self._states = states
        self._resuming = resuming
        self._restored = False  # whether the dataset's own state was loaded for the last epoch

    def __call__(self, worker: int) -> None:
        if self._given is not None:
            self._given(worker)
        # torch's worker loop looks create_fetcher up here for every epoch. Only this worker runs in this
        # process.
        kinds: Any = dataloader._DatasetKind
        kinds.create_fetcher = staticmethod(
            functools.partial(self._create_fetcher, worker, kinds.create_fetcher)
        )

    def _create_fetcher(
        self, worker: int, create: Callable[..., Any], kind: Any, dataset: Any, *rest: Any
    ) -> Any:
        saved = self._states.pop(str(worker), {"dataset": None, "iterator": None, "ended": False})
        if not self._resuming and saved["dataset"] is None and is_stateful(dataset):
            # The state is of the end of an epoch, of a dataset that is its own iterator.
            saved = {"dataset": saved["iterator"], "iterator": None}
        if self._restored:
            begin_anew(dataset)
        self._restored = saved["dataset"] is not None
        if self._restored:
            restore(dataset, saved["dataset"], self._resuming)
        fetcher = create(kind, dataset, *rest)
        iterator: Any = getattr(fetcher, "dataset_iter", None)
        if self._resuming and saved["iterator"] is not None:
            iterator.load_state_dict(saved["iterator"])
        # The last batch, a smaller one, had run into the end of the data, which some datasets forget.
        if self._resuming and saved.get("ended"):
            fetcher.ended = True
        samples = saved.get("samples", 0) if self._resuming else 0
        self._resuming = False
        own = iterator is dataset
        reporter = _Reporter(
            worker,
            fetcher,
            dataset if is_stateful(dataset) and not own else None,
            iterator if is_stateful(iterator) else None,
            samples,
        )
        fetcher.fetch = reporter.fetch
        worker_module.__dict__[_STOP.__name__] = reporter.ended if reporter.has_state else _STOP
        return fetcher


class _Reporter:
    """Fetches an epoch's batches in a worker. It takes the dataset's state after each batch, after an
    error in the place of one, and at the end."""

    def __init__(
        self, worker: int, fetcher: Any, dataset: Any, iterator: Any, samples: int
    ) -> None:
        self._worker = worker
        self._fetcher = fetcher
        self._fetch: Callable[[Any], Any] = fetcher.fetch
        self._parts = {"dataset": dataset, "iterator": iterator}
        self.has_state = dataset is not None or iterator is not None
        self._samples = samples  # asked for in the epoch
        self._over = False
        self._last: bytes | None = None  # the state at the end

    def fetch(self, index: Any) -> Any:
        wanted = type(index) is AskingForState
        if wanted:
            index = index.index
        if not self.has_state:
            return self._fetch(index)
        if self._over:
            raise StopIteration
        self._samples += len(index) if isinstance(index, list) else 1
        try:
            batch = self._fetch(index)
        except StopIteration:
            self._over = True
            if wanted:
                # Taken here, where a failure becomes an error in a batch's place. torch calls `ended`
                # where nothing catches a failure, and the worker would die of it.
                self._last = self._state("at the end of its data")
            raise
        except Exception as error:
            name_sample(error)
            return self._failed(wanted)
        return Reported(batch, self._worker, self._state("behind a batch") if wanted else None)

    def _failed(self, wanted: bool) -> Reported:
        """Reports an error. The dataset is past it, and so is a loader that goes on from this state."""
        # Wrapped as by torch's worker loop, which would not send a state along.
        error = ExceptionWrapper(where=f"in DataLoader worker process {self._worker}")
        state = None
        if wanted:
            # Only the first error is reported. Without a state the dataset is read again up to here.
            with contextlib.suppress(Exception):
                state = self._state("behind an error")
        return Reported(error, self._worker, state)

    def ended(self, worker: int) -> Any:
        return Ended(worker, self._last)

    def _state(self, when: str) -> bytes:
        # Pickled at once and by value, because the queue pickles later: the dataset would have changed
        # by then what it gave, and the queue would put its tensors into memory that both processes
        # share.
        ended = getattr(self._fetcher, "ended", False)
        state: dict[str, Any] = {"ended": ended, "samples": self._samples}
        for name, part in self._parts.items():
            try:
                state[name] = None if part is None else part.state_dict()
            except Exception as error:
                raise Error(
                    f"state_dict() of the {_PARTS[name]} in worker {self._worker} failed {when}: "
                    f"{type(error).__name__}: {error}"
                ) from error
        try:
            return pickle.dumps(state)
        except Exception as error:
            raise Error(
                f"the state of the dataset in worker {self._worker} cannot be pickled, so that "
                f"state_dict() could not save it: {type(error).__name__}: {error}"
            ) from error


_PARTS = {"dataset": "dataset", "iterator": "dataset's iterator"}


class EpochForWorker:
    """Tells a worker's dataset the epoch when it is unpickled in the worker, and becomes None. torch
    sends it before the worker calls ``iter(dataset)`` for the epoch. A live worker can be told in no
    other way."""

    def __init__(self, epoch: int) -> None:
        self._epoch = epoch

    def __reduce__(self) -> Any:
        return _enter_epoch, (self._epoch,)


def _enter_epoch(epoch: int) -> None:
    info = get_worker_info()
    assert info is not None
    info.dataset.set_epoch(epoch)  # type: ignore[attr-defined]
