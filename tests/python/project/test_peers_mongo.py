"""What ``python -m benchmarks.peers --source mongo`` asks of a server, and which server. Nothing
here is timed."""

import contextlib
import dataclasses
import importlib
import os
import shutil
import threading

import pytest
from mongodb import given_uri, server_or_skip
from one_colour import BATCH, COUNT, assert_an_epoch, contender, photographs_in, settings_of

from fastloader._core.machine import extension

pytest.importorskip("benchmarks.peers")  # needs the source tree

from benchmarks.peers import collection as collection_module
from benchmarks.peers import mongo_server
from benchmarks.peers.collection import VARIABLE, NoServer, filled
from benchmarks.peers.mongo_server import MongoServer
from benchmarks.peers.scenarios import ENCODED
from benchmarks.peers.scenarios.recipes import loaders

pytestmark = pytest.mark.skipif(extension.load() is None, reason="the native module is not in use")

CLIENT = 7  # no processor need have this number: what is asked for is noted


@pytest.fixture(scope="module")
def photographs(tmp_path_factory):
    return photographs_in(tmp_path_factory.mktemp("photographs"))


@pytest.fixture(scope="module")
def collection(photographs, tmp_path_factory):
    """Settings for those who ask a server."""
    folder = tmp_path_factory.mktemp("served")
    with contextlib.ExitStack() as held:
        uri = given_uri()
        if uri is None:
            server = server_or_skip(tmp_path_factory.mktemp("server"))
            held.callback(server.close)
            uri = server.uri
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(os, "sched_getaffinity", lambda _process: {0, CLIENT}, raising=False)
            patched.setenv(VARIABLE, uri)
            made = held.enter_context(filled(str(photographs[0]), str(folder)))
        assert made.described["server_processor"] is None
        yield dataclasses.replace(settings_of(photographs, folder), **made.settings)


@pytest.fixture
def confined(monkeypatch):
    """Where threads were asked to run. They stay where they are."""
    asked = []
    monkeypatch.setattr(
        os, "sched_setaffinity", lambda thread, those: asked.append((thread, frozenset(those)))
    )
    return asked


@pytest.mark.parametrize(
    ("name", "way"), [("mongo", ENCODED), ("mongo-replayed", ENCODED), ("mongo-recipe", "")]
)
def test_what_reads_a_collection_makes_each_picture_once(
    photographs, collection, confined, name, way
):
    settings = dataclasses.replace(collection, threads=2 if way else 0)
    epochs = contender(name, settings)
    assert_an_epoch(epochs, photographs)
    assert epochs.plan.startswith("Python path: the dataset is a") == bool(way)
    if way:
        assert loaders.way_of(epochs._made_by) == way
    if name != "mongo-replayed":  # which asks nobody
        assert {own for _thread, own in confined} == {frozenset({CLIENT})}
        assert threading.get_native_id() in [thread for thread, _own in confined]


def noted_queries(monkeypatch, meet=None):
    """What pymongo is asked for. ``meet``: where each query waits for others."""
    from pymongo.collection import Collection

    asked = []

    def note(name):
        find = getattr(Collection, name)

        def noted(self, query, fields):
            asked.append((tuple(query["img_name"]["$in"]), tuple(sorted(fields.items()))))
            if meet is not None:
                meet.wait(20)
            return find(self, query, fields)

        monkeypatch.setattr(Collection, name, noted)

    note("find")
    note("find_raw_batches")
    return asked


def test_pymongo_and_the_server_alone_get_the_same_queries(collection, confined, monkeypatch):
    asked = noted_queries(monkeypatch)
    epochs = {
        name: contender(name, dataclasses.replace(collection, threads=1))
        for name in ("mongo", "mongo-drained", "mongo-server")
    }
    assert sum(epochs["mongo"]()) == COUNT
    of_loader = list(asked)
    assert len(of_loader) == COUNT // BATCH == len(set(of_loader))
    asked.clear()
    assert list(epochs["mongo-drained"]()) == [BATCH] * (COUNT // BATCH)
    assert asked == of_loader
    assert {own for _thread, own in confined} == {frozenset({CLIENT})}

    wire = importlib.import_module("benchmarks.peers.scenarios.sources.wire")
    sent = []
    monkeypatch.setattr(wire, "_message", lambda command: sent.append(command) or b"")
    wire.received(dataclasses.replace(collection, threads=1))
    assert of_loader == [
        (tuple(each["filter"]["img_name"]["$in"]), tuple(sorted(each["projection"].items())))
        for each in sent
    ]
    asked.clear()
    for _epoch in range(2):
        assert list(epochs["mongo-server"]()) == [BATCH] * (COUNT // BATCH)
    assert not asked
    monkeypatch.setattr(wire, "_receive", lambda _own: 7)
    with pytest.raises(RuntimeError, match="a reply of 7 bytes had "):
        sum(epochs["mongo-server"]())


@pytest.mark.parametrize("name", ["mongo", "mongo-drained"])
def test_as_many_queries_are_under_way_as_there_are_threads(
    collection, confined, monkeypatch, name
):
    """A query waits for two others, so that fewer would break the barrier."""
    asked = noted_queries(monkeypatch, meet=threading.Barrier(3))
    epochs = contender(name, dataclasses.replace(collection, threads=3))
    for _epoch in range(2):
        assert sum(epochs()) == COUNT
    assert len(asked) == 2 * COUNT // BATCH


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("mongo-drained", f"{BATCH + 1} documents were asked for, and {BATCH} came"),
        ("mongo-server", f"{BATCH + 1} documents were asked for, and one reply holds {BATCH}"),
    ],
)
def test_a_document_that_is_missing_is_not_measured_as_one_that_came(
    collection, confined, monkeypatch, name, said
):
    mongo = importlib.import_module("benchmarks.peers.scenarios.sources.mongo")
    wire = importlib.import_module("benchmarks.peers.scenarios.sources.wire")
    asked = [[*keys, "nobody"] for keys in mongo.queries(collection)]
    for module in (mongo, wire):
        monkeypatch.setattr(module, "queries", lambda _settings: asked)
    with pytest.raises(RuntimeError, match=said):
        sum(contender(name, dataclasses.replace(collection, threads=1))())


def test_replies_from_memory_are_read_each_time(collection, confined, monkeypatch):
    from fastloader.datasets._formats import mongo_collections
    from fastloader.datasets._formats.mongo_collections import Connection

    settings = dataclasses.replace(collection, threads=2)
    epochs = contender("mongo-replayed", settings)
    assert confined == [(0, frozenset(sorted(os.sched_getaffinity(0))[:2]))]
    read, really = [], mongo_collections.documents
    monkeypatch.setattr(
        mongo_collections, "documents", lambda raw, *how: read.append(len(raw)) or really(raw, *how)
    )
    calls, call = [], Connection.call
    monkeypatch.setattr(Connection, "_ask", None)  # nobody is asked
    monkeypatch.setattr(Connection, "call", lambda self, work: calls.append(1) or call(self, work))
    asking, start = [], threading.Thread.start
    monkeypatch.setattr(
        threading.Thread, "start", lambda self: asking.append(self.name) or start(self)
    )
    for epoch in (1, 2):
        assert sum(epochs()) == COUNT
        assert len(read) == len(calls) == epoch * (COUNT // BATCH)
        assert asking.count("mongodb-query") == len(calls)  # as MongoImages does it
    files = sum(os.path.getsize(path) for path, _label in collection.samples())
    assert sum(read) > 2 * files


def test_the_recipe_asks_for_a_picture_at_a_time(collection, confined, monkeypatch):
    from pymongo.collection import Collection

    asked, find_one = [], Collection.find_one
    monkeypatch.setattr(
        Collection, "find_one", lambda self, q: asked.append(q["img_name"]) or find_one(self, q)
    )
    epochs = contender("mongo-recipe", collection)
    assert epochs.loader.dataset.collection is None, "a client that is made before the fork"
    assert sum(epochs()) == COUNT
    mongo = importlib.import_module("benchmarks.peers.scenarios.sources.mongo")
    assert sorted(asked) == sorted(mongo.order(collection)[0])


@pytest.fixture
def processors():
    found = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    if len(found) < 2:
        pytest.skip("needs two processors")
    return found


def test_a_server_of_ones_own_has_the_first_processor(
    photographs, tmp_path, monkeypatch, processors
):
    pytest.importorskip("pymongo")
    if shutil.which("mongod") is None:
        pytest.importorskip("nx_27017")
    monkeypatch.delenv(VARIABLE, raising=False)
    servers, start = [], MongoServer.start
    monkeypatch.setattr(MongoServer, "start", lambda self: servers.append(self) or start(self))
    with filled(str(photographs[0]), str(tmp_path)) as made:
        (server,) = servers
        assert os.sched_getaffinity(server.process.pid) == {processors[0]}
        assert sorted(os.sched_getaffinity(0)) == processors
        assert made.described["server"].startswith(("mongod", "nx-27017 "))
        assert made.described["server_processor"] == processors[0]
        assert made.described["client_processor"] == processors[-1]
        assert made.settings["processor"] == processors[-1]
    assert server.process.poll() is not None


def test_a_collection_on_a_server_of_others_is_dropped(
    photographs, tmp_path, monkeypatch, collection
):
    pymongo = pytest.importorskip("pymongo")
    monkeypatch.setenv(VARIABLE, collection.mongodb)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _process: {0, 1}, raising=False)
    with pymongo.MongoClient(collection.mongodb) as client:
        database = client.get_default_database()
        before = set(database.list_collection_names())
        with filled(str(photographs[0]), str(tmp_path)) as made:
            added = {made.settings["collection"]}
            assert set(database.list_collection_names()) == before | added and added - before
        assert set(database.list_collection_names()) == before


@pytest.mark.parametrize(
    ("uri", "whole"),
    [
        ("mongodb://a:1,b:2/", "mongodb://a:1,b:2/fastloader_bench"),
        ("mongodb://u:p%40@a?tls=true", "mongodb://u:p%40@a/fastloader_bench?tls=true"),
        ("mongodb://a/mine?tls=true", "mongodb://a/mine?tls=true"),
    ],
)
def test_the_database_is_that_of_the_uri_if_it_names_one(uri, whole):
    assert collection_module._with_database(uri) == whole


def test_why_there_is_no_server(photographs, tmp_path, monkeypatch):
    pytest.importorskip("pymongo")
    folder = str(photographs[0])
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _process: {0}, raising=False)
    with pytest.raises(NoServer, match="a processor each, and here is one"), filled(folder, ""):
        pass
    monkeypatch.setattr(os, "sched_getaffinity", lambda _process: {0, 1}, raising=False)
    monkeypatch.setattr(os, "sched_setaffinity", lambda *_: None, raising=False)
    monkeypatch.setattr(shutil, "which", lambda _program: None)
    monkeypatch.setattr(mongo_server, "find_spec", lambda _name: None)
    with pytest.raises(NoServer, match="pip install nx-27017"), filled(folder, str(tmp_path)):
        pass
    program = tmp_path / "mongod"
    program.write_text("#!/bin/sh\necho out of luck; exit 3\n")
    program.chmod(0o755)
    monkeypatch.setattr(shutil, "which", lambda _program: str(program))
    work = tmp_path / "again"
    work.mkdir()
    with pytest.raises(RuntimeError, match="did not start: out of luck"), filled(folder, str(work)):
        pass
