"""A MongoDB server for tests: FASTLOADER_TEST_MONGODB (a URI), a ``mongod`` on PATH, or nx-27017, which
speaks MongoDB's protocol over SQLite."""

import os
import shutil

import pytest
from faulty_proxy import FaultyProxy

pytest.importorskip("benchmarks.peers", reason="needs the source tree")

from benchmarks.peers.collection import VARIABLE
from benchmarks.peers.mongo_server import MongoServer


def server_or_skip(folder):
    pytest.importorskip("pymongo")
    if shutil.which("mongod") is None:
        pytest.importorskip("nx_27017")
    return MongoServer(folder)


class Proxy(FaultyProxy):
    @property
    def uri(self):
        return f"mongodb://127.0.0.1:{self.port}/"


def given_uri():
    return os.environ.get(VARIABLE)
