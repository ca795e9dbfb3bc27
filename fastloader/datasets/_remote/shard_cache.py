"""``ShardCache``: shards of an object store, kept on this machine."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import shutil
import threading
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from fastloader._core.machine.messages import Progress
from fastloader._core.machine.process import exiting
from fastloader.datasets._formats.paths import folder_of, is_pattern, matches, place_of
from fastloader.datasets._formats.sample_form import Counters
from fastloader.datasets._remote.cache_folder import CacheFolder, HeldFile
from fastloader.datasets._remote.object_store import PART, Connection, RemoteObject
from fastloader.errors import Error

# ---- What an object's ETag says of its contents.


_HASHED_AT_ONCE = 1 << 20


def warn_of_tag(wanted: RemoteObject, all_so_far: bool) -> None:
    root = place_of(wanted.url).root
    if all_so_far:  # the same text for all shards, which Python says once
        what = (
            f"{root}: contents are not what their ETag says, which looks like an MD5, but came the same "
            "twice. That is so in encrypted buckets, where nothing but TLS keeps shards from changing "
            "on the way. Elsewhere something on the way has old copies of them"
        )
    else:
        what = (
            f"{wanted.url}: its contents are not what its ETag {wanted.etag} says, but came the same "
            "twice, while those of other shards there are. It is encrypted, or something on the way has "
            "an old copy of it: compare it with what was uploaded"
        )
    warnings.warn(what, RuntimeWarning, stacklevel=2)


def md5_of(descriptor: int) -> str:
    found = hashlib.md5(usedforsecurity=False)
    offset = 0
    while content := os.pread(descriptor, _HASHED_AT_ONCE, offset):
        found.update(content)
        offset += len(content)
    return found.hexdigest()


_log = logging.getLogger("fastloader")

_LONGEST_TIMEOUT = 1_000_000  # seconds
_SHARDS_AT_ONCE = 4
_PARTS_AT_ONCE = 4  # of each shard
_MOST_FETCHES = 3  # of a shard whose contents are not what its tag says
_NO_MD5 = 3  # shards after which the tags of a bucket are no longer taken for MD5s, if none was one

_COUNTED = ("requests", "retries", "bytes", "fetched", "evicted", "mismatches")


class ShardCache:
    """A folder on this machine for shards that come from an object store, and how to reach that.

    Several processes and ranks may share a folder: each shard is fetched once, and the others wait for
    it. A file is there under its name once it is whole, so a process that is killed in the middle leaves
    nothing that another one takes for a shard. If a shard does not fit, the shards that were used least
    recently go first. What a process reads stays. A shard that has changed in the store (by its ETag, or
    its size and time) is another file here.

    Args:
        folder: Where the shards are kept, on a local disk. Default None: the environment variable
            FASTLOADER_CACHE, or else ``fastloader`` in XDG_CACHE_HOME (``~/.cache``).
        max_bytes: The most that the folder may hold. Default None: half of what its file system has free
            and the folder holds now, together.
        storage_options: The options of obstore's ``from_url`` besides the URL (``region``, ``endpoint``,
            ``credential_provider``, ``client_options``), or fsspec for the schemes that obstore has no
            driver for. Default None: nothing. Both find credentials in the environment by themselves.
        timeout: The seconds for which a request that fails is tried again, with pauses, and for which a
            shard waits until there is room for it; default 30. A request of obstore's that stands still
            for a third of that has failed. fsspec's file systems have timeouts of their own.

    Attributes:
        folder: the path.
        max_bytes: the bound.

    ``counts()`` says how many requests were answered ("requests"), how many were made again
    ("retries"), what came ("bytes"), how many shards were fetched whole ("fetched"), how many files were
    removed for others ("evicted"), and how many shards were fetched again because their MD5 was not
    what their ETag says ("mismatches"). `FastLoader.stats` has the same under "remote".

    Raises:
        ValueError: if ``max_bytes`` is below 1, or ``timeout`` not above 0.
        RuntimeWarning: if the contents of a shard are not what its ETag says, but came so twice.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str] | None = None,
        max_bytes: int | None = None,
        *,
        storage_options: Mapping[str, Any] | None = None,
        timeout: float = 30.0,
    ) -> None:
        given = default_folder() if folder is None else os.path.expanduser(os.fspath(folder))
        self.folder = os.path.abspath(given)
        if max_bytes is not None and max_bytes < 1:
            raise ValueError(f"max_bytes={max_bytes}: at least one byte")
        if not 0 < timeout <= _LONGEST_TIMEOUT:
            raise ValueError(f"timeout={timeout}: seconds, above 0 and at most {_LONGEST_TIMEOUT}")
        most = _half_of_disk(self.folder) if max_bytes is None else int(max_bytes)
        self.max_bytes = most
        self._files = CacheFolder(self.folder, most, timeout)
        self._counters = Counters(_COUNTED)
        self.connection = Connection(dict(storage_options or {}), timeout, self._counters)
        # Of each root how many tags look like an MD5, and were one or were none. Threads that count at
        # the same time may lose one, which costs fetching one shard more a second time.
        self._md5s: dict[str, int] = {}
        self._not_md5s: dict[str, int] = {}

    def counts(self) -> dict[str, int]:
        """Counts what was done since this object was made, in all processes that have it."""
        return self._counters.totals()

    def objects(self, urls: Sequence[str]) -> list[RemoteObject]:
        """Returns the objects of these URLs, of which some may be patterns. Those of a pattern are
        sorted.

        Raises:
            FileNotFoundError: if one is missing, or a pattern matches none.
        """
        for url in urls:
            place_of(url)  # raises for what is no URL of an object
        plain = [url for url in urls if not is_pattern(url)]
        found = dict(zip(plain, self.connection.heads(plain), strict=True))
        objects = []
        for url in urls:
            if url in found:
                objects.append(found[url])
                continue
            matching = self._matching(url)
            if not matching:
                raise FileNotFoundError(f"{url}: no object matches")
            objects.extend(matching)
        return objects

    def _matching(self, url: str) -> list[RemoteObject]:
        pattern = "{}/{}".format(
            *place_of(url)
        )  # which has the root as the store's answers have it
        folder = folder_of(pattern)
        deep = "/" in pattern.removeprefix(folder + "/")
        there = self.connection.below(folder, lambda each: matches(each.url, pattern), deep)
        return sorted(there, key=lambda each: each.url)

    def whole(self, urls: Sequence[str]) -> list[Any]:
        """Reads the bytes of these objects, of which the folder keeps none."""
        return self.connection.whole(urls)

    def find(self, wanted: RemoteObject) -> HeldFile | None:
        """Returns the shard, if it is in the cache."""
        return self._files.find(wanted.file_name, wanted.size)

    def fetch(
        self,
        wanted: RemoteObject,
        stop: threading.Event | None = None,
        line: Progress | None = None,
    ) -> HeldFile:
        """Returns the shard, and fetches it if it is not in the cache. ``stop`` ends that, and ``line``
        shows how far it is.

        Raises:
            CacheFull: an Error, if there is no room.
            ChangedObject: a ValueError, if the store has another version now.
            Error: if the store cannot be read.
        """
        if wanted.size > self.max_bytes:
            raise Error(
                f"{wanted.url} has {wanted.size} bytes, more than the {self.max_bytes} of the cache "
                f"{self.folder}: give ShardCache a larger max_bytes"
            )

        ending = stop or threading.Event()

        written = False

        def write(descriptor: int) -> None:
            nonlocal written
            written, begun = True, time.monotonic()
            self._write(wanted, descriptor, ending, line)
            self._counters.add("fetched")
            seconds = time.monotonic() - begun
            _log.debug("fastloader: fetched %s: %d bytes, %.2f s", wanted.url, wanted.size, seconds)

        name, size, modified = wanted.file_name, wanted.size, wanted.modified
        held, removed = self._files.make(name, size, modified, write, ending)
        self._counters.add("evicted", removed)
        if line is not None and not written:
            line.step(size, anew=False)
        return held

    def path(self, wanted: RemoteObject) -> str:
        """Returns where the shard is in the folder, if it is there."""
        return self._files.path(wanted.file_name)

    def forget(self, wanted: RemoteObject) -> None:
        """Removes a shard that turned out to be damaged. Those who hold it keep what they have."""
        held = self.find(wanted)
        if held is not None:
            held.remove()
            held.close()

    def trim(self) -> None:
        """Makes the folder keep its bound after something was written beside a shard."""
        with contextlib.suppress(OSError):  # a folder that may only be read gets nothing more
            self._counters.add("evicted", self._files.trim())

    def room_for(self, objects: Sequence[RemoteObject]) -> int:
        """Returns the bytes that these objects may have in the folder, all together: what others use, in
        any process, is not theirs."""
        return self._files.room_for([each.file_name for each in objects])

    def each(
        self,
        work: Callable[[Any, threading.Event], Any],
        all_of: Sequence[Any],
    ) -> list[Any]:
        """Calls ``work`` for each, of which some run at the same time, and returns the results. An
        error, or Ctrl-C, ends the others."""
        stop = threading.Event()
        pool = ThreadPoolExecutor(_SHARDS_AT_ONCE, "fastloader-shards")
        try:
            return list(pool.map(lambda one: work(one, stop), all_of))
        finally:
            stop.set()
            pool.shutdown(cancel_futures=True)

    def _write(
        self,
        wanted: RemoteObject,
        descriptor: int,
        stop: threading.Event,
        line: Progress | None,
    ) -> None:
        before = None
        for _ in range(_MOST_FETCHES):
            self._write_parts(wanted, descriptor, stop, line)
            root = place_of(wanted.url).root
            never = self._not_md5s.get(root, 0) >= _NO_MD5 and not self._md5s.get(root)
            if wanted.md5 is None or never:
                return
            found = md5_of(descriptor)
            if found == wanted.md5:
                self._md5s[root] = self._md5s.get(root, 0) + 1
                return
            if found == before:
                # Twice the same, so this is what is there. Encrypted objects have such tags.
                self._not_md5s[root] = self._not_md5s.get(root, 0) + 1
                warn_of_tag(wanted, not self._md5s.get(root))
                return
            before = found
            self._counters.add("mismatches")
        raise Error(
            f"{wanted.url} came {_MOST_FETCHES} times with other contents, and never with those of its "
            f"ETag {wanted.etag}: something on the way changes them"
        )

    def _write_parts(
        self,
        wanted: RemoteObject,
        descriptor: int,
        stop: threading.Event,
        line: Progress | None,
    ) -> None:
        def write(begin: int) -> None:
            if stop.is_set() or exiting():
                raise Error(f"fetching {wanted.url} was given up")
            content = memoryview(
                self.connection.read(wanted, begin, min(begin + PART, wanted.size))
            )
            if line is not None:
                line.step(len(content))
            while content:
                written = os.pwrite(descriptor, content, begin)
                content, begin = content[written:], begin + written

        with ThreadPoolExecutor(_PARTS_AT_ONCE, "fastloader-parts") as pool:
            parts = [pool.submit(write, begin) for begin in range(0, wanted.size, PART)]
            try:
                for part in parts:
                    part.result()
            except BaseException:  # it ends the parts that have not begun
                pool.shutdown(wait=False, cancel_futures=True)
                raise


def default_folder() -> str:
    """Returns the folder of a cache for which none is named."""
    given = os.environ.get("FASTLOADER_CACHE")
    if given:
        return given
    return str(Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "fastloader")


def _half_of_disk(folder: str) -> int:
    there = folder
    while not os.path.isdir(there):
        there = os.path.dirname(there)
    return (shutil.disk_usage(there).free + CacheFolder(folder, 0).used()) // 2
