"""A MongoDB server for tests: FASTLOADER_TEST_MONGODB (a URI), a ``mongod`` on PATH, or nx-27017, which
speaks MongoDB's protocol over SQLite."""

import os
import shutil
import socket
import threading
import time

import pytest

from fastloader.cli.bench.sources.collection import VARIABLE
from fastloader.cli.bench.sources.mongo_server import MongoServer


def server_or_skip(folder):
    pytest.importorskip("pymongo")
    if shutil.which("mongod") is None:
        pytest.importorskip("nx_27017")
    return MongoServer(folder)


class Proxy:
    """Stands between a client and a server. ``delay``: the seconds for which each piece of an answer is
    held up. ``silent``: whether answers never arrive."""

    def __init__(self, port):
        self.delay = 0.0
        self.silent = False
        self._to = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._sockets = set()
        self._guard = threading.Lock()
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def uri(self):
        return f"mongodb://127.0.0.1:{self.port}/"

    def _accept(self):
        while True:
            try:
                here, _ = self._listener.accept()
            except OSError:
                return
            try:
                there = socket.create_connection(("127.0.0.1", self._to))
            except OSError:
                here.close()
                continue
            with self._guard:
                self._sockets |= {here, there}
            threading.Thread(target=self._pump, args=(here, there, False), daemon=True).start()
            threading.Thread(target=self._pump, args=(there, here, True), daemon=True).start()

    def _pump(self, source, target, answers):
        try:
            while data := source.recv(1 << 16):
                if answers and self.silent:
                    continue
                if answers and self.delay:
                    time.sleep(self.delay)
                target.sendall(data)
        except OSError:
            pass
        for each in (source, target):
            each.close()

    def cut(self):
        """Resets all connections."""
        with self._guard:
            cut, self._sockets = self._sockets, set()
        for each in cut:
            try:
                each.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            each.close()

    def close(self):
        self._listener.close()
        self.cut()


def given_uri():
    return os.environ.get(VARIABLE)
