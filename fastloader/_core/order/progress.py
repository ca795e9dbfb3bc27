"""Follows one pass of a loader over its sampler, and makes the content of ``state_dict()``."""

from __future__ import annotations

import collections
import copy
import pickle
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Protocol, TypedDict

import torch

from fastloader._core.order.generators import GeneratorStates
from fastloader.errors import Error

if TYPE_CHECKING:
    from fastloader._core.batch.augmentation import EpochDraws


# ---- The content of a loader's ``state_dict()``.


class _Always(TypedDict):
    fastloader: int  # the version of the format
    sampler: str  # its name; it must be this loader's when the state is loaded
    epoch: int
    begun: bool  # whether the state is from the middle of that epoch
    generators: list[Any]  # states of the loader's and the sampler's own generators
    run_seed: int | None
    base_seed: int | None  # of workers
    epoch_seed: int | None  # of what the loader draws
    num_workers: int
    batch_size: int | None
    workers: dict[str, Any]  # the state of each worker's dataset, by the worker's number
    sampler_state: Any
    dataset_state: Any
    iterator_state: Any  # the state of the dataset's iterator
    augmentation: dict[str, Any] | None


class LoaderState(_Always, total=False):
    # These must be this loader's when the state is loaded, as far as they are known.
    dataset_length: int
    sampler_length: int
    sampler_seed: int
    shuffle: bool

    # These are there in the middle of an epoch.
    batches: int  # the number of batches received
    samples: int  # in these batches; with samplers that ranks share, those of all ranks
    first: Any  # the keys of the first batch and of the last one
    last: Any
    missing: list[Any]  # with in_order=False, the keys in flight
    randomness: Any  # states of the generators before the order was drawn
    next_worker: int
    order_epoch: int | None  # the epoch of a sampler that ranks share
    ended: bool  # whether the last batch has run into the dataset's end
    read_again: bool  # whether the workers read their datasets from the beginning


# ---- One pass of a loader over its sampler.


_SHORTLY = 5.0  # seconds for which a rank waits for the others at its second batch


class Account(Protocol):
    """Counts what the loop has received of a pass: see `audit.Tally`."""

    drawn: collections.deque[Any]

    def watch(self, iterator: Any) -> None: ...

    def receive(self, keys: Any, came: bool) -> None: ...

    def end(self) -> None: ...

    def leave(self) -> None: ...

    def forget(self) -> None: ...


class Progress:
    """One pass over the sampler: what was drawn from it, and how much of that the loop has received.

    The iterator that the loop holds makes three calls in its ``__next__``: `check` first, `delivered`
    when it returns a batch or raises in a batch's place, and `end` when it raises StopIteration.
    Another thread may draw index batches, but not the first one, which is then drawn within ``iter()``
    and notes what a state says of the whole pass. The other thread appends to deques, from which the
    loop's thread takes. It sets `exhausted`, which the loop's thread reads once the end has come to it.
    """

    def __init__(self, epoch: int, saved: LoaderState | None, endless: bool) -> None:
        self.epoch = epoch
        self.saved = saved  # the state from which it goes on
        self.endless = endless  # whether the dataset is iterable: its sampler then has no end
        self.batches: int = saved["batches"] if saved else 0
        self.before: int = saved["samples"] if saved else 0  # samples received before this pass
        self.samples = 0  # received in this pass
        self.in_order = True
        # With in_order=False: the index batches at the workers by torch's number, whose keys a state
        # holds, and the numbers of batches that came and are not received yet.
        self.outstanding: dict[int, Any] | None = None
        self.arrivals: collections.deque[int] = collections.deque()
        # Index batches that the state's epoch had drawn and not received. They come first. One leaves
        # when it is received or, with in_order=False, when it is drawn.
        self.missing: collections.deque[Any] = collections.deque(
            (saved.get("missing") or ()) if saved else ()
        )
        self.batches -= len(self.missing)
        self.first: Any = saved["first"] if saved else None
        self.last: Any = saved["last"] if saved else None
        self.base_seed: int | None = None  # which torch's workers are given
        # Of what the loader draws. Persistent workers keep their seed, and each epoch has another one.
        self.epoch_seed: int | None = None
        self.sampler_state: Any = saved["sampler_state"] if saved else None
        self.first_sampler_state: Any = None  # the sampler's state before anything was drawn
        self.order_epoch: int | None = None  # of a DistributedSampler, which the user sets
        self.randomness: GeneratorStates | None = None
        # (samples, last key) of index batches drawn and not received yet, and the sampler's states.
        self.drawn: collections.deque[tuple[int, Any]] = collections.deque()
        self.sampler_states: collections.deque[Any] = collections.deque()
        self.exhausted = False
        self.finished = False
        self.stale = ""  # why its iterator must not go on
        # What makes it an epoch for all ranks, if they count alike: called with the seconds to wait for
        # them when a second batch is asked for, or at the end. None from then on.
        self.turn: Callable[[float | None], bool] | None = None
        self._unmet: Callable[[float | None], bool] | None = None  # the same, if some have not come
        self.account: Account | None = None  # of what was received, if somebody audits it
        self.counted = True  # whether the iterator that the loop holds counts its batches
        # What is erased and mixed, and how many samples were drawn before the loop's next batch.
        self.draws: EpochDraws | None = None
        self.next_draw = 0
        # (worker, its dataset's state) of batches that are not received yet. A state is pickled when it
        # is taken, and is None if it was not asked for.
        self.reports: collections.deque[tuple[int | None, bytes | None]] = collections.deque()
        self.workers: dict[str, Any] = dict(saved["workers"]) if saved else {}
        self.workers_began = True  # whether they began with this pass, not an earlier one
        self.unreported: set[str] = set()  # workers whose last batch came without a state
        self.next_worker: int = saved["next_worker"] if saved else 0
        # The last states of workers whose dataset has ended.
        self.ended: dict[str, bytes | None] = {}
        # For an iterable dataset in this process: torch's fetcher, and the iterator if it has a state.
        self.fetcher: Any = None
        self.dataset_iterator: Any = None
        self._begun = self.batches

    def augment(self, draws: EpochDraws | None) -> None:
        if draws is not None:
            self.draws, self.next_draw = draws, draws.delivered

    def take_seed(self, drawn: int) -> int:
        """Returns the epoch's base seed: the one just drawn, or the one of the state."""
        if self.base_seed is None:
            self.base_seed = drawn
        return self.base_seed

    def untouched(self) -> LoaderState | None:
        """Returns the state from which the pass goes on, if nothing was drawn since."""
        return self.saved if self.randomness is None else None

    def sampler_raised(self) -> None:
        """Notes that the sampler raised, which takes a batch's place."""
        self.drawn.append((0, self.last))
        if self.sampler_states:
            self.sampler_states.append(self.sampler_states[-1])
        elif self.sampler_state is not None:
            self.sampler_states.append(self.sampler_state)

    @property
    def unsettled(self) -> bool:
        """Whether `check` has anything to do."""
        return bool(self.stale) or self.turn is not None or self._unmet is not None

    def check(self) -> None:
        if self.stale:
            raise Error(self.stale)
        if self.batches > self._begun:
            if self.turn is not None:
                # No longer: the others may wait for this rank, in an operation of all ranks behind
                # their first batch, and this pass may be of this rank alone.
                self._meet(self.turn, _SHORTLY)
            elif self._unmet is not None:
                self._meet(self._unmet, 0.0)

    def count(self) -> None:
        """Counts the pass as an epoch, at its end, and waits for the other ranks.

        Raises:
            Error: if another rank is in another epoch. It then goes no further.
        """
        turn = self.turn or self._unmet
        if turn is not None:
            self._meet(turn, None)

    def _meet(self, turn: Callable[[float | None], bool], seconds: float | None) -> None:
        try:
            met = turn(seconds)
        except Error as error:
            self.turn, self._unmet, self.stale = None, None, str(error)
            if self.account is not None:
                self.account.forget()
            raise
        self.turn, self._unmet = None, None if met else turn

    def delivered(self, came: bool = True) -> None:
        """Counts a batch as received. ``came``: False if an error came in its place."""
        self.batches += 1
        self.samples += self._forget_oldest(came)
        if self.draws is not None:
            self.next_draw = self.draws.delivered

    def read_again(self) -> None:
        """Notes that a batch was made again that had been received when the state was saved."""
        self._forget_oldest()

    def received(self) -> dict[str, Any]:
        """Returns the part of a state that says how much of the order was received, and which index
        batches of that were not."""
        counted: dict[str, Any] = {
            "batches": self.batches,
            "samples": self.before + self.samples,
            "last": self.last,
            "sampler_state": self.sampler_state,
        }
        missing = [*self.missing]
        if self.outstanding is not None:
            # All that was drawn counts as received. What was not received is little, and is named.
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

    def _forget_oldest(self, came: bool = True) -> int:
        """Forgets the oldest batch that was not received, and returns how many samples it had."""
        samples, keys = 0, None
        if self.outstanding is None and self.missing:
            self.missing.popleft()
        if self.arrivals and self.outstanding is not None:
            keys = self.outstanding.pop(self.arrivals.popleft(), None)
        if self.account is not None:
            self.account.receive(keys, came)
        if self.drawn:
            samples, self.last = self.drawn.popleft()
        if self.sampler_states:
            self.sampler_state = self.sampler_states.popleft()
        if self.reports:
            worker, report = self.reports.popleft()
            if worker is not None:
                self._note_report(str(worker), report)
                self.next_worker = worker + 1
        return samples

    def _note_report(self, worker: str, report: bytes | None) -> None:
        if report is None:
            self.unreported.add(worker)
        else:
            self.unreported.discard(worker)
            self.workers[worker] = report

    def worker_states(self) -> dict[str, Any]:
        """Returns the states of the workers' datasets after the batches that were received."""
        return {
            worker: pickle.loads(state) if isinstance(state, bytes) else copy.deepcopy(state)
            for worker, state in self.workers.items()
        }

    def end(self) -> None:
        # The pass need not be finished: an iterator that was closed early stops as well.
        self.finished = self.endless or (self.exhausted and not self.drawn)
        if self.finished:
            for worker, report in self.ended.items():
                self._note_report(worker, report)
            self.count()
            if self.account is not None:
                self.account.end()


class MissingFirst(Iterator[Any]):
    """Gives the index batches that a state's epoch had drawn and not received, and then ``indices``. It
    draws the first of ``indices`` before it gives a missing one, because that draw notes the states of
    the generators. If that draw raises, the error keeps its place as well."""

    def __init__(self, progress: Progress, indices: Iterator[Any]) -> None:
        self._progress = progress
        self._indices = indices
        self._missing = collections.deque(progress.missing)
        self._begun = False
        self._first: list[Any] = []
        self._error: Exception | None = None
        # What the first draw noted.
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
            progress.drawn.append((0, progress.last))  # without samples: the sampler is past it
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
        # All of it is of the first draw, because nothing was drawn before in this pass.
        self._drawn, self._states = list(drawn), list(states)
        drawn.clear()
        states.clear()


def at_end(saved: LoaderState, lives_on: bool) -> LoaderState:
    """Returns the state that would have been saved if the epoch of ``saved`` had ended there.
    ``lives_on``: whether the workers live on."""
    augmentation = saved.get("augmentation")
    return {
        **saved,
        "augmentation": augmentation and {**augmentation, "seed": None, "samples": 0},
        "epoch": saved["epoch"] + 1,
        "begun": False,
        "base_seed": saved["base_seed"] if lives_on else None,
        "epoch_seed": saved["epoch_seed"] if lives_on else None,
        "workers": saved["workers"] if lives_on else {},
        "order_epoch": None,
        "iterator_state": None,
        "ended": False,
        "read_again": False,
        "missing": [],
    }


def as_given(keys: Any) -> Any:
    """Copies keys, to hold them in a state. The copy has the same types and values, because a dataset
    may tell a tensor from a number, or a tuple from a list. A tensor is cloned, because
    ``copy.deepcopy`` would copy the whole tensor of which it is a view."""
    kind = type(keys)
    if kind in (int, str):
        return keys
    if kind in (list, tuple):
        return kind(as_given(key) for key in keys)
    if kind is torch.Tensor:
        return keys.clone()
    return copy.deepcopy(keys)
