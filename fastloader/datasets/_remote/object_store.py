"""Asks object stores: by fsspec or obstore, with what is tried again and what is counted."""

from __future__ import annotations

import dataclasses
import datetime
import hashlib
import logging
import posixpath
import random
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol, TypeVar
from urllib.parse import quote, unquote

from fastloader._core.machine import identity
from fastloader._core.machine.messages import SILENT, progress
from fastloader._core.machine.process import HomeProcess, ProcessLock, exiting
from fastloader.datasets._formats.paths import OBSTORE, is_http, place_of, scheme_of
from fastloader.datasets._formats.sample_form import Counters
from fastloader.errors import Error

# ---- One version of an object in a store.


MOST_PICTURE = 1 << 30  # bytes


class ChangedObject(ValueError):
    """An object is no longer the one that its dataset was made of."""


@dataclasses.dataclass(frozen=True, slots=True)
class RemoteObject:
    """One version of an object. ``url``: where it is. ``size``: its bytes. ``etag``: what the store
    calls this version, without quotes, or None. ``modified``: when it was written, in nanoseconds since
    1970; 0: the store does not tell."""

    url: str
    size: int
    etag: str | None
    modified: int

    def check(self, found: RemoteObject) -> None:
        """Raises ChangedObject if what was ``found`` at the URL is another version."""
        same_tag = self.etag == found.etag
        # Servers of one site may differ in times. A tag names the version, so it decides alone.
        same_time = self.etag is not None or self.modified == found.modified
        if self.size != found.size or not same_tag or not same_time:
            raise self.changed()

    def changed(self) -> ChangedObject:
        return ChangedObject(
            f"{self.url} has changed since its dataset was made: make the dataset anew"
        )

    def check_picture(self) -> None:
        """Raises Error if it is larger than any picture, which is read at once."""
        if self.size > MOST_PICTURE:
            raise Error(
                f"{self.url}: {self.size} bytes are no picture: at most {MOST_PICTURE} are read at once"
            )

    @property
    def path(self) -> str:
        """The object's path in its bucket."""
        return place_of(self.url).path

    @property
    def md5(self) -> str | None:
        """The MD5 of the contents, according to the tag. A store may use a tag of this form for
        something else."""
        tag = (self.etag or "").lower()
        is_hash = len(tag) == 32 and not set(tag) - set("0123456789abcdef")
        return tag if is_hash else None

    @property
    def file_name(self) -> str:
        """The name of a file that holds this version, and no other one. Of the URL's own name it has
        what any file system takes, at most 100 bytes."""
        identity = "\0".join(map(str, (self.url, self.size, self.etag, self.modified)))
        hashed = hashlib.sha256(identity.encode("utf-8", "surrogateescape")).hexdigest()[:24]
        shown = re.sub(r"[^\w.-]", "_", posixpath.basename(self.url), flags=re.ASCII)
        return f"{hashed}-{shown[-100:]}"


# ---- A bucket, through fsspec.


class FsspecBucket:
    """A bucket of whatever fsspec knows, such as hf:// or sftp://. Its file systems have timeouts of
    their own."""

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


# ---- A bucket, through obstore.


_CONNECT_SECONDS = 5
_PAGE = 1000  # objects, which is what the stores send at a time
_UNQUOTED = "/!$&'()*+,;=:@"  # what stands in the path of a URL as it is


class ObstoreBucket:
    """A bucket of whatever obstore has a driver for. The caller tries again, because it counts that."""

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
        """Returns what obstore calls the object. It quotes the names of web servers' files itself, and
        in a URL they are quoted already."""
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


# ---- A bucket, by whichever library reaches it.


class Bucket(Protocol):
    """The objects below one root. Its methods raise what its library raises."""

    def head(self, path: str) -> RemoteObject: ...

    def get(self, wanted: RemoteObject, path: str, begin: int, end: int) -> Any:
        """Reads the bytes from ``begin`` to ``end`` of this version. Raises ChangedObject for another
        one."""
        ...

    def whole(self, path: str) -> Any:
        """Reads all bytes of the version that is there now. Raises Error for more than a picture has."""
        ...

    def below(self, path: str, after: str | None, deep: bool) -> Iterator[list[RemoteObject]]:
        """Lists the objects whose path begins with ``path`` and a slash, page by page. With ``after``,
        only those whose path comes behind that one. Without ``deep``, only those with no further
        slash."""
        ...


def open_bucket(root: str, options: Mapping[str, Any], stall: float) -> Bucket:
    """Opens a bucket. ``stall``: the seconds without a byte after which a request fails, by obstore.

    Raises:
        ImportError: if the library is missing.
    """
    if scheme_of(root) in OBSTORE:
        return ObstoreBucket(root, options, stall)
    return FsspecBucket(root, options)


# ---- Requests that fail: which may succeed later, and what is said of the others.


# What a server says of a request that it would refuse again, and what our side finds wrong with it.
# A certificate that is damaged (Bad...) was harmed on the way. Without a length it is no file.
_HOPELESS = re.compile(
    r"status code: 4(?!08|25|29)\d\d|builder error|InvalidCertificate\((?!\s*Bad)|not.?supported"
    r"|Content-Length Header missing",
    re.I,
)


_OBSTORE = "obstore.exceptions"


class Refused(Error):
    """The store does not let these credentials read an object, or does not tell that there is none."""


def may_pass(error: Exception) -> bool:
    """Returns whether a request that failed so may succeed later."""
    if _is_any(error, _OBSTORE, "BaseError"):
        passing = _is_any(error, _OBSTORE, "GenericError", "JoinError")
        return passing and not _HOPELESS.search(str(error))
    if isinstance(error, PermissionError | IsADirectoryError):
        return False
    # What aiohttp finds wrong with an answer, of fsspec's files over HTTP.
    of_http = _is_any(error, "aiohttp", "ClientError") or _is_any(
        error, "aiohttp.http_exceptions", "HttpProcessingError"
    )
    return of_http or isinstance(error, OSError | EOFError)


def _is_any(error: Exception, module: str, *names: str) -> bool:
    """Returns whether it is an exception of one of these classes, of a library that may not be there."""
    return any(isinstance(error, identity.found(module, name) or ()) for name in names)


def explained(url: str, error: Exception, what: str = "") -> Error:
    """Makes an error of the library's exception, without what it may have of signatures and keys in its
    text or its chain."""
    text, _, details = str(error).partition("Debug source")
    text = " ".join(re.sub(r"\?\S+", "?...", text).split())[:500]
    messages = re.findall(r'message: "([^"]*)"', details)
    if "InvalidCertificate" in details:
        messages = ["the server's certificate is not trusted"]
    elif "TimedOut" in details:
        messages = ["no answer in time"]
    why = f" ({messages[0]})" if messages else ""
    refused = isinstance(error, PermissionError) or _is_any(
        error, _OBSTORE, "PermissionDeniedError", "UnauthenticatedError"
    )
    # Some web servers answer with a page that says that there is no such file.
    refused |= "MissingContentLength" in details
    kind = Refused if refused else Error
    return kind(f"{url}: {what}{type(error).__name__}: {text}{why}")


# ---- A list of objects, which goes on where a page of it failed.


class Listing:
    """The objects below one URL. Memory holds those that ``wanted`` takes, and one page.

    Stores list by path. So what reads a list again asks for the paths behind the last one. A list that
    turns out to be in no order begins anew."""

    def __init__(self, wanted: Callable[[RemoteObject], bool], deep: bool) -> None:
        self.found: list[RemoteObject] = []
        self._accepts = wanted
        self._deep = deep
        self._pages: Iterator[list[RemoteObject]] | None = None
        self._last: str | None = None
        self._ascending = True

    def take_page(self, bucket: Bucket, path: str) -> bool:
        """Takes one more page, and returns whether there was one. If it raises, the next call asks for
        the same page."""
        if self._pages is None:
            if not self._ascending:
                self.found, self._last = [], None
            self._pages = bucket.below(path, self._last, self._deep)
        try:
            page = next(self._pages, None)
        except BaseException:
            self._pages = None
            raise
        for entry in page or ():
            self._ascending &= self._last is None or self._last < entry.path
            self._last = entry.path
            if self._accepts(entry):
                self.found.append(entry)
        return page is not None


# ---- Requests for several places of an object.


PART = 4 << 20  # the most bytes that one request asks for
GAP = 1 << 18  # bytes that are read and thrown away rather than asked for around


def coalesced(places: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Returns the (begin, end) of requests for these (offset, size): neighbours with a gap of at most
    `GAP` between them share one, and none asks for more than `PART`."""
    spans: list[tuple[int, int]] = []
    for offset, size in sorted(places):
        end = offset + size
        if spans and offset - spans[-1][1] <= GAP:
            spans[-1] = spans[-1][0], max(spans[-1][1], end)
        elif size:
            spans.append((offset, end))
    return [
        (begin, min(begin + PART, end)) for first, end in spans for begin in range(first, end, PART)
    ]


# ---- Requests to object stores: what is tried again, and what is counted.


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
        """Lists the objects whose URL begins with this one and a slash, if ``wanted`` takes them;
        without ``deep``, only those with no further slash. Raises ValueError for a web server."""
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
        """Reads the bytes from ``begin`` to ``end``, at most `PART` of them.

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
        """Reads all bytes of these objects, at the same time."""

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
        """Begins to read the (offset, size) of one object in ``pool``, where neighbours share a request,
        and returns a function that waits for them."""
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
