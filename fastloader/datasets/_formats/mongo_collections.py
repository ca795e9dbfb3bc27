"""Reads the collections behind `MongoImages`."""

from __future__ import annotations

import json
import logging
import os
import queue
import random
import re
import struct
import threading
import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import Any, TypeVar
from urllib.parse import unquote_plus

import numpy as np

from fastloader._core.machine.process import HomeProcess, Stop, stop_of_thread
from fastloader.datasets._formats.sample_form import Counters
from fastloader.errors import Error

# ---- The connection to a MongoDB server: one client for each process, and what is tried again.


_log = logging.getLogger("fastloader")

Result = TypeVar("Result")

_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 5.0  # seconds between two attempts, which grow
_jitter = random.Random()  # of its own: the user's draws stay what they are


class Connection:
    """Makes a client when a process first needs one: after a fork, as the driver demands.

    Args:
        uri: ``mongodb://...``, whose own options count before those that are set here.
        timeout: the seconds after which a server that does not answer is an error. Until then what the
            driver calls a lost connection is tried again, with pauses.
    """

    def __init__(self, uri: str, database: str, timeout: float, counters: Counters) -> None:
        self.uri = uri
        self.database = database
        self.timeout = timeout
        self.counters = counters
        self._client: Any = None
        self._home: HomeProcess | None = None
        self._making = threading.Lock()  # guards the two above

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_client": None, "_home": None, "_making": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._making = threading.Lock()

    def _own_client(self) -> Any:
        if self._home is None or not self._home.here:
            # A thread of the parent may have held the lock, and a client of the parent is not to be
            # used, nor closed, here.
            if self._home is not None:
                self._making = threading.Lock()
            with self._making:
                if self._home is not None and self._home.here:
                    return self._client  # another thread has made it
                self._client, self._home = _client(self.uri, self.timeout), HomeProcess()
        return self._client

    def call(self, work: Callable[[Any], Result]) -> Result:
        """Returns ``work(database)``, which only reads.

        The driver cannot be told to give a query up. So a worker thread has another thread ask, and
        leaves that behind when it is to end itself: a loop that ends does not wait for the server. What
        is left behind is not tried again.

        Raises:
            Error: which names the server, for whatever the driver raises, and once the time is over.
        """
        stop = stop_of_thread()
        if stop is None:
            return self._ask(work)
        answer: queue.SimpleQueue[tuple[Any, BaseException | None]] = queue.SimpleQueue()

        def ask() -> None:
            try:
                answer.put((self._ask(work, stop), None))
            except BaseException as error:
                answer.put((None, error))

        with stop.waking(lambda: answer.put((None, self._ended_error()))):
            threading.Thread(target=ask, name="mongodb-query", daemon=True).start()
            found, error = answer.get()
        if error is not None:
            try:
                raise error
            finally:
                del error  # breaks the cycle of this frame and the error
        result: Result = found
        return result

    def _ask(self, work: Callable[[Any], Result], stop: Stop | None = None) -> Result:
        from pymongo.errors import AutoReconnect, CursorNotFound

        begun = time.monotonic()
        pause = _FIRST_PAUSE
        while True:
            try:
                return work(self._own_client()[self.database])
            except BadDocument:
                raise
            except (AutoReconnect, CursorNotFound) as error:
                if time.monotonic() - begun + pause > self.timeout:
                    raise self._error(error, f"gave up after {self.timeout:g} s: ") from None
                name = type(error).__name__
                _log.info("fastloader: asks MongoDB at %s again (%s)", servers_of(self.uri), name)
            except Exception as error:  # pymongo raises more than its own errors
                raise self._error(error) from None
            seconds = pause * _jitter.uniform(0.5, 1)  # not all workers at the same moment
            if stop is None:
                time.sleep(seconds)
            elif stop.wait(seconds):
                raise self._ended_error()
            self.counters.add("retries")
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _ended_error(self) -> Error:
        return Error(f"MongoDB at {servers_of(self.uri)}: the loader ended before the answer came")

    def _error(self, error: BaseException, what: str = "") -> Error:
        """Makes an error of the driver's exception without the password, which it may have in its text
        or its chain."""
        text = hidden(str(error), self.uri).partition(" (configured timeouts")[0]
        return Error(
            f"MongoDB at {servers_of(self.uri)}, database {self.database}: {what}"
            f"{type(error).__name__}: {text[:500]}"
        )


class BadDocument(ValueError):
    """A sample's document is missing, or is not what it has to be."""


def mongo_module() -> Any:
    try:
        import pymongo
    except ImportError:
        raise ImportError("MongoDB needs pymongo: pip install pymongo") from None
    return pymongo


def _client(uri: str, timeout: float) -> Any:
    milliseconds = int(timeout * 1000)
    options = {
        "appname": "fastloader",
        "serverselectiontimeoutms": min(5000, milliseconds),
        "connecttimeoutms": min(5000, milliseconds),
        "sockettimeoutms": milliseconds,
        "retryreads": False,  # by `Connection.call`, which counts
    }
    query = uri.partition("?")[2].lower()
    for name in list(options):
        if f"{name}=" in query:
            del options[name]
    return mongo_module().MongoClient(uri, connect=False, **options)


def servers_of(uri: str) -> str:
    """Returns the part of a URI that may be shown: the servers, without user, password and options."""
    return _authority(uri).rpartition("@")[2] or "?"


def _authority(uri: str) -> str:
    """Returns user, password and servers."""
    return re.split(r"[/?]", uri.partition("://")[2], maxsplit=1)[0]


def hidden(text: str, uri: str) -> str:
    """Hides the password of the URI in a text, as it is written there and as it is meant."""
    before, at, _servers = _authority(uri).rpartition("@")
    secrets = [before.partition(":")[2]] if at else []
    secrets += re.findall(r"[?&]tlsCertificateKeyFilePassword=([^&]+)", uri, re.IGNORECASE)
    for secret in [*secrets, *map(unquote_plus, secrets)]:
        text = text.replace(secret, "***") if secret else text
    return text


# ---- The documents of a reply, whose pictures stay where the driver has put the reply.
#
# To decode a reply is to copy each of its pictures into memory that is new to the process,
# which takes longer than all else that Python does for a picture.


_NUMBER = struct.Struct("<i")
_BINARY, _GENERIC = 0x05, 0x00  # the type of an element, and what kind of bytes it holds
# How long the values are of the types (bsonspec.org) that may stand before a picture.
_LENGTHS = {0x01: 8, 0x07: 12, 0x08: 1, 0x09: 8, 0x0A: 0, 0x10: 4, 0x11: 8, 0x12: 8, 0x13: 16}
_TEXTS = (0x02, 0x0D, 0x0E)  # a length, and so many bytes behind it
_DOCUMENTS = (0x03, 0x04)  # a length that counts itself


def documents(reply: bytes, field: str, options: Any) -> Iterator[dict[str, Any]]:
    """Decodes the documents of one reply of ``find_raw_batches``. The value of ``field`` is a memoryview
    of the reply, if it is bytes and no field of a field; all else is what the driver makes of it with
    these ``options``."""
    import bson

    view, at = memoryview(reply), 0
    name = field.encode()
    while at < len(view):
        size = int.from_bytes(view[at : at + 4], "little", signed=True)
        if size < 5 or at + size > len(view):
            raise bson.errors.InvalidBSON(f"a document of {size} bytes, {len(view) - at} are there")
        document = view[at : at + size]
        place = _place_of(document, name)
        if place is None:
            yield bson.decode(document, options)
        else:
            begin, picture, end = place
            # The same document without the element.
            rest = b"".join((_NUMBER.pack(size - end + begin), document[4:begin], document[end:]))
            yield {**bson.decode(rest, options), field: document[picture:end]}
        at += size


def _place_of(document: memoryview, name: bytes) -> tuple[int, int, int] | None:
    """Returns where the element of this name begins, where its bytes begin, and where they end. None if
    it has no plain bytes, or stands behind something that is not known here."""
    at, last = 4, len(document) - 1
    # Names are short. Behind this there is the picture, in a document of few fields.
    head = bytes(document[:4096])
    try:
        while at < last:
            kind, value = head[at], head.index(0, at + 1) + 1
            if kind in _LENGTHS:
                end = value + _LENGTHS[kind]
            elif kind in _TEXTS:
                end = value + 4 + _NUMBER.unpack_from(document, value)[0]
            elif kind in _DOCUMENTS:
                end = value + _NUMBER.unpack_from(document, value)[0]
            elif kind == _BINARY:
                end = value + 5 + _NUMBER.unpack_from(document, value)[0]
            else:
                return None
            if not value <= end <= last:
                return None  # the driver says what is wrong
            if head[at + 1 : value - 1] == name:
                plain = kind == _BINARY and document[value + 4] == _GENERIC
                return (at, value + 5, end) if plain else None
            at = end
    except (IndexError, ValueError, struct.error):  # it is cut off, or further behind
        pass
    return None


# ---- The documents of a batch, in one query.


# What a batch's documents may take together: a batch of 256 pictures of 16 MB, the most that MongoDB
# has in a document, would take 4 GB.
MOST_BYTES = 1 << 30

TWICE = object()  # stands for the picture where two documents have one key


class Documents:
    """Reads pictures and labels by their keys. ``image``: the field of pictures, bytes. ``label``: the
    field of labels or None; a dotted name is a field within a field."""

    def __init__(self, collection: str, key: str, image: str, label: str | None) -> None:
        self.collection = collection
        self.key = key
        self.image = image
        self.label = label

    def check_index(self, database: Any) -> None:
        """Raises BadDocument if there is no such collection, or if the server would look through all of
        it for a key."""
        there = sorted(database.list_collection_names())
        if self.collection not in there:
            raise BadDocument(
                f"the database {database.name} has no collection {self.collection}; it has "
                f"{', '.join(there) or 'none'}"
            )
        # A partial index does not have all documents, and is not used for such a query.
        found = [
            each["key"][0][0]
            for each in database[self.collection].index_information().values()
            if "partialFilterExpression" not in each
        ]
        if self.key != "_id" and self.key not in found:
            raise BadDocument(
                f"the collection {self.collection} has no index on {self.key!r}, so that the server "
                "would look through all of it for each batch: "
                f"client[{database.name!r}][{self.collection!r}].create_index({self.key!r}) makes one"
            )

    def of(self, database: Any, keys: list[Any]) -> dict[Any, tuple[Any, Any]]:
        """Reads (picture, label) by key, of the keys for which there is a document; `TWICE` is the
        picture of a key that two documents have.

        Raises:
            BadDocument: if all take more than `MOST_BYTES` together.
        """
        wanted = list(dict.fromkeys(keys))
        fields = {self.key: 1, self.image: 1, **({self.label: 1} if self.label else {})}
        if self.key != "_id":
            fields["_id"] = 0
        collection = database[self.collection]
        known = set(wanted)
        found: dict[Any, tuple[Any, Any]] = {}
        with collection.find_raw_batches({self.key: {"$in": wanted}}, fields) as replies:
            for document in self._bounded(replies, collection.codec_options):
                key = field_of(document, self.key)
                if not isinstance(key, Hashable) or key not in known:
                    continue  # a document whose key is a list has each of its values for a key
                label = field_of(document, self.label) if self.label else None
                if key in found:
                    found[key] = TWICE, label
                    continue
                found[key] = field_of(document, self.image), label
        return found

    def _bounded(self, replies: Iterable[bytes], options: Any) -> Iterator[Any]:
        total = 0
        for reply in replies:
            for document in documents(reply, self.image, options):
                value = field_of(document, self.image)
                total += len(value) if isinstance(value, memoryview | bytes | str) else 0
                _check_total(total)
                yield document

    def all_keys(self, database: Any) -> Iterator[tuple[Any, Any]]:
        """Gives (key, label) of all documents, by ascending ``_id``."""
        fields = {"_id": 1, self.key: 1, **({self.label: 1} if self.label else {})}
        with database[self.collection].find({}, fields).sort("_id", 1) as cursor:
            for document in cursor:
                key = field_of(document, self.key)
                if key is None:
                    raise BadDocument(
                        f"the document with _id={document.get('_id')!r} of {self.collection} has no "
                        f"{self.key!r}"
                    )
                yield key, field_of(document, self.label) if self.label else None


class GridFiles(Documents):
    """Pictures in GridFS: files by name in ``<collection>.files``, of which the newest of a name counts,
    and their contents in ``<collection>.chunks``."""

    def __init__(self, collection: str, label: str | None) -> None:
        super().__init__(f"{collection}.files", "filename", "length", label)
        self.chunks = f"{collection}.chunks"

    def check_index(self, database: Any) -> None:
        """Checks that there is a file. The driver makes the indices of a bucket with its first file."""
        if database[self.collection].find_one({}, {"filename": 1}) is None:
            raise BadDocument(
                f"there is no file in GridFS: {database.name}.{self.collection} is empty"
            )

    def all_keys(self, database: Any) -> Iterator[tuple[Any, Any]]:
        """Gives (name, label) of the newest file of each name, by the time of its upload."""
        fields = {"filename": 1, **({self.label: 1} if self.label else {})}
        newest: dict[Any, Any] = {}
        with database[self.collection].find({}, fields).sort("uploadDate", 1) as cursor:
            for document in cursor:
                name = document.get("filename")
                newest.pop(name, None)
                newest[name] = field_of(document, self.label) if self.label else None
        yield from newest.items()

    def of(self, database: Any, keys: list[Any]) -> dict[Any, tuple[Any, Any]]:
        fields = {"filename": 1, "length": 1, **({self.label: 1} if self.label else {})}
        # Not `$in`, of which a server of the tests knows nothing here: to mongod both are one.
        wanted = {"$or": [{"filename": key} for key in dict.fromkeys(keys)]}
        files: dict[Any, dict[str, Any]] = {}
        with database[self.collection].find(wanted, fields).sort("uploadDate", 1) as cursor:
            for document in cursor:
                files[document["filename"]] = document  # the newest comes last
        _check_total(sum(int(each["length"]) for each in files.values()))
        return {
            name: (
                self._content(database, each),
                field_of(each, self.label) if self.label else None,
            )
            for name, each in files.items()
        }

    def _content(self, database: Any, file: dict[str, Any]) -> bytes | None:
        """Reads the content; None if the chunks are not the file's: it is being written, or removed."""
        length, read = int(file["length"]), 0
        parts: list[bytes] = []
        with database[self.chunks].find({"files_id": file["_id"]}).sort("n", 1) as chunks:
            for chunk in chunks:
                parts.append(bytes(chunk["data"]))
                read += len(parts[-1])
                if read > length:
                    return None
        return b"".join(parts) if read == length else None


def _check_total(total: int) -> None:
    if total > MOST_BYTES:
        raise BadDocument(
            f"the pictures of one batch take more than {MOST_BYTES >> 20} MB together: take a smaller "
            "batch_size"
        )


def field_of(document: Any, name: str) -> Any:
    """Returns the value of a field, None if it is missing."""
    if name in document:
        return document[name]
    for part in name.split("."):
        if not isinstance(document, dict) or part not in document:
            return None
        document = document[part]
    return document


# ---- Which samples there are, and in which order.


def read_list(path: str | os.PathLike[str]) -> tuple[list[str], Any]:
    """Reads (keys, labels) from the well-known recipe's file:
    ``{"path_list": [...], "label_list": [...]}``.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if it is another one, or its lists differ in length.
    """
    with open(path, encoding="utf-8") as file:
        try:
            content = json.load(file)
        except ValueError as error:
            raise ValueError(f"{path} is no JSON file: {error}") from None
    if not isinstance(content, dict) or not {"path_list", "label_list"} <= set(content):
        raise ValueError(f'{path} is not {{"path_list": [...], "label_list": [...]}}')
    keys, labels = content["path_list"], content["label_list"]
    if not isinstance(keys, list) or not all(isinstance(each, str) for each in keys):
        raise ValueError(f"{path}: path_list is no list of text")
    if not isinstance(labels, list) or len(labels) != len(keys):
        raise ValueError(f"{path}: there are {len(keys)} paths and not as many labels")
    return keys, whole_numbers(labels, f"{path}: label_list")


def whole_numbers(labels: Sequence[Any], where: str) -> Any:
    """Labels as an int64 array."""
    for number, label in enumerate(labels):
        if not is_label(label):
            raise ValueError(
                f"{where}: label {number} is {label!r}, and labels are whole numbers; with label=None "
                "there are none"
            )
    return np.array(labels, np.int64).reshape(len(labels))


def is_label(value: Any) -> bool:
    """Returns whether it is a whole number, of any type: some shells store all numbers as doubles."""
    return (isinstance(value, int) and not isinstance(value, bool)) or (
        isinstance(value, float) and value.is_integer()
    )


class Keys(Sequence[Any]):
    """Keys of samples. Those that are all text lie in one run of bytes, without an object each."""

    def __init__(self, keys: Sequence[Any]) -> None:
        keys = [each.item() if hasattr(each, "item") else each for each in keys]  # numpy's, torch's
        for number, key in enumerate(keys):
            if key is None or not isinstance(key, Hashable):
                raise ValueError(f"key {number} is {key!r}: documents are not asked for by that")
        self._keys: list[Any] | None = None
        self._ends: Any = None
        self._text = b""
        if not all(type(each) is str for each in keys):
            self._keys = list(keys)
            return
        parts = [each.encode() for each in keys]
        self._ends = np.cumsum([len(part) for part in parts], dtype=np.uint64)
        self._text = b"".join(parts)

    def __len__(self) -> int:
        return len(self._ends) if self._keys is None else len(self._keys)

    def __getitem__(self, index: Any) -> Any:
        if self._keys is not None:
            return self._keys[index]
        if isinstance(index, slice):
            return [self[each] for each in range(*index.indices(len(self)))]
        begin = int(self._ends[index - 1]) if index else 0
        return self._text[begin : int(self._ends[index])].decode()
