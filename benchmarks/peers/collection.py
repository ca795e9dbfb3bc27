"""The photographs in a MongoDB collection, for as long as a benchmark takes."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import secrets
import shutil
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from benchmarks.peers.mongo_server import MongoServer

VARIABLE = "FASTLOADER_TEST_MONGODB"  # a URI, whose server is taken in the place of one of our own
DATABASE = "fastloader_bench"  # where the URI names none
ORDER = "mongo-order.json"  # in the benchmark's folder: the keys and the labels


class NoServer(Exception):
    """No server can be had here; the message says why."""


@dataclasses.dataclass(frozen=True)
class Collection:
    """``settings``: what contenders are told. ``described``: what the results say. ``why_not_bare``: why
    the server cannot be asked without a driver; empty if it can."""

    settings: dict[str, Any]
    described: dict[str, Any]
    why_not_bare: str = ""


@contextlib.contextmanager
def filled(folder: str, work: str) -> Iterator[Collection]:
    """Puts the pictures of a folder into a collection of their own, which is dropped in the end.

    Raises:
        NoServer: if pymongo or a server is missing, or there is one processor only.
        RuntimeError: if the server does not start, or does not take the pictures.
    """
    processors = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    if len(processors) < 2:
        raise NoServer("the server and those who ask it need a processor each, and here is one")
    given = os.environ.get(VARIABLE)
    with contextlib.ExitStack() as held:
        where = Path(work, "mongodb")
        where.mkdir()
        try:
            if given:
                uri, what = _with_database(given), f"the one of {VARIABLE}"
            else:
                server = MongoServer(where, processors[0])
                held.callback(server.close)
                uri = f"{server.uri}{DATABASE}"
                what = "mongod" if shutil.which("mongod") else f"nx-27017 {version('nx-27017')}"
            collection = f"photographs_{secrets.token_hex(4)}"
            _fill(folder, uri, collection, str(Path(work, ORDER)))
        except ImportError as error:
            raise NoServer(str(error)) from None
        held.callback(_drop, uri, collection)
        yield Collection(
            {"mongodb": uri, "collection": collection, "processor": processors[-1]},
            {
                "server": what,
                "server_processor": None if given else processors[0],
                "client_processor": processors[-1],
            },
            _why_not_bare(uri),
        )


def _with_database(uri: str) -> str:
    parts = urlsplit(uri)
    return uri if parts.path.strip("/") else parts._replace(path=f"/{DATABASE}").geturl()


def _why_not_bare(uri: str) -> str:
    from pymongo.uri_parser import parse_uri

    if not uri.startswith("mongodb://"):
        return "a bare socket knows nothing of mongodb+srv"
    parsed = parse_uri(uri)
    if len(parsed["nodelist"]) > 1:
        return "a bare socket does not choose among several servers"
    if parsed["username"] is not None or parsed["options"].get("tls"):
        return "a bare socket has neither a password nor TLS"
    return ""


def _fill(folder: str, uri: str, collection: str, listed: str) -> None:
    from fastloader.cli.push import Fields, PushError, push

    try:
        with contextlib.redirect_stdout(sys.stderr):
            push(folder, uri, collection, Fields("img_name", "bson_img", "label"), listed)
    except PushError as error:
        raise RuntimeError(str(error)) from None


def _drop(uri: str, collection: str) -> None:
    import pymongo

    with pymongo.MongoClient(uri) as client:
        client.get_default_database().drop_collection(collection)
