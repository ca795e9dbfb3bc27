"""A loader with persistent workers in a forked child: the workers are the parent's, and the child's loop
has some of its own."""

import contextlib
import os
import signal
import traceback

import pytest

from fastloader import FastLoader
from support import Pictures, same

# Far more than it takes; a child that hangs must not hang the test.
CHILD_SECONDS = 60


@contextlib.contextmanager
def forked(body):
    """``body()`` in a child, whose end the block may wait for by ``with``."""
    child = os.fork()
    if child == 0:
        signal.alarm(CHILD_SECONDS)
        try:
            body()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    yield
    assert os.waitpid(child, 0)[1] == 0, "the child failed: see its traceback"


pytestmark = [
    pytest.mark.filterwarnings("ignore:This DataLoader will create"),
    pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork"),
]


@pytest.fixture(params=["thread", "process"])
def loader(fast, request):
    """Six batches, by persistent workers."""
    options = {"persistent_workers": True, "worker_backend": request.param}
    with fast(Pictures(12), batch_size=2, num_workers=2, **options) as loader:
        yield loader


@pytest.fixture
def wanted(loader):
    delivery = {name: getattr(loader, name) for name in ("device", "mean", "std")}
    return list(FastLoader(loader.dataset, batch_size=2, **delivery))


@pytest.mark.exhaustive
def test_workers_are_begun_anew(loader, wanted):
    same(list(loader), wanted)
    workers = list(loader._iterator._workers)

    def in_child():
        for _ in range(2):
            same(list(loader), wanted)
        assert not set(loader._iterator._workers) & set(workers)
        loader.close()

    with forked(in_child):
        same(list(loader), wanted)  # at the same time
    same(list(loader), wanted)
    assert list(loader._iterator._workers) == workers
    assert all(worker.is_alive() for worker in workers)


@pytest.mark.exhaustive
def test_in_the_middle_of_an_epoch(loader, wanted):
    """The child's epoch begins at its beginning; the parent's goes on."""
    batches = iter(loader)
    got = [next(batches), next(batches)]

    def in_child():
        same(list(loader), wanted)
        loader.close()

    with forked(in_child):
        got += list(batches)
    same(got, wanted)
