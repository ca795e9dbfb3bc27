"""MongoDB's wire protocol without a driver: what the server alone reaches, since nobody looks at its
replies. pymongo's own ways to leave replies undecoded take more time than its decoding."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import bson
from pymongo.uri_parser import parse_uri

from benchmarks.peers.scenarios import Settings
from benchmarks.peers.scenarios.sources.mongo import (
    FIELDS,
    KEY,
    collection_of,
    confine,
    queries,
    versions,
)

__all__ = ["received", "versions"]

_HEADER = struct.Struct("<iiii")  # length, number, number of what is replied to, kind
_MESSAGE = 2013
_FLAGS = bytes(4)  # none
_BODY = b"\0"  # the kind of section


def received(settings: Settings) -> Callable[[], Iterator[int]]:
    """The queries that the other contenders ask, with as many under way. Their replies are received into
    the same memory each time. The first epoch decodes and counts them, the others look at their sizes.
    """
    confine(settings)
    (server,) = parse_uri(settings.mongodb)["nodelist"]
    collection = collection_of(settings)
    asked = [
        (len(keys), _message(_command(collection.database.name, collection.name, keys)))
        for keys in queries(settings)
    ]
    sizes: dict[bytes, int] = {}
    own = threading.local()

    def one(query: tuple[int, bytes]) -> int:
        count, message = query
        if not hasattr(own, "connection"):
            own.connection, own.reply = socket.create_connection(server), bytearray(1 << 20)
        own.connection.sendall(message)
        size = _receive(own)
        if message not in sizes:
            sizes[message] = size
            _check(bytes(memoryview(own.reply)[:size]), count)
        if size != sizes[message]:
            raise RuntimeError(f"a reply of {size} bytes had {sizes[message]} before")
        return count

    threads = ThreadPoolExecutor(settings.threads)
    return lambda: threads.map(one, asked)


def _command(database: str, collection: str, keys: list[str]) -> dict[str, Any]:
    return {
        "find": collection,
        "filter": {KEY: {"$in": keys}},
        "projection": FIELDS,
        "batchSize": len(keys),
        "singleBatch": True,
        "$db": database,
    }


def _message(command: dict[str, Any]) -> bytes:
    content = _FLAGS + _BODY + bson.encode(command)
    return _HEADER.pack(_HEADER.size + len(content), 1, 0, _MESSAGE) + content


def _receive(own: Any) -> int:
    """The size of a reply, which lies in ``own.reply`` without its header."""
    header = own.connection.recv(_HEADER.size, socket.MSG_WAITALL)
    if len(header) < _HEADER.size:
        raise RuntimeError("the server has closed the connection")
    size = _HEADER.unpack(header)[0] - _HEADER.size
    if size > len(own.reply):
        own.reply = bytearray(size)
    rest = memoryview(own.reply)[:size]
    while rest:
        got = own.connection.recv_into(rest)
        if not got:
            raise RuntimeError("the server has closed the connection")
        rest = rest[got:]
    return int(size)


def _check(reply: bytes, count: int) -> None:
    answer = bson.decode(reply[len(_FLAGS) + len(_BODY) :])
    if not answer.get("ok"):
        raise RuntimeError(f"the server refused a query: {answer.get('errmsg')}")
    found = len(answer["cursor"]["firstBatch"])
    if found != count:
        raise RuntimeError(
            f"{count} documents were asked for, and one reply holds {found}: others are missing, or a "
            "smaller --batch-size is needed"
        )
