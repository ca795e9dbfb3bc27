"""``num_workers="auto"`` and ``depth="auto"``: what watches the training loop, and the rules by which it
chooses. Neither order nor pixels depend on the choice.

The rules are given numbers and look at no clock, so that tests can give them any.
"""

from __future__ import annotations

import dataclasses
import logging
import math
import os
import statistics
import sys
import threading
import weakref
from collections.abc import Callable
from typing import Any

from fastloader._core.machine.limits import available_memory, available_threads
from fastloader._core.observation.statistics import TIMED, Statistics
from fastloader._core.order import shards

_log = logging.getLogger("fastloader")

# Batches that depth="auto" may come to: a burst of 16 is rare, and each takes memory here and on the
# device.
MOST_DEPTH = 16

# Of what is free, for the batches of one loader.
_MEMORY_SHARE = 8


def own_threads() -> int:
    """This rank's part of the processors."""
    return max(1, available_threads() // shards.ranks_here())


def memory_budget() -> int:
    """Bytes for the batches of one loader that are ready or being made."""
    return available_memory() // _MEMORY_SHARE // shards.ranks_here()


class DepthRule:
    """How many batches to hold: twice as many whenever a store was seen full, then empty, `SWINGS`
    times. Batches then come fast enough in the mean, but not evenly, which is what holding more
    mends. Always empty is a producer too slow and always full a consumer: more would change nothing.
    tf.data's prefetch(AUTOTUNE) grows by the same sign, at its first swing."""

    SWINGS = 2  # one may have been a pause for something else
    # Of the depth, in batches from swing to swing: a deeper store wins no more than its depth at each.
    APART = 20

    def __init__(self, depth: int, most: int = MOST_DEPTH) -> None:
        self.depth = depth
        self.why = "batches come evenly enough"
        self._most = most
        # Stores that were full, and not empty since.
        self._full: weakref.WeakSet[Any] = weakref.WeakSet()
        self._swings = 0
        self._times = self._last_swing = 0  # that somebody came

    def begin(self) -> None:
        """An epoch begins, with nothing ready."""
        self._full.clear()

    def came(self, ready: int, store: object = None) -> bool:
        """The consumer came to ``store`` (one of several with zip(loader, loader)), and so many batches
        were ready. True: ask for more by `deepen`. Not to be asked where nothing more is to come."""
        of = self if store is None else store
        self._times += 1
        if ready >= self.depth:
            self._full.add(of)
        elif ready == 0 and of in self._full:
            self._full.discard(of)
            if self._times - self._last_swing > self.APART * self.depth:
                self._swings = 0
            self._last_swing = self._times
            self._swings += 1
            return self._swings >= self.SWINGS and self.depth < self._most
        return False

    def limit(self, depth: int) -> None:
        """The device ran out of memory for more than ``depth``: so many, and never more again."""
        if depth < self.depth:
            self.why = f"there was no memory for {depth + 1}"
        self.depth = self._most = min(depth, self.depth)

    def deepen(self, room: int) -> bool:
        """There is memory for ``room`` batches in all. Returns whether there are more now."""
        self._swings = 0
        wanted = min(2 * self.depth, self._most)
        deeper = min(wanted, room)
        limited = ""
        if deeper < wanted:
            self._most = max(self.depth, deeper)
            limited = "; more would be over the budget for memory"
        self.why = f"{self.depth} were all ready and then none was, again and again{limited}"
        if deeper <= self.depth:
            return False
        self.depth = deeper
        return True


@dataclasses.dataclass(frozen=True)
class Interval:
    """What happened in some seconds of a training loop, the beginnings and ends of epochs left out."""

    seconds: float
    waited: float  # of the loop, for data
    pictures: int
    busy: float  # seconds that decode threads were at it, all together,
    cpu: float  # and of these on a processor

    @property
    def wait_share(self) -> float:
        return self.waited / self.seconds

    @property
    def rate(self) -> float:
        return self.pictures / self.seconds


class ThreadRule:
    """How many threads decode: ``share``, a thread for each processor, at first. As few as keep the
    loop from waiting, which leaves processors to the thread that launches the training step; all while
    it waits; more than there are processors while threads wait for storage instead of decoding and
    more of them are faster.

    It goes by the middle one of three looks, so that a pause in the training loop, or of the machine,
    decides nothing. Only what is plain is decided at the first."""

    LOOKS = 3
    HUNGRY = 0.02  # of the time waited for data, from which the loop counts as waiting,
    SATED = 0.01  # and below which it has threads to spare
    SPARE = 1.3  # threads to keep, of those at work: pictures are not all alike
    GAIN = 1.05  # of an attempt with more threads, below which it is given up,
    PLAIN = 1.25  # and from which one look is enough

    def __init__(self, share: int) -> None:
        self.share = self.threads = share
        self.why = _of_share("the loop has not been watched for long enough")
        self._looks: list[Interval] = []  # the last ones with so many threads
        self._before: tuple[int, float] | None = None  # threads and pictures/s before an attempt
        # Speeds that the loop has had, of which what was found out is true: a loop has to be slower or
        # faster than ever for it to be found out anew. One with two speeds in turn would otherwise
        # be found out about for ever.
        self._slowest, self._fastest = math.inf, 0.0
        self._known = False  # whether the speed is, that it has had since a limit was found
        self._forget()

    def _forget(self) -> None:
        self._most, self._least = 8 * self.share, 1
        self._plenty = self.share  # were enough for the loop, or are all there is
        self._known = False

    def _know(self, rate: float) -> None:
        self._slowest, self._fastest = min(self._slowest, rate), max(self._fastest, rate)

    @property
    def saves(self) -> bool:
        """Whether there are fewer than there might be, so that a loop that waits is to be told of."""
        return self.threads < self._plenty

    def observe(self, seen: Interval) -> int:
        if self.saves and seen.wait_share >= self.HUNGRY:
            # It had been enough for a while. Not to be tried again: each time costs.
            self._least = self._plenty
            self._known = False
            self._choose(self._plenty)
            why = f"with fewer the loop waits {100 * seen.wait_share:.0f} % of its time"
            self.why = _of_share(why) if self.threads == self.share else why
            return self.threads
        self._looks = [*self._looks, seen][-self.LOOKS :]
        if self._before is not None:
            before, rate_before = self._before
            plain = seen.rate >= rate_before * self.PLAIN
            if len(self._looks) < self.LOOKS and not plain:
                return self.threads
            self._before = None
            if plain:
                self._looks = [seen]
            elif self._middle("rate") < rate_before * self.GAIN:
                self._most = before
                self._know(rate_before)
                self._known = True
                self._choose(before)
                waiting = "threads wait for storage or a processor"
                self.why = f"{waiting}, but more than {before} were no faster"
                return self.threads
        enough_looks = len(self._looks) == self.LOOKS
        if enough_looks and (self._least > 1 or self._most < 8 * self.share):
            rate = self._middle("rate")
            if self._known and not 0.5 * self._slowest < rate < 2 * self._fastest:
                # Another loop, another storage: what was found out is no longer so.
                self._forget()
            else:
                self._known = True
            self._know(rate)
        waits = self._middle("wait_share")
        if waits >= self.HUNGRY:
            self._feed(waits, enough_looks)
        elif waits < self.SATED and enough_looks:
            self._save()
        return self.threads

    def _middle(self, name: str) -> float:
        return float(statistics.median(getattr(look, name) for look in self._looks))

    def _choose(self, threads: int) -> None:
        self.threads = threads
        self._looks = []

    def _feed(self, waits: float, enough_looks: bool) -> None:
        waiting = f"the loop waits {100 * waits:.0f} % of its time"
        busy = statistics.median(look.busy / look.seconds for look in self._looks)
        cpu = statistics.median(look.cpu / look.seconds for look in self._looks)
        if busy < 0.6 * self.threads:
            # For the device, for Python, or in bursts only, which is for the depth to mend.
            self.why = f"{waiting}, but not for threads, which are idle then"
        elif cpu > 0.95 * busy or cpu > 0.95 * self.share:
            self.why = f"{waiting}, and all of them are decoding"
        elif self.threads < self._most and (enough_looks or cpu < 0.5 * busy):
            self._before = self.threads, self._middle("rate")
            self._choose(min(self._most, 2 * self.threads))
            self.why = f"{waiting}, and threads wait for storage"

    def _save(self) -> None:
        busy = max(look.busy / look.seconds for look in self._looks)
        enough = max(self._least, math.ceil(self.SPARE * busy))
        if enough > 0.9 * self.threads:  # it would go on for ever, by one at a time
            return
        self._plenty = max(self.share, self.threads)
        self._know(self._middle("rate"))
        self._choose(enough)
        self.why = (
            f"the loop does not wait with {enough}; the other processors are the training step's"
        )

    def refused(self, threads: int) -> None:
        """The system gave no more than ``threads``."""
        self._before = None
        self._most = self._plenty = threads
        self._least = min(self._least, threads)
        self._choose(threads)
        self.why = f"the system gives this process no more than {threads}"


def _of_share(because: str) -> str:
    return f"one for each processor of this process: {because}"


class AutoWorkers(int):
    """The number that ``num_workers="auto"`` began with. Frameworks make a loader again from its
    attributes; from this one the constructor knows that "auto" was asked for."""


class ThreadTuner:
    """Applies a `ThreadRule` to the quota of a loader in the decode pool. Called with every batch, looks
    every half second at most, or at once when it had taken threads away and the loop waits."""

    SECONDS, STEPS = 0.5, 8  # of the loop, at least
    WAITED = 0.25  # seconds, that are too long with threads taken away

    def __init__(self, share: int) -> None:
        self.rule = ThreadRule(share)
        self._begin_here()

    def _begin_here(self) -> None:
        self._pid = os.getpid()
        # Guards all but the rule's `threads` and `why`: with zip(loader, loader) there are two callers.
        self._lock = threading.Lock()
        self._seen = _Figures()  # when it last looked, or the epoch had got under way
        self._gathered = _Figures()  # between looks, in epochs before this one
        self._under_way = False

    def filling(self, share: int, counted: Statistics, source: Any) -> None:
        """An epoch begins: nothing is ready, and the loop waits for its first batch. ``share``: of the
        processors, which may have become another."""
        if self._pid != os.getpid():
            # Forked off: other threads, and maybe a lock whose holder is not here.
            self._begin_here()
        self.ended(counted, source)  # where it was left early
        with self._lock:
            if share != self.rule.share:
                self.rule = ThreadRule(share)
        source.set_threads(max(share, self.rule.threads))

    def ended(self, counted: Statistics, source: Any) -> None:
        """The epoch is. What decode threads do until the next one is not of this loop: validation's."""
        with self._lock:
            if self._under_way:
                self._gathered += _Figures.of(counted, source) - self._seen
                self._under_way = False

    def taken(self, counted: Statistics, source: Any) -> None:
        """One more batch was, and enough of them are ready or begun for the rule to decide."""
        if not TIMED:
            return
        if self._under_way:
            waited = counted.wait_s - counted.edge_wait_s - self._seen.waited
            looped = counted.step_s + counted.wait_s - counted.edge_wait_s - self._seen.seconds
            seconds = looped + self._gathered.seconds
            steps = counted.steps - self._seen.steps + self._gathered.steps
            if seconds < self.SECONDS or steps < self.STEPS:
                late = self.rule.saves and waited > max(self.WAITED, self.rule.HUNGRY * seconds)
                if not late:
                    if source.threads != self.rule.threads:
                        self._apply(source)
                    return
        if not self._lock.acquire(blocking=False):
            return
        try:
            now = _Figures.of(counted, source)
            if self._under_way:
                self._look(self._gathered + (now - self._seen), source)
                self._gathered = _Figures()
            # What was decoded while the epoch got under way was for no time of the loop.
            self._seen, self._under_way = now, True
        finally:
            self._lock.release()

    def _look(self, seen: _Figures, source: Any) -> None:
        if seen.seconds <= 0:
            return
        threads = self.rule.threads
        chosen = self.rule.observe(
            # A loader that decodes at the same time is in the processors' time.
            Interval(seen.seconds, seen.waited, seen.pictures, seen.busy, min(seen.cpu, seen.busy))
        )
        self._apply(source)
        if chosen != threads:
            _log.info("fastloader: %d decode threads now: %s", self.rule.threads, self.rule.why)

    def _apply(self, source: Any) -> None:
        try:
            source.set_threads(self.rule.threads)
        except Exception as error:
            # The batch has been taken; to lose it for a thread that is not to be had would be wrong.
            _log.warning("fastloader: %d decode threads: %s", self.rule.threads, error)
            self.rule.refused(source.threads)


@dataclasses.dataclass
class _Figures:
    """What was counted until now, or in a while."""

    seconds: float = 0.0
    waited: float = 0.0
    steps: int = 0
    pictures: int = 0
    busy: float = 0.0
    cpu: float = 0.0

    @classmethod
    def of(cls, counted: Statistics, source: Any) -> _Figures:
        times = source.times()
        waited = counted.wait_s - counted.edge_wait_s
        return cls(
            counted.step_s + waited,
            waited,
            counted.steps,
            int(times.get("pictures", 0)),
            times.get("read", 0.0) + times.get("decode", 0.0) + times.get("finish", 0.0),
            source.native.decode_cpu_seconds(),
        )

    def __add__(self, other: _Figures) -> _Figures:
        return _Figures(*(a + b for a, b in zip(self._all(), other._all())))

    def __sub__(self, other: _Figures) -> _Figures:
        return _Figures(*(a - b for a, b in zip(self._all(), other._all())))

    def _all(self) -> tuple[Any, ...]:
        return self.seconds, self.waited, self.steps, self.pictures, self.busy, self.cpu


class Modest:
    """A worker_init_fn: the worker yields to the thread that launches the training step, then does what
    the user's does."""

    def __init__(self, given: Callable[[int], None] | None) -> None:
        self._given = given

    def __call__(self, worker_id: int) -> None:
        lower_own_priority()
        if self._given is not None:
            self._given(worker_id)


def lower_own_priority() -> None:
    """Of the calling thread, as the native threads do. On Linux a thread has a priority of its own;
    elsewhere its number might be another process's."""
    if sys.platform != "linux":
        return
    thread = threading.get_native_id()
    try:
        before = os.getpriority(os.PRIO_PROCESS, thread)
        os.setpriority(os.PRIO_PROCESS, thread, min(before + 5, 19))
    except OSError as error:
        # A sandbox may forbid even this. A worker that yields to nobody works all the same.
        _log.info("fastloader: a worker keeps its priority: %s", error)
