"""The rule of ``depth="auto"``, which is given numbers and looks at no clock."""

from __future__ import annotations

import weakref
from typing import Any

# Batches that depth="auto" may come to: a burst of 16 is rare, and each takes memory here and on the
# device.
MOST_DEPTH = 16


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

    def note_ready(self, ready: int, store: object = None) -> bool:
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
