"""`MongoImages` on servers that fail: none, killed, cut off, slow, silent."""

import os
import random
import signal
import subprocess
import sys
import threading
import time

import pytest
import torch
from mongodb import Proxy

import fastloader.transforms as T
from fastloader import FastLoader
from fastloader.datasets import MongoImages
from fastloader.datasets._formats import mongo_collections
from fastloader.errors import Error
from support import HANG, same

pymongo = pytest.importorskip("pymongo")

DRAWS_NOTHING = T.Compose([T.Resize(20), T.CenterCrop(16)])


def test_no_server():
    begun = time.monotonic()
    with pytest.raises(
        Error, match=r"MongoDB at 127\.0\.0\.1:1, database db: gave up after 0.5 s: ServerSel"
    ):
        MongoImages("mongodb://127.0.0.1:1/?serverSelectionTimeoutMS=100", "db", timeout=0.5)
    assert time.monotonic() - begun < 20


def test_a_password_is_never_shown(uri):
    servers = uri.partition("://")[2]
    with pytest.raises(Error) as caught:
        MongoImages(f"mongodb://user:s%40cret@{servers}", "db", timeout=2)
    shown = [str(caught.value), repr(caught.value), str(caught.getrepr())]
    assert servers.rstrip("/") in shown[0]
    for text in shown[:2]:
        assert "s%40cret" not in text
        assert "s@cret" not in text
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


def test_options_of_the_uri_reach_the_driver(monkeypatch):
    given = {}

    def client(uri, **options):
        given.update(options, uri=uri)
        raise RuntimeError("as far as here, s@cret")

    monkeypatch.setattr(pymongo, "MongoClient", client)
    uri = "mongodb://u:s%40cret@a,b/?tls=true&replicaSet=r&authSource=x&socketTimeoutMS=7"
    with pytest.raises(Error, match=r"MongoDB at a,b, database db: .*as far as here, \*\*\*"):
        MongoImages(uri, "db", timeout=12)
    assert given == {
        "uri": uri,
        "connect": False,
        "appname": "fastloader",
        "serverselectiontimeoutms": 5000,
        "connecttimeoutms": 5000,
        "retryreads": False,
    }


@pytest.mark.processes
@pytest.mark.parametrize("backend", ["process", "thread"])
def test_a_server_that_is_killed_and_comes_again(fragile, rows, listed, backend):
    dataset = MongoImages(fragile.uri, "db", "photos", DRAWS_NOTHING, order=listed)
    options = {"num_workers": 2, "prefetch_factor": 1, "worker_backend": backend}
    loader = FastLoader(dataset, batch_size=2, **options)
    batches = iter(loader)
    got = [next(batches) for _ in range(3)]
    fragile.kill()
    again = threading.Timer(1.0, fragile.start)
    again.start()
    got += list(batches)
    again.join()
    assert torch.cat([labels for _, labels in got]).tolist() == [row[2] for row in rows]
    assert dataset.counts()["retries"] > 0
    same(got, list(FastLoader(dataset, batch_size=2)))


@pytest.mark.processes
def test_a_server_that_does_not_come_again(fragile, listed):
    dataset = MongoImages(fragile.uri, "db", "photos", DRAWS_NOTHING, order=listed, timeout=1)
    batches = iter(FastLoader(dataset, batch_size=2))
    next(batches)
    fragile.kill()
    with pytest.raises(Error, match=r"MongoDB at 127\.0\.0\.1"):
        list(batches)
    assert dataset.counts()["retries"] > 0


@pytest.mark.processes
def test_connections_that_are_cut(fragile, rows, listed):
    proxy = Proxy(fragile.port)
    dataset = MongoImages(proxy.uri, "db", "photos", DRAWS_NOTHING, order=listed)
    got = []
    for batch in FastLoader(dataset, batch_size=4):
        got.append(batch)
        proxy.cut()
    assert torch.cat([labels for _, labels in got]).tolist() == [row[2] for row in rows]
    assert dataset.counts()["retries"] > 0
    proxy.close()


@pytest.mark.processes
def test_a_slow_server(fragile, rows, listed):
    """Answers that take longer than the timeout are an error; shorter ones are waited for."""
    proxy = Proxy(fragile.port)
    dataset = MongoImages(proxy.uri, "db", "photos", DRAWS_NOTHING, order=listed, timeout=2)
    proxy.delay = 0.2
    found = next(iter(FastLoader(dataset, batch_size=4)))
    assert found[1].tolist() == [row[2] for row in rows[:4]]
    proxy.delay = 60
    with pytest.raises(Error, match=r"MongoDB at 127\.0\.0\.1.*gave up after 2 s: "):
        list(FastLoader(dataset, batch_size=4))
    proxy.close()


def test_pauses_do_not_draw_from_the_users_generator(monkeypatch):
    """Between two attempts."""
    monkeypatch.setattr(mongo_collections, "_FIRST_PAUSE", 0.01)
    random.seed(3)
    expected = random.random()
    random.seed(3)
    with pytest.raises(Error):
        MongoImages("mongodb://127.0.0.1:1/?serverSelectionTimeoutMS=10", "db", timeout=0.2)
    assert random.random() == expected


LOOP = """
import sys
import fastloader.transforms as T
from fastloader import FastLoader
from fastloader.datasets import MongoImages
from fastloader.datasets._formats.mongo_collections import Documents

uri, database, keys, options = {arguments!r}
dataset = MongoImages(uri, database, "photos", T.Resize((8, 8)), label=None, order=keys, timeout=300)
print("made", flush=True)
sys.stdin.readline()
of = Documents.of
Documents.of = lambda *arguments: sys.stdout.write("asked\\n") and sys.stdout.flush() or of(*arguments)
try:
    next(iter(FastLoader(dataset, 4, **options)))
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


@pytest.mark.processes
@pytest.mark.parametrize(
    "options",
    [{}, {"num_workers": 4}, {"num_workers": 4, "worker_backend": "thread"}],
    ids=["alone", "processes", "threads"],
)
def test_ctrl_c_does_not_wait_for_a_server_that_hangs(fragile, rows, options):
    """A worker thread that waits for the answer would be waited for ten seconds, one after the other."""
    proxy = Proxy(fragile.port)
    arguments = (proxy.uri, "db", [name for name, _file, _label in rows], options)
    child = subprocess.Popen(
        [sys.executable, "-c", LOOP.format(arguments=arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        assert child.stdout.readline() == "made\n", child.stderr.read()
        proxy.silent = True
        child.stdin.write("\n")
        child.stdin.flush()
        # Every worker process has asked, and so has begun: one that Ctrl-C ends while it begins is one
        # that has died to torch, which says so in the place of the KeyboardInterrupt.
        workers = 1 if options.get("worker_backend") else options.get("num_workers", 1)
        for _ in range(min(workers, -(-len(rows) // 4))):
            assert child.stdout.readline() == "asked\n"
        begun = time.monotonic()
        os.killpg(child.pid, signal.SIGINT)
        out, err = child.communicate(timeout=HANG)
        assert time.monotonic() - begun < 20
        assert child.returncode == 0 and "interrupted" in out, err
    finally:
        child.kill()
        child.communicate()
        proxy.close()


@pytest.mark.processes
def test_a_loader_that_is_closed_leaves_its_queries_behind(fragile, rows):
    proxy = Proxy(fragile.port)
    keys = [name for name, _file, _label in rows]
    dataset = MongoImages(
        proxy.uri, "db", "photos", DRAWS_NOTHING, label=None, order=keys, timeout=300
    )
    loader = FastLoader(dataset, 4, num_workers=4, worker_backend="thread")
    asked = threading.Semaphore(0)
    of = dataset._documents.of
    dataset._documents.of = lambda *arguments: asked.release() or of(*arguments)
    proxy.silent = True
    batches = iter(loader)
    for _ in range(4):
        assert asked.acquire(timeout=HANG)
    workers = [each for each in threading.enumerate() if each.name.startswith("fastloader-worker")]
    assert len(workers) == 4
    begun = time.monotonic()
    loader.close()
    assert time.monotonic() - begun < 4  # torch waits five seconds for each
    assert not any(each.is_alive() for each in workers)
    with pytest.raises(StopIteration):
        next(batches)
    proxy.close()  # which ends the queries
