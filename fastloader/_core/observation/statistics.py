"""Counts what a loader does, for ``loader.stats()`` and ``loader.report()``."""

from __future__ import annotations

import dataclasses
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

import torch

from fastloader._core.machine import devices
from fastloader._core.machine.eager import eager
from fastloader._core.machine.process import HomeProcess, ProcessLock
from fastloader._core.observation import trace
from fastloader._core.observation.headspace import Measured
from fastloader._core.order.progress import Progress
from fastloader.errors import Error

if TYPE_CHECKING:
    from fastloader._core.order.progress import Progress


# ---- The loop's last waits and steps, one by one.


# Limited, so that a loop of days keeps 140 kB of them at most.
ROOM = 1000


class Step(NamedTuple):
    """One batch of the loop. ``wait_s``: the seconds that the loop waited for it. ``step_s``: the
    seconds from then to the call for the next batch; None if none was asked for yet, or ever. ``first``:
    whether it is the first batch of its epoch."""

    wait_s: float
    step_s: float | None
    first: bool


class RecentSteps:
    """A record of the last waits, for which ``next()`` pays one append."""

    def __init__(self) -> None:
        # (seconds of the step before, seconds waited, first of its epoch, end of its epoch)
        self.waits: deque[tuple[float, float, bool, bool]] = deque(maxlen=ROOM)

    def steps(self) -> tuple[Step, ...]:
        """Returns the batches of the record, the oldest first. Any thread may ask while the loop goes
        on."""
        waits = list(self.waits.copy())
        made = []
        for (_, waited, first, ended), (step_s, _, next_first, _) in zip(
            waits, [*waits[1:], _NONE]
        ):
            if not ended:  # what was waited at an epoch's end was for no batch
                made.append(Step(waited, None if next_first else step_s, first))
        return tuple(made)


_NONE = (0.0, 0.0, True, False)


# ---- The error of a ``next()`` during which the loader is closed.


_CLOSED = (
    "the loader was closed while next() was waiting for a batch, by another thread or by a call from "
    "inside the data set: the epoch is over, call iter() on the loader to begin a new one"
)


def closed_meanwhile() -> Error:
    """Makes the error of a ``next()`` that was under way. A later call raises StopIteration."""
    return Error(_CLOSED)


def is_closed_meanwhile(error: BaseException | None) -> bool:
    return type(error) is Error and error.args == (_CLOSED,)


# ---- Counters behind ``loader.stats()`` and ``loader.report()``.


_log = logging.getLogger("fastloader")

# Off only to measure the cost of it, in benchmarks/observation.py. The native module reads it, too.
TIMED = os.environ.get("FASTLOADER_STAGE_TIMES") != "0"


class LeftOut(Exception):
    """Raised in the place of a batch of which every sample was skipped. The iterator that the loop holds
    counts it and goes on with the next batch."""


@dataclasses.dataclass
class Statistics:
    """The counters of one loader. Plain numbers are enough, because only the training loop's thread
    writes them. ``spent`` has an entry for each thread that adds to it."""

    batches: int = 0
    errors: int = 0
    wait_s: float = 0.0
    edge_wait_s: float = 0.0  # the part of wait_s for each epoch's first batch and its end
    between: int = 0  # how many waits were neither of these two
    step_s: float = 0.0  # the seconds between a batch and the call for the next one
    steps: int = 0  # how many steps those were
    asked: int = 0  # how often the loop asked for a batch
    found: int = 0  # how many batches were ready then, in all
    spent: dict[tuple[str, int], tuple[float, int]] = dataclasses.field(default_factory=dict)
    recent: RecentSteps = dataclasses.field(default_factory=RecentSteps)
    _step: float = 0.0  # the seconds of the step that ended last
    _left: float = 0.0  # when the loop got its last batch; 0 outside of an epoch
    _of: object = None  # that epoch's object; held so that no other object gets its address

    def waiting(self, iterator: Waiter) -> Waiting:
        return Waiting(self, iterator)

    def copied(self) -> Statistics:
        """Copies the counters as they are now. The record of recent steps is shared, and goes on."""
        return dataclasses.replace(self, spent=dict(self.spent), _of=None)

    def add_time(self, stage: str, seconds: float) -> None:
        """Notes that ``stage`` took the calling thread so many ``seconds`` for one batch."""
        key = stage, threading.get_ident()
        before, count = self.spent.get(key, (0.0, 0))
        self.spent[key] = before + seconds, count + 1

    def total(self, stage: str) -> tuple[float, int]:
        """Returns (seconds, batches) of a stage over all threads."""
        each = [spent for (name, _), spent in list(self.spent.items()) if name == stage]
        return sum(seconds for seconds, _ in each), sum(count for _, count in each)

    def note_ready(self, ready: int) -> None:
        """Notes that the loop asks for a batch, and that ``ready`` batches are ready."""
        self.asked += 1
        self.found += ready

    def begin_wait(self, now: float, epoch: object) -> bool:
        """Begins to count a wait, and returns whether it is the first call of its epoch."""
        first = not self._left or self._of is not epoch
        if not first:
            self._step = now - self._left
            self.step_s += self._step
            self.steps += 1
        return first

    def end_wait(self, now: float, epoch: object, waited: float, first: bool, ended: bool) -> None:
        self.wait_s += waited
        if first or ended:
            self.edge_wait_s += waited
        else:
            self.between += 1
        self.recent.waits.append((self._step, waited, first, ended))
        self._left = 0.0 if ended else now
        self._of = epoch


class Waiter(Protocol):
    """An iterator as `Waiting` sees it."""

    progress: Progress | None  # None unless the loop holds this iterator
    _closed: bool  # set by close(), on any thread
    _filled_place: bool  # whether what next() raised last took a batch's place


class Waiting:
    """Goes around what an iterator does in ``next()``: ``with statistics.waiting(iterator):``. It counts
    the seconds inside as time that the training loop waited, and an exception other than the end of the
    epoch as an error. It tells the iterator's progress what became of the batch.

    It also makes `close` mean the same for every iterator that a loop holds: a later ``next()`` raises
    StopIteration, and one that is under way raises one Error, whatever it ran into.

    This is a class, because contextlib's generator would turn a StopIteration into a RuntimeError."""

    def __init__(self, statistics: Statistics, iterator: Waiter) -> None:
        self._statistics = statistics
        self._iterator = iterator
        self._progress = iterator.progress
        self._start = 0.0
        self._first = False
        self._range: Any = None

    def __enter__(self) -> None:
        if self._progress is not None:
            self._progress.check()  # raises if another epoch has ended this one
        if self._iterator._closed:
            raise StopIteration
        # By the name that tools search a profile for: that of torch's own wait.
        name = f"enumerate(DataLoader)#{type(self._iterator).__name__}.__next__"
        self._range = devices.open_range(name)
        self._start = time.perf_counter()
        self._first = self._statistics.begin_wait(self._start, self._progress)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        now = time.perf_counter()
        ended = kind is not None and issubclass(kind, StopIteration)
        # Ctrl-C and its like keep their place: only an Exception gives way to the error of `close`.
        closed = self._iterator._closed and (kind is None or issubclass(kind, Exception))
        self._statistics.end_wait(now, self._progress, now - self._start, self._first, ended)
        if trace.active is not None:
            trace.add("wait", self._start, now)
        if self._range is not None:
            self._range.__exit__(None, None, None)
        if closed or (kind is not None and not ended and kind is not LeftOut):
            self._statistics.errors += 1
        if closed and not is_closed_meanwhile(error):
            # A StopIteration is no cause to show: it is how the thread that waited was woken.
            raise closed_meanwhile() from None if ended else error
        if self._progress is not None:
            if kind is None or (issubclass(kind, Exception) and not ended):
                if kind is None or self._iterator._filled_place:
                    self._progress.delivered(came=kind is None)
            elif kind is StopIteration:
                self._progress.end()
                counted = self._statistics
                text = (
                    "fastloader: an epoch has ended: %d batches, %.2f s of waiting, in all so far"
                )
                _log.debug(text, counted.batches, counted.wait_s)


LOOP = "the training loop's thread"
PER_PROCESSOR = "one for each processor of this process"  # what num_workers="auto" begins with

# What a loop is short of while it waits for a stage: reading ("storage"), decoding, the dataset's own
# code ("Python"), or moving bytes, which native threads do ("gather") or others ("copy"). On a cluster:
# the actors, whatever they do ("remote workers"), or what lies between them and the loop ("network").
Bound = Literal["storage", "decode", "Python", "gather", "copy", "remote workers", "network"]


# What one of several is called. The loop's own thread and the device are one always.
_ONE = {
    "decode threads": "1 decode thread",
    "gather threads": "1 gather thread",
    "worker processes": "1 worker process",
    "worker threads": "1 worker thread",
    "Ray actors": "1 Ray actor",
}


@dataclasses.dataclass(frozen=True)
class Stage:
    """One stage of the way of a batch. It took ``seconds`` of thread time, summed over ``threads`` (0:
    the device), for ``count`` pictures or batches, as ``unit`` says. ``where`` names the threads that
    work. ``bound``: what `judge` says if the loop waits for these threads; None if they do no work."""

    name: str
    seconds: float
    count: int
    unit: str
    where: str
    threads: int = 1
    bound: Bound | None = dataclasses.field(kw_only=True)

    @property
    def each_ms(self) -> float:
        """Computes the milliseconds for one picture or batch."""
        return 1000 * self.seconds / self.count if self.count else 0.0

    @property
    def by(self) -> str:
        """The workers, in words: "4 decode threads"."""
        if self.threads > 1:
            return f"{self.threads} {self.where}"
        return _ONE.get(self.where, self.where)

    def as_dict(self) -> dict[str, Any]:
        """Returns what ``stats()["stages"]`` has."""
        shown = dataclasses.asdict(self)
        del shown["bound"]
        return {**shown, "each_ms": self.each_ms}


@dataclasses.dataclass(frozen=True)
class Figures:
    """The figures of one source, or of one delivery, since the loader was made.

    ``threads``: how many own threads make batches. ``depth``: how many batches are made ahead at most.
    ``ahead``: whether batches are made ahead of the loop even without workers, as many as depth="auto"
    says. ``packed``: whether the pictures lie in one file. ``workers``: what num_workers="auto" has come
    to. ``ring``: the native ring's counters, as ``stats()["ring"]`` has them."""

    stages: tuple[Stage, ...] = ()
    threads: int | None = None
    depth: int | None = None
    ahead: bool = False
    bytes_read: int = 0
    bad_samples: int = 0
    packed: bool = False
    workers: AutoChoice | None = None
    ring: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def joined(self, other: Figures) -> Figures:
        """Joins the figures of both, if a batch passes this one first. Where both know something, this
        one counts."""
        return Figures(
            stages=(*self.stages, *other.stages),
            threads=other.threads if self.threads is None else self.threads,
            depth=other.depth if self.depth is None else self.depth,
            ahead=self.ahead or other.ahead,
            bytes_read=self.bytes_read + other.bytes_read,
            bad_samples=self.bad_samples + other.bad_samples,
            packed=self.packed or other.packed,
            workers=self.workers or other.workers,
            ring=self.ring or other.ring,
        )


@dataclasses.dataclass(frozen=True)
class AutoChoice:
    """The choice of an "auto" argument, and the reason."""

    chosen: int | None  # None if there is nothing to choose
    why: str

    def as_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


@dataclasses.dataclass(frozen=True)
class Observation:
    """One loader as `judge` and `make_report` see it: plain values, and ``describe``.

    ``statistics``: a copy of the loader's counters. ``figures``: those of its source and its delivery,
    joined, with the stages in the order of a sample's way. ``workers``: the argument ``num_workers``.
    ``ahead``: whether batches are made before the loop asks for them. ``path``: as ``stats()["path"]``
    has it. ``normalizes``: whether the loader normalises images. ``auto``: the choices, by the name of
    the argument that was "auto". ``describe``: gives the first line of the loader's ``plan()``, and is
    called only if the advice needs it. ``parts``: gives the other lines, for a report."""

    statistics: Statistics
    figures: Figures
    workers: int
    worker_backend: str
    ahead: bool
    path: str
    device: torch.device | None
    normalizes: bool
    auto: Mapping[str, AutoChoice]
    headspace: Measured | None
    describe: Callable[[], str]
    parts: Callable[[], Sequence[str]] = tuple

    @property
    def on_accelerator(self) -> bool:
        return self.device is not None and self.device.type != "cpu"

    @property
    def depth(self) -> int | None:
        """How many batches are made ahead at most; None if none are."""
        ring = self.figures.ring
        return int(ring["depth"]) if ring else self.figures.depth

    @property
    def fixed_workers(self) -> bool:
        """Whether ``num_workers`` is a number that the user has chosen, and may change."""
        return "num_workers" not in self.auto

    @property
    def looped_s(self) -> float:
        """The seconds of the loop's steps and of its waiting between them."""
        statistics = self.statistics
        return statistics.wait_s - statistics.edge_wait_s + statistics.step_s

    @property
    def seconds(self) -> float:
        """The seconds in which the loop took batches, with the first and the last waits of epochs."""
        return self.looped_s + self.statistics.edge_wait_s

    @property
    def steps_per_s(self) -> float | None:
        """The loop's steps per second with this loader; None before it was measured."""
        steps, looped = self.statistics.steps, self.looped_s
        return steps / looped if looped > 0 and steps else None

    @property
    def to_win(self) -> float | None:
        """How much faster the loop would be if data were free: 0.25 is a quarter more steps per second.
        None unless `free_steps_per_s` is known."""
        free = self.free_steps_per_s
        if self.steps_per_s is None or free is None:
            return None
        return max(0.0, free / self.steps_per_s - 1)

    @property
    def free_steps_per_s(self) -> float | None:
        """Returns the loop's steps per second if data were free. None unless ``loader.headspace()`` has
        measured five steps: what fewer take is chance, and the first ones of a process take long."""
        measured = self.headspace
        return None if measured is None or measured.steps < 5 else measured.steps_per_s

    @property
    def wait_share(self) -> float | None:
        """The share of the loop's time that it waited; None before the second batch of an epoch."""
        statistics = self.statistics
        if self.looped_s <= 0 or not statistics.between:
            return None
        return (statistics.wait_s - statistics.edge_wait_s) / self.looped_s


# ---- An iterator over batches that a training loop may hold.


class LoopIterator(Iterator[Any]):
    """Base class of our iterators, each of which makes a batch in its `_next`. It does what is the same
    for all: the process to which an iterator belongs, the loop's clock, what `close` means, and the
    progress that `state_dict` reads.

    A subclass that waits in ``next()`` may also have a method ``leave()``. The delivery calls it on any
    thread when it takes no more batches: a ``next()`` that waits then soon raises StopIteration. In a
    forked child ``next()`` raises before `_next` is called, unless `_check` is overridden by a subclass
    that has nothing ahead.

    ``statistics`` is None if another iterator takes the batches further and counts them."""

    progress: Progress | None = None  # set by the loader on the iterator that it hands out
    _closed = False  # set by close(), on any thread
    _opens = False  # whether `_next_opened` makes the batches for the loop
    _filled_place = True  # whether what next() raised last took a batch's place

    def __init__(self, statistics: Statistics | None) -> None:
        self._home = HomeProcess()
        self._statistics = statistics
        # Guards a batch on its way out of `_next`: of several threads that call next(), each gets other
        # batches. close() does not take it, and wakes the thread that holds it.
        self._calls = ProcessLock()

    @eager
    def __next__(self) -> Any:
        self._check()
        statistics = self._statistics
        if statistics is None:
            if self._closed:
                raise StopIteration
            return self._next()
        with self._calls.lock:
            while True:
                try:
                    with statistics.waiting(self):
                        batch = self._next_opened() if self._opens else self._next()
                except LeftOut:
                    continue
                statistics.batches += 1
                return batch

    def _check(self) -> None:
        """Raises what refuses ``next()``, before anything is counted or lost."""
        self._home.check()

    def _next_opened(self) -> Any:
        """Makes the next batch and opens it for the loop, in an iterator that does."""
        return self._next()

    def _next(self) -> Any:
        """Makes the next batch. What it raises takes its place, unless `_filled_place` says otherwise.

        Ctrl-C may come in every line, and the next call then gives the same batch: an index batch, and
        what was made of it, must be kept until the last line before the return.

        Raises:
            StopIteration: at the end of the epoch.
            LeftOut: in the place of a batch of which every sample was skipped.
        """
        raise NotImplementedError

    def close(self) -> None:
        """Ends the epoch early, from any thread. Further calls of ``next()`` raise StopIteration, and a
        call that is under way raises Error."""
        self._closed = True

    def __reduce__(self) -> Any:
        raise NotImplementedError(f"{type(self).__name__} cannot be pickled")
