"""The connection to a MongoDB server: one client for each process, and what is tried again."""

from __future__ import annotations

import logging
import queue
import random
import re
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar
from urllib.parse import unquote_plus

from fastloader._core.machine.process import HomeProcess
from fastloader._core.machine.worker_thread import Stop, stop_of_thread
from fastloader.datasets._formats.counters import Counters
from fastloader.errors import Error

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

    def _made(self) -> Any:
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
            return self._asked(work)
        answer: queue.SimpleQueue[tuple[Any, BaseException | None]] = queue.SimpleQueue()

        def ask() -> None:
            try:
                answer.put((self._asked(work, stop), None))
            except BaseException as error:
                answer.put((None, error))

        with stop.waking(lambda: answer.put((None, self._left()))):
            threading.Thread(target=ask, name="mongodb-query", daemon=True).start()
            found, error = answer.get()
        if error is not None:
            try:
                raise error
            finally:
                del error  # breaks the cycle of this frame and the error
        result: Result = found
        return result

    def _asked(self, work: Callable[[Any], Result], stop: Stop | None = None) -> Result:
        from pymongo.errors import AutoReconnect, CursorNotFound

        begun = time.monotonic()
        pause = _FIRST_PAUSE
        while True:
            try:
                return work(self._made()[self.database])
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
                raise self._left()
            self.counters.add("retries")
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _left(self) -> Error:
        return Error(f"MongoDB at {servers_of(self.uri)}: the loader ended before the answer came")

    def _error(self, error: BaseException, what: str = "") -> Error:
        """The driver's exception without the password, which it may have in its text or its chain."""
        said = hidden(str(error), self.uri).partition(" (configured timeouts")[0]
        return Error(
            f"MongoDB at {servers_of(self.uri)}, database {self.database}: {what}"
            f"{type(error).__name__}: {said[:500]}"
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
    said = uri.partition("?")[2].lower()
    for name in list(options):
        if f"{name}=" in said:
            del options[name]
    return mongo_module().MongoClient(uri, connect=False, **options)


def servers_of(uri: str) -> str:
    """The part of a URI that may be shown: the servers, without user, password and options."""
    return _authority(uri).rpartition("@")[2] or "?"


def _authority(uri: str) -> str:
    """User, password and servers."""
    return re.split(r"[/?]", uri.partition("://")[2], maxsplit=1)[0]


def hidden(text: str, uri: str) -> str:
    """The text without the password of the URI, as that is written there and as it is meant."""
    before, at, _servers = _authority(uri).rpartition("@")
    secrets = [before.partition(":")[2]] if at else []
    secrets += re.findall(r"[?&]tlsCertificateKeyFilePassword=([^&]+)", uri, re.IGNORECASE)
    for secret in [*secrets, *map(unquote_plus, secrets)]:
        text = text.replace(secret, "***") if secret else text
    return text
