"""What becomes of a query that a worker thread leaves behind."""

import threading

import pytest

from fastloader._core.machine import process
from fastloader.datasets._formats import mongo_collections
from fastloader.datasets._formats.mongo_collections import Connection
from fastloader.datasets._formats.sample_form import Counters
from fastloader.errors import Error
from support import HANG

errors = pytest.importorskip("pymongo.errors")


@pytest.mark.parametrize("when", ["while it is asked", "while it waits to be asked again"])
def test_a_query_that_is_left_behind_is_not_tried_again(monkeypatch, when):
    # Nobody waits for a pause of an hour, and nobody gives up before.
    monkeypatch.setattr(mongo_collections, "_FIRST_PAUSE", 3600)
    counters = Counters(("retries",))
    server = Connection("mongodb://127.0.0.1:1/", "db", 10_000, counters)
    stop = process.Stop()
    asked, answers, waits = threading.Event(), threading.Event(), threading.Event()
    own_wait = stop.wait
    stop.wait = lambda seconds: waits.set() or own_wait(seconds)
    raised, threads = [], []

    def query(_database):
        threads.append(threading.current_thread())
        asked.set()
        assert answers.wait(HANG)
        raise errors.AutoReconnect("the connection is lost")

    def work():
        process.become(stop)
        try:
            server.call(query)
        except Error as error:
            raised.append(error)

    worker = threading.Thread(target=work)
    worker.start()
    assert asked.wait(HANG)
    if when == "while it is asked":
        stop.set()
        worker.join(HANG)
        answers.set()
    else:
        answers.set()
        assert waits.wait(HANG)
        stop.set()
        worker.join(HANG)
    assert not worker.is_alive()
    assert "127.0.0.1:1: the loader ended before the answer came" in str(raised[0])
    (thread,) = threads
    thread.join(HANG)
    assert not thread.is_alive() and counters.totals() == {"retries": 0}
