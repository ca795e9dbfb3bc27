"""The tuner of ``num_workers="auto"``, which watches the training loop and applies the rule."""

from __future__ import annotations

import dataclasses
import logging
import threading
from typing import Any

from fastloader._core.machine import extension
from fastloader._core.machine.limits import counted
from fastloader._core.machine.process import HomeProcess
from fastloader._core.observation.statistics import TIMED, Statistics
from fastloader._core.observation.tuning.threads import Interval, ThreadRule

_log = logging.getLogger("fastloader")


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
            said = counted(self.rule.threads, "decode thread")
            _log.info("fastloader: %s now: %s", said, self.rule.why)

    def _apply(self, decoder: Any) -> None:
        try:
            decoder.set_threads(self.rule.threads)
        except Exception as error:
            # Only logged, because the batch has been taken, and must not be lost for want of a thread.
            said = counted(self.rule.threads, "decode thread")
            _log.warning("fastloader: %s: %s", said, error)
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
            extension.native.decode_cpu_seconds(),
        )

    def __add__(self, other: LoopSample) -> LoopSample:
        return LoopSample(*(a + b for a, b in zip(self._all(), other._all())))

    def __sub__(self, other: LoopSample) -> LoopSample:
        return LoopSample(*(a - b for a, b in zip(self._all(), other._all())))

    def _all(self) -> tuple[Any, ...]:
        return self.seconds, self.waited, self.steps, self.pictures, self.busy, self.cpu
