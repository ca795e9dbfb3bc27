"""A bucket, through fsspec."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping
from typing import Any

from fastloader.datasets._formats.urls import scheme_of
from fastloader.datasets._remote.store.remote_object import RemoteObject


class FsspecBucket:
    """Whatever fsspec knows, such as hf:// or sftp://. Its file systems have timeouts of their own."""

    def __init__(self, root: str, options: Mapping[str, Any]) -> None:
        try:
            import fsspec
        except ImportError:
            raise ImportError(
                f"{root}: obstore has no driver for {scheme_of(root)}://, and fsspec, which may have "
                "one, is missing: pip install fsspec"
            ) from None
        self._files, self._base = fsspec.core.url_to_fs(root, **options)
        self._root = root

    def _object(self, path: str, found: Mapping[str, Any]) -> RemoteObject:
        etag = next(
            (found[key] for key in ("ETag", "etag", "oid", "blob_id") if found.get(key)), None
        )
        times = (found.get(key) for key in ("mtime", "LastModified", "last_modified", "created"))
        modified = next((each for each in times if each is not None), 0)
        if isinstance(modified, datetime.datetime):
            modified = modified.timestamp()
        seconds = int(modified) if isinstance(modified, int | float) else 0
        tag = None if etag is None else str(etag)
        return RemoteObject(f"{self._root}/{path}", int(found["size"]), tag, seconds * 10**9)

    def _full(self, path: str) -> str:
        return f"{self._base.rstrip('/')}/{path}"

    def head(self, path: str) -> RemoteObject:
        # Some file systems keep what they were told of a file, such as its version.
        self._files.invalidate_cache(self._full(path))
        found = self._files.info(self._full(path))
        if found["type"] != "file":
            raise FileNotFoundError(path)
        return self._object(path, found)

    def get(self, wanted: RemoteObject, path: str, begin: int, end: int) -> Any:
        found = self._files.cat_file(self._full(path), start=begin, end=end)
        # fsspec has no condition, and its answer does not name its version. So the version is looked at
        # behind the reading: no version comes back once there was another one.
        wanted.check(self.head(path))
        return found

    def whole(self, path: str) -> Any:
        self.head(path).check_picture()
        return self._files.cat_file(self._full(path))

    def below(self, path: str, after: str | None, deep: bool) -> Iterator[list[RemoteObject]]:
        begin = len(self._full(""))
        folder = self._full(path).rstrip("/")
        self._files.invalidate_cache(folder)
        found = self._files.find(folder, maxdepth=None if deep else 1, detail=True)
        listed = [self._object(name[begin:], each) for name, each in found.items()]
        yield [each for each in listed if after is None or each.path > after]
