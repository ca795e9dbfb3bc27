"""What batches are copied from, until it is copied."""

from __future__ import annotations

import collections
from typing import Any

from fastloader._core.machine import devices
from fastloader._core.machine.process import HomeProcess


class HeldSources:
    """What batches are copied from, until their copies are done. torch keeps a source alive for as long
    only if it is pinned, and not on every device; the MPS device is known to read pageable memory
    after it was freed (pytorch#189690)."""

    # Batches beside the one issued last. They may lie in slots of the worker ring, which has as many to
    # spare; and a loop that is so far ahead of its device loses nothing by waiting.
    MOST = 2

    def __init__(self, side: devices.StreamSide) -> None:
        self._side = side
        self._home = HomeProcess()
        # (event behind the copies, their sources), oldest first: the side stream keeps the order.
        self._held: collections.deque[tuple[Any, list[Any]]] = collections.deque()

    def hold(self, sources: list[Any]) -> None:
        """For the copies that were queued last."""
        self._held.append((self._side.mark(), sources))
        while len(self._held) > self.MOST + 1 or (self._held and self._held[0][0].query()):
            self._release()

    def wait(self) -> None:
        """Until all copies are done, of which there are few."""
        if self._home.here:  # the copies of a parent are no matter of a forked child
            while self._held:
                self._release()

    def _release(self) -> None:
        try:
            held = self._held.popleft()
        except IndexError:  # another thread, with an iterator of its own, was here meanwhile
            return
        try:
            held[0].synchronize()
        except BaseException:  # Ctrl-C, while the copy still reads
            self._held.appendleft(held)
            raise
