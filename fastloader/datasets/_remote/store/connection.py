"""Requests to object stores: what is tried again, and what is counted."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from fastloader._core.machine.messages.progress import SILENT, progress
from fastloader._core.machine.process import HomeProcess, ProcessLock, exiting
from fastloader.datasets._formats.counters import Counters
from fastloader.datasets._formats.urls import is_http, place_of
from fastloader.datasets._remote.store.bucket import Bucket, open_bucket
from fastloader.datasets._remote.store.failures import explained, may_pass
from fastloader.datasets._remote.store.listing import Listing
from fastloader.datasets._remote.store.remote_object import ChangedObject, RemoteObject
from fastloader.datasets._remote.store.spans import coalesced
from fastloader.errors import Error

_log = logging.getLogger("fastloader")

Result = TypeVar("Result")

TOGETHER = 32  # requests at a time
_LEAST_ATTEMPTS = 3
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 5.0  # seconds between two attempts, which grow
_jitter = random.Random()  # of its own: the user's draws stay what they are

# obstore's threads do not live on in a forked child, where a request would wait for them for ever.
_used_in: HomeProcess | None = None


def _check_process(root: str) -> None:
    """Raises Error in a forked child of a process that has read."""
    global _used_in
    if _used_in is not None and not _used_in.here:
        raise Error(
            f"{root}: a forked process cannot read from an object store that its parent has read from. "
            'Use worker_backend="thread", or worker processes that are not forked '
            '(multiprocessing_context="forkserver"), or let a ShardwiseSampler bring whole shards into '
            "the cache"
        )
    _used_in = _used_in or HomeProcess()


class Connection:
    """Reads objects. A process opens a bucket when it first needs it.

    Args:
        options: what the libraries take beside the URL.
        timeout: the seconds for which a request that fails is tried again, with pauses.
    """

    def __init__(self, options: Mapping[str, Any], timeout: float, counters: Counters) -> None:
        self._options = options
        self._timeout = timeout
        self._counters = counters
        self.__setstate__({})

    def __getstate__(self) -> dict[str, Any]:
        left_out = {"_buckets", "_lock"}
        return {name: each for name, each in self.__dict__.items() if name not in left_out}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._buckets: dict[str, Bucket] = {}
        self._lock = ProcessLock()  # guards the buckets

    # --- what is asked for -------------------------------------------------------------------------

    def head(self, url: str) -> RemoteObject:
        """Raises FileNotFoundError if there is no such object."""
        return self._call(url, lambda bucket, path: bucket.head(path))

    def heads(self, urls: Sequence[str]) -> list[RemoteObject]:
        with ThreadPoolExecutor(TOGETHER) as pool:
            return list(pool.map(self.head, urls))

    def below(
        self,
        url: str,
        wanted: Callable[[RemoteObject], bool] = lambda _each: True,
        deep: bool = True,
    ) -> list[RemoteObject]:
        """The objects whose URL begins with this one and a slash, if ``wanted`` takes them; without
        ``deep``, only those with no further slash. Raises ValueError for a web server."""
        place_of(url)  # raises for what no message may show
        if is_http(url):
            raise ValueError(
                f"{url}: web servers have no lists of files. Name tar shards, by braces or in a list"
            )
        listing = Listing(wanted, deep)
        with progress(f"listing {url}", None, "objects", SILENT) as line:
            before = 0
            while self._call(url, lambda bucket, path: listing.take_page(bucket, path.rstrip("/"))):
                line.step(len(listing.found) - before)
                before = len(listing.found)
        return listing.found

    def read(self, wanted: RemoteObject, begin: int, end: int) -> Any:
        """The bytes from ``begin`` to ``end``, at most `spans.PART` of them.

        Raises:
            ChangedObject: a ValueError, if another version is there now.
        """

        def get(bucket: Bucket, path: str) -> Any:
            found = bucket.get(wanted, path, begin, end)
            if len(found) != end - begin:
                raise ConnectionError(f"{len(found)} bytes came of {end - begin}")
            return found

        found = self._call(wanted.url, get)
        self._counters.add("bytes", end - begin)
        return found

    def whole(self, urls: Sequence[str]) -> list[Any]:
        """All bytes of these objects, which are read at the same time."""

        def read(url: str) -> Any:
            found = self._call(url, lambda bucket, path: bucket.whole(path))
            self._counters.add("bytes", len(found))
            return found

        if len(urls) == 1:
            return [read(urls[0])]
        with ThreadPoolExecutor(TOGETHER) as pool:
            return list(pool.map(read, urls))

    def begin_read(
        self, wanted: RemoteObject, places: Sequence[tuple[int, int]], pool: ThreadPoolExecutor
    ) -> Callable[[], list[bytes]]:
        """Has ``pool`` read the (offset, size) of one object, where neighbours share a request, and
        returns what waits for them."""
        parts = coalesced(places)
        reading = [pool.submit(self.read, wanted, begin, end) for begin, end in parts]

        def finished() -> list[bytes]:
            read = [memoryview(each.result()) for each in reading]
            found = []
            for offset, size in places:
                pieces = [
                    view[max(0, offset - begin) : max(0, offset + size - begin)]
                    for (begin, end), view in zip(parts, read, strict=True)
                    if begin < offset + size and offset < end
                ]
                found.append(b"".join(pieces))
            return found

        return finished

    # --- one request -------------------------------------------------------------------------------

    def _bucket(self, root: str) -> Bucket:
        _check_process(root)
        with self._lock.lock:
            if root not in self._buckets:
                stall = max(1.0, self._timeout / _LEAST_ATTEMPTS)
                self._buckets[root] = open_bucket(root, self._options, stall)
            return self._buckets[root]

    def _call(self, url: str, work: Callable[[Bucket, str], Result]) -> Result:
        root, path = place_of(url)
        begun = time.monotonic()
        pause = _FIRST_PAUSE
        attempts = 0
        changed = False
        why: Exception
        while True:
            attempts += 1
            try:
                found = work(self._bucket(root), path)
            except ChangedObject as error:
                # Without TLS, what names the version may have been harmed on the way: asked again.
                if changed:
                    raise
                changed, why = True, error
            except (ImportError, Error):
                raise
            except FileNotFoundError:
                raise FileNotFoundError(f"{url} does not exist") from None
            except Exception as error:  # the libraries raise more than their own errors
                over = time.monotonic() - begun + pause > self._timeout
                if not may_pass(error):
                    raise explained(url, error) from None
                if (over and attempts >= _LEAST_ATTEMPTS) or exiting():
                    what = f"gave up after {attempts} attempts: "
                    raise explained(url, error, what) from None
                why = error
            else:
                self._counters.add("requests")
                return found
            self._counters.add("retries")
            name = type(why).__name__  # its text may show what signs a request
            _log.info("fastloader: asks for %s again (attempt %d, %s)", url, attempts + 1, name)
            time.sleep(pause * _jitter.uniform(0.5, 1))  # not all threads at the same moment
            pause = min(2 * pause, _LONGEST_PAUSE)
