"""Tar shards that lie in an object store, and the order that reads them in few requests."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeAlias

from fastloader._core.machine.limits import available_threads
from fastloader._core.machine.messages import SILENT, Progress, progress
from fastloader._core.machine.process import ProcessLock
from fastloader.datasets._formats.paths import is_http, is_url, place_of
from fastloader.datasets._formats.tar_shards import (
    ENDING,
    DamagedTar,
    TarIndex,
    TarShard,
    forget_index,
    keep_index,
    kept_index,
)
from fastloader.datasets._remote.cache_folder import CacheFull, HeldFile
from fastloader.datasets._remote.object_store import PART, TOGETHER, Refused, RemoteObject
from fastloader.datasets._remote.shard_cache import ShardCache

# ---- One shard in an object store.


_HEADER = 512  # bytes, in front of a file in a tar
_MOST_INDEX = 1 << 30  # bytes
_ZIP = b"PK\x03\x04"  # with which an index begins


class RemoteTarShard:
    """A tar in an object store, and where its samples are.

    The index is the one that was kept from last time, or lies beside the shard in the store
    (``<shard>.fastloader-tar``), or is made of the shard, which is fetched for that.

    Args:
        whole: whether the shard is kept in the cache as long as this object lives. Otherwise it is read
            from the cache if it is there, and by ranges from the store if not.
        line: shows how far fetching is.

    Raises:
        DamagedTar: a ValueError, if it is no whole tar, or the index beside it is of another one.
    """

    _held: HeldFile | None
    _local: TarShard | None

    def __init__(
        self,
        cache: ShardCache,
        wanted: RemoteObject,
        index_dir: str | None,
        whole: bool,
        stop: threading.Event | None = None,
        line: Progress | None = None,
    ) -> None:
        self.cache = cache
        self.object = wanted
        self.path = wanted.url
        self.whole = whole
        self._index_dir = index_dir
        self.__setstate__({})
        index = None if whole else self._kept_index()
        kept = index is not None
        if index is None and not whole:
            index = self._index_beside()
        if index is None:
            held = cache.fetch(wanted, stop, line)
            local = self._mapped(held)
            index = local.index
            if whole:
                self._held, self._local = held, local
            else:
                held.close()
        self.index: TarIndex = index
        if not kept:
            self.cache.trim()

    def __getstate__(self) -> dict[str, Any]:
        left_out = {"_held", "_local", "_mapping"}
        return {name: each for name, each in self.__dict__.items() if name not in left_out}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._mapping = ProcessLock()  # guards the two below
        self._held = None
        self._local = None

    def let_go(self) -> None:
        """Releases the shard's room, which the cache may use when it needs that."""
        held, self._held, self._local = self._held, None, None
        if held is not None:
            held.close()

    @property
    def local_file(self) -> bool:
        """Whether the shard stays on this machine, as a file of it."""
        return self.whole

    # --- as `TarShard`, of a shard that is kept ----------------------------------------------------

    @property
    def mapping(self) -> Any:
        return self.local.mapping

    @property
    def local(self) -> TarShard:
        """The shard in the cache, which is fetched anew in a process that got this object by pickle and
        no longer finds it there."""
        with self._mapping.lock:
            if self._local is None:
                self._held = self.cache.fetch(self.object)
                self._local = self._mapped(self._held)
            return self._local

    @property
    def mapped_file(self) -> TarShard | None:
        return self.local if self.whole else None

    def will_need(self, offset: int, size: int) -> None:
        self.local.will_need(offset, size)

    def begin_read(
        self, places: Sequence[tuple[int, int]], pool: ThreadPoolExecutor
    ) -> Callable[[], list[bytes]]:
        """Begins to read the files at these (offset, size) in ``pool``, and returns a function that
        waits for them."""
        if self.whole:
            return self.local.begin_read(places, pool)
        # With its header in front of each, which tells whether the index is right.
        wanted = [(offset - _HEADER, size + _HEADER) for offset, size in places]
        if any(begin < 0 for begin, _size in wanted):
            raise self._other_index(min(places)[0])
        reading = self._begin_read(wanted, pool)

        def finished() -> list[bytes]:
            files = reading()
            for content, (offset, size) in zip(files, places, strict=True):
                if not _is_header(content[:_HEADER], size):
                    raise self._other_index(offset)
            return [content[_HEADER:] for content in files]

        return finished

    def _begin_read(
        self, places: Sequence[tuple[int, int]], pool: ThreadPoolExecutor
    ) -> Callable[[], list[bytes]]:
        """Begins to read any places, from the cache or the store."""
        held = self.cache.find(self.object)
        if held is None:
            return self.cache.connection.begin_read(self.object, places, pool)
        there = [held.read(begin, size) for begin, size in places]
        held.close()
        return lambda: there

    # --- the index ---------------------------------------------------------------------------------

    def _kept_index(self) -> TarIndex | None:
        return kept_index(
            self.cache.path(self.object), self.object.size, self.object.modified, self._index_dir
        )

    def _index_beside(self) -> TarIndex | None:
        """Reads the index beside the shard in the store; None if there is none, or it is older than the
        shard."""
        connection = self.cache.connection
        try:
            found = connection.head(self.path + ENDING)
        except (
            FileNotFoundError,
            Refused,
        ):  # S3 says this of a missing object to those who may not list
            return None
        if found.modified < self.object.modified:
            return None
        if found.size > _MOST_INDEX:
            raise DamagedTar(f"{found.url} has {found.size} bytes: that is no index of a shard")
        parts = [
            bytes(connection.read(found, begin, min(begin + PART, found.size)))
            for begin in range(0, found.size, PART)
        ]
        content = b"".join(parts)
        if is_http(found.url) and not content.startswith(_ZIP):
            return None  # some web servers answer with a page that says that there is no such file
        with contextlib.suppress(OSError):  # the index is not kept then
            os.makedirs(self.cache.folder, exist_ok=True)
        status = self.object.size, self.object.modified
        try:
            return keep_index(
                content, self.cache.path(self.object), status, self._index_dir, self._read
            )
        except DamagedTar:
            raise DamagedTar(
                f"{found.url} is damaged, or the index of another shard: remove it, or make it anew"
            ) from None

    def _read(self, places: Sequence[tuple[int, int]]) -> list[bytes]:
        with ThreadPoolExecutor(TOGETHER, "fastloader-index") as pool:
            return self._begin_read(places, pool)()

    def _mapped(self, held: HeldFile) -> TarShard:
        try:
            return TarShard(held.path, self._index_dir)
        except DamagedTar as error:
            self.cache.forget(self.object)
            raise DamagedTar(str(error).replace(held.path, self.path)) from None

    def _other_index(self, offset: int) -> DamagedTar:
        """Makes the error of a shard and an index that do not fit. What the cache has of both goes,
        because either may have been harmed there."""
        forget_index(self.cache.path(self.object), self._index_dir)
        self.cache.forget(self.object)
        return DamagedTar(
            f"{self.path}: at byte {offset} is no file of the size that its index says. What the cache "
            f"had of both is removed: make the dataset anew. If that fails as well, {self.path}{ENDING} "
            "is the index of another shard: remove it, or make it anew"
        )


def _is_header(block: bytes, size: int) -> bool:
    """Returns whether this is the header of a file of that size in a tar."""
    if len(block) < _HEADER:
        return False
    total = sum(block) - sum(block[148:156]) + 8 * 32  # the sum's own field counts as spaces
    return _number(block[148:156]) == total and _number(block[124:136]) == size


def _number(field: bytes) -> int | None:
    if field[0] & 0x80:  # GNU's, of files of 8 GB and more
        return int.from_bytes(field, "big") & ((1 << (8 * len(field) - 8)) - 1)
    try:
        return int(field.strip(b" \0") or b"0", 8)
    except ValueError:
        return None


# ---- The shards of a dataset: files of this machine, or objects in a store.


_log = logging.getLogger("fastloader")

Shard: TypeAlias = TarShard | RemoteTarShard


def open_shards(
    named: Sequence[str], index_dir: str | None, cache: ShardCache | None, keep_indices: bool
) -> tuple[list[Shard], ShardCache | None]:
    """Opens the shards of these paths or URLs, and returns them with the cache of those that come from
    URLs. If it has room for all of them beside what is in use of others, they are fetched and stay
    there. ``keep_indices``: whether shards of paths keep their indices in memory."""
    for each in filter(is_url, named):
        place_of(each)  # raises for what no message may show
    urls = [is_url(each) for each in named]
    if not any(urls):
        return _local(named, index_dir, keep_indices), None
    if not all(urls):
        raise ValueError(
            f"{named[0]} and {named[urls.index(not urls[0])]}: the shards of a dataset are "
            "files or URLs. A ConcatDataset has both"
        )
    kept = cache or ShardCache()
    objects = kept.objects(named)
    needed = sum(each.size for each in {each.url: each for each in objects}.values())
    if needed <= kept.room_for(objects):
        with progress("fetching shards", needed, "bytes", SILENT) as line:
            whole = _fetched(kept, objects, index_dir, line)
        if whole is not None:
            return whole, kept
    return kept.each(
        lambda one, stop: RemoteTarShard(kept, one, index_dir, False, stop), objects
    ), kept


def _local(paths: Sequence[str], index_dir: str | None, keep_indices: bool) -> list[Shard]:
    begun = time.monotonic()
    with progress("looking through shards", len(paths), "shards", SILENT) as line:

        def opened(path: str) -> Shard:
            shard = TarShard(path, index_dir, keep_indices)
            line.step()
            return shard

        with ThreadPoolExecutor(available_threads()) as pool:
            shards = list(pool.map(opened, paths))
    seconds = time.monotonic() - begun
    _log.info("fastloader: %s: %d shards, in %.2f s", paths[0], len(shards), seconds)
    return shards


def _fetched(
    cache: ShardCache, objects: Sequence[RemoteObject], index_dir: str | None, line: Progress
) -> list[Shard] | None:
    """Fetches the shards, which stay in the cache; None if others have begun to use its room
    meanwhile."""
    fetched: list[RemoteTarShard] = []

    def fetch(one: RemoteObject, stop: threading.Event) -> RemoteTarShard:
        shard = RemoteTarShard(cache, one, index_dir, True, stop, line)
        fetched.append(shard)
        return shard

    try:
        return cache.each(fetch, objects)
    except CacheFull:
        for shard in fetched:
            shard.let_go()
        return None


def read_files(wanted: Sequence[tuple[Shard, int, int]]) -> list[bytes]:
    """Reads the contents of files, each given by its shard, offset and size. All shards are read at the
    same time."""
    by_shard: dict[int, list[int]] = {}
    for number, (shard, _offset, _size) in enumerate(wanted):
        by_shard.setdefault(id(shard), []).append(number)
    found = [b""] * len(wanted)
    # Of this call: a thread that a worker thread starts keeps what that works for, such as the dataset.
    with ThreadPoolExecutor(TOGETHER, "fastloader-remote") as pool:
        reading = [
            (group, wanted[group[0]][0].begin_read([wanted[number][1:] for number in group], pool))
            for group in by_shard.values()
        ]
        for group, finish in reading:
            for number, content in zip(group, finish(), strict=True):
                found[number] = content
    return found
