"""Chooses workers and depth while a loader runs: the rules of ``num_workers="auto"`` and
``depth="auto"``, and the tuner that applies them."""

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

from fastloader._core.machine.limits import counted
from fastloader._core.machine.process import HomeProcess
from fastloader._core.observation.statistics import TIMED, Statistics

# ---- The rule of ``num_workers="auto"``, which gets numbers and looks at no clock.


@dataclasses.dataclass(frozen=True)
class Interval:
    """The counts of some seconds of a training loop, without the beginnings and ends of epochs."""

    seconds: float
    waited: float  # the seconds that the loop waited for data
    pictures: int
    busy: float  # the seconds that all decode threads worked
    cpu: float  # the part of busy that they were on a processor

    @property
    def wait_share(self) -> float:
        return self.waited / self.seconds

    @property
    def rate(self) -> float:
        return self.pictures / self.seconds


class ThreadRule:
    """Decides how many threads decode. At first it is ``share``, a thread for each processor.

    While the loop does not wait, as few threads decode as keep it from waiting, which leaves processors
    to the thread that launches the training step. While the loop waits, all of them decode. If
    threads wait for storage instead of decoding, and more of them are faster, more threads decode than
    there are processors.

    The rule goes by the middle one of three looks, so that a pause in the training loop, or of the
    machine, decides nothing. Only what is plain is decided at the first look."""

    LOOKS = 3
    HUNGRY = 0.02  # the share of its time from which a loop counts as waiting
    SATED = 0.01  # the share below which it has threads to spare
    SPARE = 1.3  # threads to keep for each at work, because pictures are not all alike
    GAIN = 1.05  # the gain below which an attempt with more threads is given up
    PLAIN = 1.25  # the gain from which one look is enough

    def __init__(self, share: int) -> None:
        self.share = self.threads = share
        self.why = _of_share("the loop has not been watched for long enough")
        self._looks: list[Interval] = []  # the last looks with this number of threads
        self._before: tuple[int, float] | None = None  # threads and pictures/s before an attempt
        # The range of the loop's speeds for which the limits that were found are true. Limits are looked
        # for anew only if the loop is far slower or faster than ever: otherwise a loop that alternates
        # between two speeds would be examined for ever.
        self._slowest, self._fastest = math.inf, 0.0
        self._known = False  # whether the speed that it has had since a limit was found is known
        self._forget()

    def _forget(self) -> None:
        self._most, self._least = 8 * self.share, 1
        self._plenty = self.share  # threads that were enough for the loop, or are all there are
        self._known = False

    def _know(self, rate: float) -> None:
        self._slowest, self._fastest = min(self._slowest, rate), max(self._fastest, rate)

    @property
    def saves(self) -> bool:
        """Whether fewer threads decode than might, so that the rule has to know when the loop waits."""
        return self.threads < self._plenty

    def observe(self, seen: Interval) -> int:
        if self.saves and seen.wait_share >= self.HUNGRY:
            # So few threads were enough only for a while. They are not tried again, because each time
            # costs.
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
                # The loop or the storage has changed, so the limits that were found are no longer true.
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
            # The loop waits for the device, for Python, or only in bursts, for which the depth is there.
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
        if enough > 0.9 * self.threads:  # or it would go on for ever, by one thread at a time
            return
        self._plenty = max(self.share, self.threads)
        self._know(self._middle("rate"))
        self._choose(enough)
        self.why = (
            f"the loop does not wait with {enough}; the other processors are the training step's"
        )

    def refused(self, threads: int) -> None:
        """Notes that the system gives no more than ``threads``."""
        self._before = None
        self._most = self._plenty = threads
        self._least = min(self._least, threads)
        self._choose(threads)
        self.why = f"the system gives this process no more than {threads}"


def _of_share(because: str) -> str:
    return f"one for each processor of this process: {because}"


# ---- The rule of ``depth="auto"``, which gets numbers and looks at no clock.


# The most batches that depth="auto" chooses: a burst of 16 is rare, and each batch takes memory here and
# on the device.
MOST_DEPTH = 16


class DepthRule:
    """Decides how many batches to hold. The number doubles whenever a store was seen full and then
    empty, `SWINGS` times: batches then come fast enough in the mean but not evenly, and holding more of
    them helps. A store that is always empty has a source that is too slow, and one that is always full
    has a loop that is too slow: more batches would change nothing. tf.data's prefetch(AUTOTUNE) grows
    by the same sign, at its first swing."""

    SWINGS = 2  # because one may have been a pause for something else
    # The most batches between two swings, in depths: a deeper store wins no more than its depth at each.
    APART = 20

    def __init__(self, depth: int, most: int = MOST_DEPTH) -> None:
        self.depth = depth
        self.why = "batches come evenly enough"
        self._most = most
        # Stores that were full, and were not empty since.
        self._full: weakref.WeakSet[Any] = weakref.WeakSet()
        self._swings = 0
        self._times = self._last_swing = 0  # how often the loop has asked, in all and at a swing

    def begin(self) -> None:
        """Notes that an epoch begins, with nothing ready."""
        self._full.clear()

    def note_ready(self, ready: int, store: object = None) -> bool:
        """Notes that the loop asked ``store`` for a batch when ``ready`` were ready. There are several
        stores with zip(loader, loader). Returns whether to ask for more by `deepen`. Not to be called
        if no more batches are to come."""
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
        """Sets the depth for good, because the device has no memory for more than ``depth``."""
        if depth < self.depth:
            self.why = f"there was no memory for {depth + 1}"
        self.depth = self._most = min(depth, self.depth)

    def deepen(self, room: int) -> bool:
        """Raises the depth if ``room`` batches in all allow it, and returns whether it is higher."""
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


# ---- The priority of workers, which is lower than the training loop's.


_log = logging.getLogger("fastloader")


class LowPriorityWorker:
    """A worker_init_fn that makes the worker yield to the thread that launches the training step, and
    then calls the user's."""

    def __init__(self, given: Callable[[int], None] | None) -> None:
        self._given = given

    def __call__(self, worker_id: int) -> None:
        lower_own_priority()
        if self._given is not None:
            self._given(worker_id)


def lower_own_priority() -> None:
    """Lowers the priority of the calling thread, as native threads do. Only on Linux does a thread have
    its own priority. Elsewhere its number might be that of another process."""
    if sys.platform != "linux":
        return
    thread = threading.get_native_id()
    try:
        before = os.getpriority(os.PRIO_PROCESS, thread)
        os.setpriority(os.PRIO_PROCESS, thread, min(before + 5, 19))
    except OSError as error:
        # A sandbox may forbid even this. A worker without lower priority works all the same.
        _log.info("fastloader: a worker keeps its priority: %s", error)


# ---- The tuner of ``num_workers="auto"``, which watches the training loop and applies the
# rule.


class ThreadTuner:
    """Applies a `ThreadRule` to the quota of a loader in the decode pool. It is called with every
    batch. It looks every half second at most, but at once if it had taken threads away and the loop
    waits."""

    SECONDS, STEPS = 0.5, 8  # the least of the loop between two looks
    WAITED = 0.25  # seconds of waiting that are too long after threads were taken away

    def __init__(self, share: int) -> None:
        self.rule = ThreadRule(share)
        self._begin_here()

    def _begin_here(self) -> None:
        self._home = HomeProcess()
        # Guards all but the rule's `threads` and `why`, because zip(loader, loader) has two callers.
        self._lock = threading.Lock()
        self._seen = LoopSample()  # at the last look, or when the epoch had got under way
        self._gathered = LoopSample()  # since the last look, in epochs before this one
        self._under_way = False

    def filling(self, share: int, counted: Statistics, decoder: Any) -> None:
        """Notes that an epoch begins: nothing is ready, and the loop waits for its first batch.
        ``share`` is this rank's part of the processors, which may have changed."""
        if not self._home.here:
            # This is a forked child: the threads are others, and the lock's holder may not exist here.
            self._begin_here()
        self.ended(counted, decoder)  # because the last epoch may have been left early
        with self._lock:
            if share != self.rule.share:
                self.rule = ThreadRule(share)
        decoder.set_threads(max(share, self.rule.threads))

    def ended(self, counted: Statistics, decoder: Any) -> None:
        """Notes that the epoch has ended. What decode threads do until the next one, for a validation
        say, is not counted for this loop."""
        with self._lock:
            if self._under_way:
                self._gathered += LoopSample.of(counted, decoder) - self._seen
                self._under_way = False

    def taken(self, counted: Statistics, decoder: Any) -> None:
        """Notes that the loop took a batch, when enough batches are ready or begun for the rule."""
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
                    if decoder.threads != self.rule.threads:
                        self._apply(decoder)
                    return
        if not self._lock.acquire(blocking=False):
            return
        try:
            now = LoopSample.of(counted, decoder)
            if self._under_way:
                self._look(self._gathered + (now - self._seen), decoder)
                self._gathered = LoopSample()
            # Counted from here on: what was decoded while the epoch began belongs to no time of the
            # loop.
            self._seen, self._under_way = now, True
        finally:
            self._lock.release()

    def _look(self, seen: LoopSample, decoder: Any) -> None:
        if seen.seconds <= 0:
            return
        threads = self.rule.threads
        chosen = self.rule.observe(
            # At most `busy`, because a loader that decodes at the same time is in the processors' time.
            Interval(seen.seconds, seen.waited, seen.pictures, seen.busy, min(seen.cpu, seen.busy))
        )
        self._apply(decoder)
        if chosen != threads:
            words = counted(self.rule.threads, "decode thread")
            _log.info("fastloader: %s now: %s", words, self.rule.why)

    def _apply(self, decoder: Any) -> None:
        try:
            decoder.set_threads(self.rule.threads)
        except Exception as error:
            # Only logged, because the batch has been taken, and must not be lost for want of a thread.
            words = counted(self.rule.threads, "decode thread")
            _log.warning("fastloader: %s: %s", words, error)
            self.rule.refused(decoder.threads)


@dataclasses.dataclass
class LoopSample:
    """The loop's counters until now, or their differences over a while."""

    seconds: float = 0.0
    waited: float = 0.0
    steps: int = 0
    pictures: int = 0
    busy: float = 0.0
    cpu: float = 0.0

    @classmethod
    def of(cls, counted: Statistics, decoder: Any) -> LoopSample:
        times = decoder.times()
        waited = counted.wait_s - counted.edge_wait_s
        return cls(
            counted.step_s + waited,
            waited,
            counted.steps,
            int(times.get("pictures", 0)),
            times.get("read", 0.0) + times.get("decode", 0.0) + times.get("finish", 0.0),
            decoder.cpu_seconds(),
        )

    def __add__(self, other: LoopSample) -> LoopSample:
        return LoopSample(*(a + b for a, b in zip(self._all(), other._all())))

    def __sub__(self, other: LoopSample) -> LoopSample:
        return LoopSample(*(a - b for a, b in zip(self._all(), other._all())))

    def _all(self) -> tuple[Any, ...]:
        return self.seconds, self.waited, self.steps, self.pictures, self.busy, self.cpu
