"""Stores of shards."""

import pytest
from remote_shards import Store


@pytest.fixture(scope="module", params=["https", "s3", "az"])
def started(request, tmp_path_factory):
    store = Store(request.param, tmp_path_factory.mktemp(request.param))
    yield store
    store.proxy.close()
    store.server.close()


@pytest.fixture
def store(started):
    """With shards as they were and a proxy that does no harm."""
    yield started
    started.proxy.faults.clear()
    started.proxy.struck.clear()
    started.proxy.delay = 0.0
