"""The rule of ``num_workers="auto"``, which gets numbers and looks at no clock."""

from __future__ import annotations

import dataclasses
import math
import statistics


@dataclasses.dataclass(frozen=True)
class Interval:
    """What happened in some seconds of a training loop, without the beginnings and ends of epochs."""

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
