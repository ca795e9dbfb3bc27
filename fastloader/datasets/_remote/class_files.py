"""Folders of classes in an object store, by the names of the objects."""

from __future__ import annotations

import posixpath

from fastloader.datasets._remote.cache.shard_cache import ShardCache


def class_files(root: str, cache: ShardCache) -> dict[str, list[str]]:
    """The URLs below each folder in ``root``, by the folder's name, in the order in which a walk over
    folders of a disk meets them: folders sorted by their whole path, names sorted in each."""
    begin = len(root.rstrip("/")) + 1
    found: dict[str, list[str]] = {}
    for each in cache.connection.below(root):
        name, slash, rest = each.url[begin:].partition("/")
        if slash and rest:
            found.setdefault(name, []).append(each.url)
    for urls in found.values():
        urls.sort(key=posixpath.split)
    return found
