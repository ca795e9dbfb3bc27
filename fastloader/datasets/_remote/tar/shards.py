"""The shards of a dataset: files of this machine, or objects in a store."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeAlias

from fastloader._core.machine.limits import available_threads
from fastloader._core.machine.messages.progress import SILENT, Progress, progress
from fastloader.datasets._formats.tar.shard import TarShard
from fastloader.datasets._formats.urls import is_url, place_of
from fastloader.datasets._remote.cache.cache_full import CacheFull
from fastloader.datasets._remote.cache.shard_cache import ShardCache
from fastloader.datasets._remote.store.connection import TOGETHER
from fastloader.datasets._remote.store.remote_object import RemoteObject
from fastloader.datasets._remote.tar.remote_tar import RemoteTarShard

_log = logging.getLogger("fastloader")

Shard: TypeAlias = TarShard | RemoteTarShard


def open_shards(
    named: Sequence[str], index_dir: str | None, cache: ShardCache | None
) -> tuple[list[Shard], ShardCache | None]:
    """The shards of these paths or URLs, and the cache of those that come from URLs. If it has room for
    all of them beside what is in use of others, they are fetched and stay there."""
    for each in filter(is_url, named):
        place_of(each)  # raises for what no message may show
    urls = [is_url(each) for each in named]
    if not any(urls):
        return _local(named, index_dir), None
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


def _local(paths: Sequence[str], index_dir: str | None) -> list[Shard]:
    begun = time.monotonic()
    with progress("looking through shards", len(paths), "shards", SILENT) as line:

        def opened(path: str) -> Shard:
            shard = TarShard(path, index_dir)
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
    """The shards, which stay in the cache; None if others have begun to use its room meanwhile."""
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
    """The contents of files, each given by its shard, offset and size. All shards are read at the same
    time."""
    by_shard: dict[int, list[int]] = {}
    for number, (shard, _offset, _size) in enumerate(wanted):
        by_shard.setdefault(id(shard), []).append(number)
    found = [b""] * len(wanted)
    # Of this call: a thread that a worker thread starts keeps what that works for, such as the dataset.
    with ThreadPoolExecutor(TOGETHER, "fastloader-remote") as pool:
        reading = [
            (its, wanted[its[0]][0].begin_read([wanted[number][1:] for number in its], pool))
            for its in by_shard.values()
        ]
        for its, finish in reading:
            for number, content in zip(its, finish(), strict=True):
                found[number] = content
    return found
