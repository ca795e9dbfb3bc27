"""The rule of ``depth="auto"``, which gets numbers and looks at no clock."""

from __future__ import annotations

import weakref
from typing import Any

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
