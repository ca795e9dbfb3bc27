"""A bucket, by whichever library reaches it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Protocol

from fastloader.datasets._formats.urls import OBSTORE, scheme_of
from fastloader.datasets._remote.store.fsspec_bucket import FsspecBucket
from fastloader.datasets._remote.store.obstore_bucket import ObstoreBucket
from fastloader.datasets._remote.store.remote_object import RemoteObject


class Bucket(Protocol):
    """The objects below one root. Its methods raise what its library raises."""

    def head(self, path: str) -> RemoteObject: ...

    def get(self, wanted: RemoteObject, path: str, begin: int, end: int) -> Any:
        """The bytes from ``begin`` to ``end`` of this version. Raises ChangedObject for another one."""
        ...

    def whole(self, path: str) -> Any:
        """All bytes of the version that is there now. Raises Error for more than a picture has."""
        ...

    def below(self, path: str, after: str | None, deep: bool) -> Iterator[list[RemoteObject]]:
        """The objects whose path begins with ``path`` and a slash, page by page. With ``after``, only
        those whose path comes behind that one. Without ``deep``, only those with no further slash."""
        ...


def open_bucket(root: str, options: Mapping[str, Any], stall: float) -> Bucket:
    """``stall``: the seconds without a byte after which a request fails, by obstore.

    Raises:
        ImportError: if the library is missing.
    """
    if scheme_of(root) in OBSTORE:
        return ObstoreBucket(root, options, stall)
    return FsspecBucket(root, options)
