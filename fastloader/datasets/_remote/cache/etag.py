"""What an object's ETag says of its contents."""

from __future__ import annotations

import hashlib
import os
import warnings

from fastloader.datasets._formats.urls import place_of
from fastloader.datasets._remote.store.remote_object import RemoteObject

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
