"""The memory that batches are copied from, held until the copies are done."""

from __future__ import annotations

import collections
from typing import Any

from fastloader._core.machine import devices
from fastloader._core.machine.process import HomeProcess


class HeldInputs:
    """Holds the tensors that batches are copied from until the copies are done. torch keeps them alive
    for so long only if they are pinned, and not on every device. The MPS device is known to read
    pageable memory after it was freed (pytorch#189690)."""

    # Batches held besides the one issued last. They may lie in shared slots, of which a worker has so
    # many to spare. A loop that is so far ahead of its device loses nothing by waiting.
    MOST = 2

    def __init__(self, side: devices.StreamSide) -> None:
        self._side = side
        self._home = HomeProcess()
        # (event after the copies, the tensors copied from), oldest first, in the side stream's order.
        self._held: collections.deque[tuple[Any, list[Any]]] = collections.deque()

    def hold(self, inputs: list[Any]) -> None:
        """Holds ``inputs`` until the copies that were queued last are done."""
        self._held.append((self._side.mark(), inputs))
        while len(self._held) > self.MOST + 1 or (self._held and self._held[0][0].query()):
            self._release()

    def wait(self) -> None:
        """Waits until all copies are done. There are few."""
        if self._home.here:  # a forked child leaves its parent's copies alone
            while self._held:
                self._release()

    def _release(self) -> None:
        try:
            held = self._held.popleft()
        except IndexError:  # another thread, with its own iterator, was here meanwhile
            return
        try:
            held[0].synchronize()
        except BaseException:  # Ctrl-C, while the copy still reads
            self._held.appendleft(held)
            raise
