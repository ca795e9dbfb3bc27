"""Looks at files that somebody may write over while they are read."""

from __future__ import annotations

import collections
import threading
import time
from collections.abc import Iterable
from typing import ClassVar

# Seconds. A local disk answers in a hundredth of that, a network file system hardly ever does.
_QUICK = 2e-4
# Threads look at files that answer late: as many at most, of which each is for so many files.
_TOGETHER, _EACH = 8, 8


class WatchedFile:
    """A file that is read for a long time, in which nobody may write meanwhile.

    Attributes: ``slow``, whether the last look at it took long.
    """

    damaged: ClassVar[type[ValueError]] = ValueError
    path: str
    slow = False
    _changed = False

    def _has_changed(self) -> bool:
        """Whether it is another file by what the system says now."""
        raise NotImplementedError

    def _what_changed(self) -> str:
        return (
            f"{self.path} was written over or cut off since its dataset was made. Make the dataset "
            "anew, and replace files by renaming others (mv)"
        )

    def look(self) -> None:
        """Looks whether the file has changed, which `check_known` raises from then on."""
        begun = time.perf_counter()
        if self._has_changed():
            self._changed = True
        self.slow = time.perf_counter() - begun > _QUICK

    def check_known(self) -> None:
        """Raises ``damaged`` if a look has found that the file has changed. Waits for nothing."""
        if self._changed:
            raise self.damaged(self._what_changed())

    def check(self) -> None:
        """Raises ``damaged`` if the file has changed."""
        self.look()
        self.check_known()


class Looks:
    """A look at each of these files, which begins now: what was read of them before is what they hold
    unless `check` raises. Threads look at files that took long the last time, and at all that follow one
    that takes long now: whoever makes this waits for one such file at most."""

    def __init__(self, files: Iterable[WatchedFile]) -> None:
        self._files = list(files)
        self._waiting: collections.deque[WatchedFile] = collections.deque()
        quick = True
        for file in self._files:
            if quick and not file.slow:
                file.look()
                quick = not file.slow
            else:
                self._waiting.append(file)
        self._changed = threading.Condition()
        self._left = len(self._waiting)  # guarded by the condition
        for _ in range(min(_TOGETHER, -(-self._left // _EACH))):
            try:
                threading.Thread(target=self._work, name="fastloader-look", daemon=True).start()
            except RuntimeError:  # the system gives no thread: this one does it all
                self._work()
                break

    def _work(self) -> None:
        done = 0
        try:
            while True:
                file = self._waiting.popleft()
                done += 1
                file.look()
        except IndexError:
            pass
        finally:
            with self._changed:
                self._left -= done
                if not self._left:
                    self._changed.notify_all()

    def wait(self, timeout: float | None = None) -> bool:
        """Waits for so many seconds until all files were looked at, and returns whether they were."""
        if not self._left:
            return True
        with self._changed:
            return self._changed.wait_for(lambda: not self._left, timeout)

    def check(self) -> None:
        """Waits, and raises the ``damaged`` of a file that has changed."""
        self.wait()
        for file in self._files:
            file.check_known()
