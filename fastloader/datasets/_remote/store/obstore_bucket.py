"""A bucket, through obstore."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote, unquote

from fastloader.datasets._formats.urls import is_http
from fastloader.datasets._remote.store.remote_object import RemoteObject

_CONNECT_SECONDS = 5
_PAGE = 1000  # objects, which is what the stores send at a time
_UNQUOTED = "/!$&'()*+,;=:@"  # what stands in the path of a URL as it is


class ObstoreBucket:
    """Whatever obstore has a driver for. Retries are the caller's, who counts them."""

    def __init__(self, root: str, options: Mapping[str, Any], stall: float) -> None:
        store = _obstore_module().store
        given = dict(options)
        client = {
            # An endpoint of http:// was asked for by the user. obstore refuses it otherwise.
            "allow_http": True,
            "connect_timeout": datetime.timedelta(seconds=min(_CONNECT_SECONDS, stall)),
            "read_timeout": datetime.timedelta(seconds=stall),
            # Of a whole request, which obstore gives 30 s: a slow line that goes on is no failure.
            "timeout": datetime.timedelta(hours=1),
            **given.pop("client_options", {}),
        }
        retry = given.pop("retry_config", {"max_retries": 0})
        # obstore would take https://bucket.s3.amazonaws.com for S3, and ask for credentials.
        self._by_http = is_http(root)
        make = store.HTTPStore.from_url if self._by_http else store.from_url
        self._store = make(root, client_options=client, retry_config=retry, **given)
        self._root = root

    def _name(self, path: str) -> str:
        """What obstore calls the object. It quotes the names of web servers' files itself, and in a URL
        they are quoted already."""
        return unquote(path, errors="surrogateescape") if self._by_http else path

    def _object(self, meta: Any) -> RemoteObject:
        modified = meta["last_modified"]
        nanoseconds = 0 if modified is None else max(0, int(modified.timestamp())) * 10**9
        path = quote(meta["path"], safe=_UNQUOTED) if self._by_http else meta["path"]
        # Azure's lists have the tags without the quotes that its headers have.
        etag = None if meta["e_tag"] is None else meta["e_tag"].strip('"')
        return RemoteObject(f"{self._root}/{path}", meta["size"], etag, nanoseconds)

    def head(self, path: str) -> RemoteObject:
        return self._object(self._store.head(self._name(path)))

    def get(self, wanted: RemoteObject, path: str, begin: int, end: int) -> Any:
        found = self._store.get(self._name(path), options={"range": (begin, end)})
        # The answer names its own version, so no condition is needed, which not all servers know.
        wanted.check(self._object(found.meta))
        return found.bytes()

    def whole(self, path: str) -> Any:
        found = self._store.get(self._name(path))
        self._object(found.meta).check_picture()
        return found.bytes()

    def below(self, path: str, after: str | None, deep: bool) -> Iterator[list[RemoteObject]]:
        if not deep:
            yield [self._object(each) for each in self._store.list_with_delimiter(path)["objects"]]
            return
        for some in self._store.list(path, offset=after, chunk_size=_PAGE):
            yield [self._object(each) for each in some]


def _obstore_module() -> Any:
    try:
        import obstore.store
    except ImportError:
        raise ImportError("object stores need obstore: pip install obstore") from None
    return obstore
