"""One pass of a loader over its sampler."""

from __future__ import annotations

import collections
import copy
import pickle
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch

from fastloader._core.order.states.generators import GeneratorStates
from fastloader._core.order.states.loader_state import LoaderState
from fastloader.errors import Error

if TYPE_CHECKING:
    from fastloader._core.batch.augmentation.augmentation import EpochDraws


class Progress:
    """One pass over the sampler: what was drawn from it and how much of that the user has received.

    The outermost iterator of a path calls, in its ``__next__``, `check` first, then `delivered` when it
    returns a batch or raises in a batch's place, and `end` when it raises StopIteration. Index batches
    may be drawn on another thread; a deque is all that the two share.
    """

    def __init__(self, epoch: int, saved: LoaderState | None, endless: bool) -> None:
        self.epoch = epoch
        self.saved = saved  # the state to go on from
        self.endless = endless  # an iterable dataset, whose sampler knows no end
        self.batches: int = saved["batches"] if saved else 0
        self.before: int = saved["samples"] if saved else 0  # samples received before this pass
        self.samples = 0  # received in this pass
        self.in_order = True
        # Without order: index batches at the workers by torch's number, whose keys a state holds, and
        # the numbers that came and are not yet received.
        self.outstanding: dict[int, Any] | None = None
        self.arrivals: collections.deque[int] = collections.deque()
        # Index batches that the state's epoch had drawn and not received. They come first; with order
        # one leaves when it is received, without when it is drawn.
        self.missing: collections.deque[Any] = collections.deque(
            (saved.get("missing") or ()) if saved else ()
        )
        self.batches -= len(self.missing)
        self.first: Any = saved["first"] if saved else None
        self.last: Any = saved["last"] if saved else None
        self.base_seed: int | None = None
        self.sampler_state: Any = saved["sampler_state"] if saved else None
        self.first_sampler_state: Any = None  # before anything was drawn
        self.order_epoch: int | None = None  # of a DistributedSampler, which the user sets
        self.randomness: GeneratorStates | None = None
        # (samples, last key) of index batches drawn and not yet received, and states of the sampler
        self.drawn: collections.deque[tuple[int, Any]] = collections.deque()
        self.sampler_states: collections.deque[Any] = collections.deque()
        self.exhausted = False
        self.finished = False
        self.stale = ""  # why its iterator must not go on
        self.counted = True  # by the iterator that the user has
        # Of erasing and mixing, and the number of theirs that the loop gets next.
        self.draws: EpochDraws | None = None
        self.next_draw = 0
        # (worker, its dataset's state) of batches that are not yet received. A state is pickled when it
        # is taken; None: it was not asked for.
        self.reports: collections.deque[tuple[int | None, bytes | None]] = collections.deque()
        self.workers: dict[str, Any] = dict(saved["workers"]) if saved else {}
        self.workers_began = True  # with this pass; else they have lived through earlier ones
        self.unreported: set[str] = set()  # workers that gave a batch without, and none since
        self.next_worker: int = saved["next_worker"] if saved else 0
        # The last states of workers whose dataset has ended.
        self.ended: dict[str, bytes | None] = {}
        # Of an iterable dataset in this process: torch's fetcher, and the iterator if it has a state.
        self.fetcher: Any = None
        self.dataset_iterator: Any = None

    def augment(self, draws: EpochDraws | None) -> None:
        if draws is not None:
            self.draws, self.next_draw = draws, draws.delivered

    def take_seed(self, drawn: int) -> int:
        """The epoch's base seed: the one just drawn, or that of the state."""
        if self.base_seed is None:
            self.base_seed = drawn
        return self.base_seed

    def untouched(self) -> LoaderState | None:
        """The state that it goes on from, if nothing was drawn since."""
        return self.saved if self.randomness is None else None

    def sampler_raised(self) -> None:
        """The sampler raised: that takes a batch's place."""
        self.drawn.append((0, self.last))
        if self.sampler_states:
            self.sampler_states.append(self.sampler_states[-1])
        elif self.sampler_state is not None:
            self.sampler_states.append(self.sampler_state)

    def check(self) -> None:
        if self.stale:
            raise Error(self.stale)

    def delivered(self) -> None:
        self.batches += 1
        self.samples += self._forget_oldest()
        if self.draws is not None:
            self.next_draw = self.draws.delivered

    def read_again(self) -> None:
        """A batch was made once more that had been received when the state was saved."""
        self._forget_oldest()

    def received(self) -> dict[str, Any]:
        """Of a state: how much of the order is behind it, and which index batches are not."""
        counted: dict[str, Any] = {
            "batches": self.batches,
            "samples": self.before + self.samples,
            "last": self.last,
            "sampler_state": self.sampler_state,
        }
        missing = [*self.missing]
        if self.outstanding is not None:
            # As if all that was drawn had been received: what was not is few, and named.
            missing = [keys for _, keys in sorted(self.outstanding.items())] + missing
            for samples, last in self.drawn:
                counted["batches"] += 1
                counted["samples"] += samples
                counted["last"] = last
            if self.sampler_states:
                counted["sampler_state"] = self.sampler_states[-1]
        counted["batches"] += len(self.missing)
        if missing:
            counted["missing"] = as_given(missing)
        return counted

    def _forget_oldest(self) -> int:
        """How many samples it had."""
        samples = 0
        if self.outstanding is None and self.missing:
            self.missing.popleft()
        if self.arrivals and self.outstanding is not None:
            self.outstanding.pop(self.arrivals.popleft(), None)
        if self.drawn:
            samples, self.last = self.drawn.popleft()
        if self.sampler_states:
            self.sampler_state = self.sampler_states.popleft()
        if self.reports:
            worker, report = self.reports.popleft()
            if worker is not None:
                self._told(str(worker), report)
                self.next_worker = worker + 1
        return samples

    def _told(self, worker: str, report: bytes | None) -> None:
        if report is None:
            self.unreported.add(worker)
        else:
            self.unreported.discard(worker)
            self.workers[worker] = report

    def worker_states(self) -> dict[str, Any]:
        """Of the datasets in the workers, behind the batches that were received."""
        return {
            worker: pickle.loads(state) if isinstance(state, bytes) else copy.deepcopy(state)
            for worker, state in self.workers.items()
        }

    def end(self) -> None:
        # An iterator that was closed early stops as well.
        self.finished = self.endless or (self.exhausted and not self.drawn)
        if self.finished:
            for worker, report in self.ended.items():
                self._told(worker, report)


class MissingFirst(Iterator[Any]):
    """``indices`` behind those that a state's epoch had drawn and not received. The first one is drawn
    before, which notes what the order came from; an error that this raises keeps its place as well."""

    def __init__(self, progress: Progress, indices: Iterator[Any]) -> None:
        self._progress = progress
        self._indices = indices
        self._missing = collections.deque(progress.missing)
        self._begun = False
        self._first: list[Any] = []
        self._error: Exception | None = None
        # What was noted of the first draw.
        self._drawn: list[tuple[int, Any]] = []
        self._states: list[Any] = []

    def __next__(self) -> Any:
        if not self._begun:
            self._begun = True
            self._draw_first()
        progress = self._progress
        if self._missing:
            if not progress.in_order:
                progress.missing.popleft()
            progress.drawn.append((0, progress.last))  # the sampler is past it
            if self._states:
                progress.sampler_states.append(progress.sampler_state)
            return self._missing.popleft()
        progress.drawn.extend(self._drawn)
        progress.sampler_states.extend(self._states)
        self._drawn, self._states = [], []
        if self._error is not None:
            error, self._error = self._error, None
            raise error
        return self._first.pop() if self._first else next(self._indices)

    def _draw_first(self) -> None:
        progress = self._progress
        drawn, states = progress.drawn, progress.sampler_states
        try:
            self._first = [next(self._indices)]
        except StopIteration:
            pass
        except Exception as error:
            self._error = error
        # Nothing was drawn before in this pass.
        self._drawn, self._states = list(drawn), list(states)
        drawn.clear()
        states.clear()


def at_end(saved: LoaderState, lives_on: bool) -> LoaderState:
    """The state that would have been saved, had the epoch of this one ended there. ``lives_on``: so
    do the workers."""
    augmentation = saved.get("augmentation")
    return {
        **saved,
        "augmentation": augmentation and {**augmentation, "seed": None, "batch": 0},
        "epoch": saved["epoch"] + 1,
        "begun": False,
        "base_seed": saved["base_seed"] if lives_on else None,
        "workers": saved["workers"] if lives_on else {},
        "order_epoch": None,
        "iterator_state": None,
        "ended": False,
        "read_again": False,
        "missing": [],
    }


def as_given(keys: Any) -> Any:
    """A copy of keys, to hold in a state: of the same types and values, since a dataset may tell a
    tensor from a number or a tuple from a list. Of a tensor it has the part that is the key:
    ``copy.deepcopy`` would take all of the tensor that it is a view of."""
    kind = type(keys)
    if kind in (int, str):
        return keys
    if kind in (list, tuple):
        return kind(as_given(key) for key in keys)
    if kind is torch.Tensor:
        return keys.clone()
    return copy.deepcopy(keys)
