"""``num_workers="auto"`` and ``depth="auto"``: what watches the training loop, and the rules by which it
chooses. Neither order nor pixels depend on the choice.

The rules are given numbers and look at no clock, so that tests can give them any.
"""

from __future__ import annotations

import dataclasses
import logging
import math
import os
import threading
from collections.abc import Callable
from typing import Any

from fastloader import _distributed
from fastloader._limits import available_memory, available_threads
from fastloader._statistics import Statistics

_log = logging.getLogger("fastloader")

# Batches that depth="auto" may come to: a burst of 16 is rare, and each takes memory here and on the
# device.
MOST_DEPTH = 16

# Of what is free, for the batches of one loader.
_MEMORY_SHARE = 8


def own_threads() -> int:
    """This rank's part of the processors."""
    return max(1, available_threads() // _distributed.ranks_here())


def memory_budget() -> int:
    """Bytes for the batches of one loader that are ready or being made."""
    return available_memory() // _MEMORY_SHARE // _distributed.ranks_here()


class DepthRule:
    """How many batches to hold: twice as many whenever the store was seen full, then empty, `SWINGS`
    times. Batches then come fast enough in the mean, but not evenly, which is what holding more
    mends. Always empty is a producer too slow and always full a consumer: more would change nothing.
    tf.data's prefetch(AUTOTUNE) grows by the same sign, at its first swing."""

    SWINGS = 2  # one may have been a pause for something else

    def __init__(self, depth: int, most: int = MOST_DEPTH) -> None:
        self.depth = depth
        self.why = "batches come evenly enough"
        self._most = most
        self._full = False
        self._swings = 0

    def begin(self) -> None:
        """An epoch begins, with nothing ready."""
        self._full = False

    def came(self, ready: int) -> bool:
        """The consumer came, and so many batches were ready. True: ask for more by `deepen`."""
        if ready >= self.depth:
            self._full = True
        elif ready == 0 and self._full:
            self._full = False
            self._swings += 1
            return self._swings >= self.SWINGS and self.depth < self._most
        return False

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


class ThreadRule:
    """How many threads decode: ``share``, a thread for each processor, at first. As few as keep the
    loop from waiting, which leaves processors to the thread that launches the training step; all while
    it waits; more than there are processors while threads wait for storage instead of decoding and
    more of them are faster."""

    HUNGRY = 0.02  # of the time waited for data, from which the loop counts as waiting,
    SATED = 0.01  # and below which it has threads to spare
    SPARE = 1.3  # threads to keep, of those at work: pictures are not all alike
    GAIN = 1.1  # of an attempt with more threads, below which it is given up

    def __init__(self, share: int) -> None:
        self.share = self.threads = share
        self.why = _of_share("the loop has not been watched for long enough")
        self._most = 8 * share
        self._least = 1
        self._calm = 0
        self._before: tuple[int, float] | None = None  # threads and pictures/s before an attempt
        self._known_rate = 0.0  # of the loop, when a limit was found

    def observe(self, seen: Interval) -> int:
        rate = seen.pictures / seen.seconds
        hungry = seen.waited >= self.HUNGRY * seen.seconds
        if self._known_rate and not 0.5 < rate / self._known_rate < 2:
            # Another loop, another storage: what was found out is no longer so.
            self._most, self._least, self._known_rate = 8 * self.share, 1, 0.0
        if self._before is not None:
            before, rate_before = self._before
            self._before = None
            if rate < rate_before * self.GAIN:
                self._most = self.threads = before
                self._known_rate = rate_before
                self.why = f"threads wait for storage, but more than {before} were no faster"
                return self.threads
        if hungry:
            self._calm = 0
            self._feed(seen, rate)
        elif seen.waited < self.SATED * seen.seconds:
            self._calm += 1
            self._save(seen)
        return self.threads

    def _feed(self, seen: Interval, rate: float) -> None:
        waiting = f"the loop waits {100 * seen.waited / seen.seconds:.0f} % of its time"
        if self.threads < self.share:
            # It had been enough for a while. Not to be tried again: each time costs.
            self._least = self.threads = self.share
            self._known_rate = rate
            self.why = _of_share(f"with fewer {waiting}")
        elif seen.busy < 0.6 * self.threads * seen.seconds:
            # For the device, for Python, or in bursts only, which is for the depth to mend.
            self.why = f"{waiting}, but not for threads, which are idle then"
        elif seen.cpu > 0.8 * seen.busy or seen.cpu > 0.9 * self.share * seen.seconds:
            self.why = f"{waiting}, and all of them are decoding"
        elif self.threads < self._most:
            self._before = self.threads, rate
            self.threads = min(self._most, 2 * self.threads)
            self.why = f"{waiting}, and threads wait for storage"

    def _save(self, seen: Interval) -> None:
        enough = max(self._least, math.ceil(self.SPARE * seen.busy / seen.seconds))
        if self._calm < 2 or enough >= self.threads:
            return
        self._calm = 0
        self.threads = enough
        self.why = (
            f"the loop does not wait with {enough}; the other processors are the training step's"
        )


def _of_share(because: str) -> str:
    return f"one for each processor of this process: {because}"


class ThreadTuner:
    """Applies a `ThreadRule` to the quota of a loader in the decode pool. Called with every batch, looks
    every half second at most."""

    SECONDS, STEPS = 0.5, 16  # of the loop, at least

    def __init__(self, share: int) -> None:
        self.rule = ThreadRule(share)
        # Guards all but the rule's `threads` and `why`: with zip(loader, loader) there are two callers.
        self._lock = threading.Lock()
        self._seen = (0.0, 0.0, 0, 0, 0.0, 0.0)

    def filling(self, quota: Any) -> None:
        """An epoch begins: nothing is ready, and the loop waits for its first batch."""
        quota.threads = max(self.rule.share, self.rule.threads)

    def taken(self, statistics: Statistics, source: Any) -> None:
        """One more batch was, and enough of them are ready or begun for the rule to decide."""
        looped = statistics.step_s + statistics.wait_s - statistics.edge_wait_s
        steps = statistics.steps
        if looped - self._seen[0] < self.SECONDS or steps - self._seen[2] < self.STEPS:
            if source.quota.threads != self.rule.threads:
                source.quota.threads = self.rule.threads
            return
        if not self._lock.acquire(blocking=False):
            return
        try:
            self._look(looped, statistics, source)
        finally:
            self._lock.release()

    def _look(self, looped: float, statistics: Statistics, source: Any) -> None:
        times = source.times()
        waited = statistics.wait_s - statistics.edge_wait_s
        busy = times.get("read", 0.0) + times.get("decode", 0.0) + times.get("finish", 0.0)
        pictures = int(times.get("pictures", 0))
        now = (looped, waited, statistics.steps, pictures, busy, source.native.decode_cpu_seconds())
        then, self._seen = self._seen, now
        seconds, waited, _steps, pictures, busy, cpu = (a - b for a, b in zip(now, then))
        threads = self.rule.threads
        chosen = self.rule.observe(Interval(seconds, waited, int(pictures), busy, cpu))
        source.quota.threads = chosen
        if chosen != threads:
            _log.info("fastloader: %d decode threads now: %s", chosen, self.rule.why)


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
    """Of the calling thread, which on Linux is what has a priority, as the native threads do."""
    if not hasattr(os, "setpriority"):
        return
    thread = threading.get_native_id()
    before = os.getpriority(os.PRIO_PROCESS, thread)
    os.setpriority(os.PRIO_PROCESS, thread, min(before + 5, 19))
