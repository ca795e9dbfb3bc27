"""Shards that come into the cache before they are wanted."""

from __future__ import annotations

import threading
from collections.abc import Collection, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from fastloader.datasets._remote.cache.cache_full import CacheFull
from fastloader.datasets._remote.cache.held_file import HeldFile
from fastloader.datasets._remote.tar.remote_tar import RemoteTarShard
from fastloader.datasets._remote.tar.shards import Shard

_SHARDS_AT_ONCE = 4


class FetchAhead:
    """Has threads fetch shards, and keeps those in the cache that are still wanted. One thread calls
    its methods. Shards that stay on this machine anyway are as good as there."""

    def __init__(self, shards: Sequence[Shard]) -> None:
        self._shards = {
            number: shard
            for number, shard in enumerate(shards)
            if isinstance(shard, RemoteTarShard) and not shard.local_file
        }
        self._stop = threading.Event()
        self._pool = ThreadPoolExecutor(_SHARDS_AT_ONCE, "fastloader-ahead")
        self._begun: dict[int, Future[HeldFile]] = {}

    def begin(self, numbers: Collection[int]) -> None:
        """Begins to fetch these shards, and waits for none."""
        for number in numbers:
            shard = self._shards.get(number)
            if shard is not None and number not in self._begun:
                fetch = shard.cache.fetch
                self._begun[number] = self._pool.submit(fetch, shard.object, self._stop)

    def wait(self, numbers: Collection[int]) -> None:
        """Waits until these are in the cache. Raises what fetching them raised."""
        self.begin(numbers)
        for number in [each for each in numbers if each in self._begun]:
            try:
                self._begun[number].result()
            except CacheFull:  # which it was when this was begun, and need not be any more
                del self._begun[number]
                self.begin([number])
                self._begun[number].result()

    def keep(self, numbers: Collection[int]) -> None:
        """Lets the cache have the room of all other shards when it needs that."""
        for number in [each for each in self._begun if each not in numbers]:
            self._release(self._begun.pop(number))

    def end(self) -> None:
        """Fetches nothing more. What was kept last stays in the cache."""
        self._stop.set()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def close(self) -> None:
        self.end()
        self.keep(())

    def _release(self, begun: Future[HeldFile]) -> None:
        begun.cancel()
        begun.add_done_callback(_close)


def _close(begun: Future[HeldFile]) -> None:
    if not begun.cancelled() and begun.exception() is None:
        begun.result().close()
