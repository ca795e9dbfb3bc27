"""Who a worker thread is: in the threads it starts, in the processes it forks, and under a torch that
knows worker threads itself."""

import os
import queue
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from newer_torch import NEWER_TORCH
from torch.utils.data import DataLoader, Dataset, IterableDataset, get_worker_info

from fastloader import FastLoader
from support import run_script

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")


class Asking(Dataset):
    """``ask(index)``, on whatever worker."""

    def __init__(self, ask, count=6):
        self.ask = ask
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return self.ask(index)


def by_threads(dataset, workers=2, **options):
    options = {"batch_size": None, "worker_backend": "thread", **options}
    return list(FastLoader(dataset, num_workers=workers, **options))


def who():
    info = get_worker_info()
    return None if info is None else info.id


def wanted(ask):
    """With processes, of which each has an info for all its threads and children."""
    return list(DataLoader(Asking(ask), batch_size=None, num_workers=2))


# --- threads of a worker ----------------------------------------------------------------------------


def in_a_thread(_index):
    got = queue.SimpleQueue()
    thread = threading.Thread(target=lambda: got.put(who()))
    thread.start()
    thread.join()
    return got.get()


class Subclass(threading.Thread):
    def run(self):
        self.seen = who()


def in_a_subclass_of_thread(_index):
    thread = Subclass()
    thread.start()
    thread.join()
    return thread.seen


def in_a_threads_thread(index):
    got = queue.SimpleQueue()
    thread = threading.Thread(target=lambda: got.put(in_a_thread(index)))
    thread.start()
    thread.join()
    return got.get()


def in_a_pool(_index):
    with ThreadPoolExecutor(2) as pool:
        (got,) = set(pool.map(lambda _: who(), range(4)))
        return got


@pytest.mark.parametrize(
    "ask", [in_a_thread, in_a_subclass_of_thread, in_a_threads_thread, in_a_pool]
)
def test_threads_of_a_worker_are_that_worker(ask):
    assert by_threads(Asking(ask)) == wanted(ask) == [0, 1] * 3


def test_a_pool_that_workers_share_answers_for_who_calls():
    """Threads of the pool that one worker has started serve the other as well."""
    with ThreadPoolExecutor(1) as pool:
        got = by_threads(Asking(lambda _: pool.submit(who).result(), count=8))
        assert got == [0, 1] * 4
        assert pool.submit(who).result() is None
    assert get_worker_info() is None


def test_a_thread_can_still_be_started_once_only():
    def twice(_index):
        thread = threading.Thread(target=who)
        thread.start()
        thread.join()
        with pytest.raises(RuntimeError, match="threads can only be started once"):
            thread.start()
        return threading.active_count() > 0

    assert all(by_threads(Asking(twice)))


def fail_to_start(thread):
    before = threading.stack_size(1 << 47)  # more than there are addresses
    try:
        with pytest.raises(RuntimeError, match="can't start new thread"):
            thread.start()
    finally:
        threading.stack_size(before)


def test_a_thread_that_failed_to_start_can_be_started_again():
    def ask(_index):
        got = queue.SimpleQueue()
        by_target = threading.Thread(target=lambda: got.put(who()))
        by_attribute = threading.Thread()
        by_attribute.run = run = lambda: got.put(who())
        for thread in (by_target, by_attribute):
            for _ in range(2):
                fail_to_start(thread)
            thread.start()
            thread.join()
        return [got.get(timeout=9), got.get(timeout=9), by_attribute.run is run]

    assert by_threads(Asking(ask), workers=1) == [[0, 0, True]] * 6


def test_a_thread_that_a_worker_failed_to_start_is_whose_who_starts_it():
    def ask(_index):
        thread = Subclass()
        fail_to_start(thread)
        return thread

    for thread in by_threads(Asking(ask, count=2), workers=1):
        thread.start()
        thread.join()
        assert thread.seen is None


# --- processes of a worker --------------------------------------------------------------------------


class Sharded(IterableDataset):
    """12 numbers, each from one worker."""

    def __iter__(self):
        info = get_worker_info()
        first, step = (0, 1) if info is None else (info.id, info.num_workers)
        return iter(range(first, 12, step))


def inner_epoch(loader):
    def ask(_index):
        return sorted(loader(Sharded(), batch_size=None, num_workers=3))

    return ask


@pytest.mark.parametrize("inner", [DataLoader, FastLoader])
def test_an_inner_loaders_processes_are_its_own_workers(inner):
    loader = FastLoader(
        Asking(inner_epoch(inner), count=2), batch_size=None, num_workers=2, worker_backend="thread"
    )
    assert list(loader) == [list(range(12))] * 2


def test_an_inner_loaders_threads_are_its_own_workers():
    def ask(index):
        return [*sorted(by_threads(Sharded(), workers=3)), who()]

    assert by_threads(Asking(ask, count=4)) == [[*range(12), number % 2] for number in range(4)]


def in_a_forked_process(_index):
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        got = queue.SimpleQueue()
        thread = threading.Thread(target=lambda: got.put(who()))
        thread.start()
        thread.join()
        os.write(writer, bytes([who(), got.get()]))
        os._exit(0)
    os.close(writer)
    answer = os.read(reader, 2)
    os.close(reader)
    assert os.waitpid(child, 0)[1] == 0
    return list(answer)


@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork")
def test_a_process_that_a_worker_forks_is_that_worker():
    """And so are its threads, as where the worker is a process."""
    got = by_threads(Asking(in_a_forked_process))
    assert got == wanted(in_a_forked_process) == [[0, 0], [1, 1]] * 3
    assert get_worker_info() is None


# --- torch's function -------------------------------------------------------------------------------


@pytest.mark.processes
def test_the_function_is_found_wherever_it_was_imported():
    done = run_script(
        """
        import gc, pickle, sys, types
        from torch.utils.data import get_worker_info as alias
        import torch
        torchs, code = [alias], alias.__code__
        gc.freeze()  # as before a fork: the collector no longer shows these modules
        outside = {"__builtins__": __builtins__}  # code of no module, as cloudpickle makes it
        exec("from torch.utils.data import get_worker_info", outside)
        from fastloader import FastLoader

        def ask(index):
            exec("here = get_worker_info()", outside)
            return [each.id for each in (alias(), torch.utils.data.get_worker_info(), outside["here"])]

        class Data(torch.utils.data.Dataset):
            def __len__(self): return 4
            def __getitem__(self, index): return ask(index)

        print(list(FastLoader(Data(), batch_size=None, num_workers=2, worker_backend="thread")))
        print(torchs[0].__code__ is code, alias())
        print(pickle.loads(pickle.dumps(alias)) is alias is torch.utils.data.get_worker_info)
        print(alias.__module__, alias.__qualname__, (alias.__doc__ or "")[:7])
        """
    )
    assert done.stdout.splitlines() == [
        "[[0, 0, 0], [1, 1, 1], [0, 0, 0], [1, 1, 1]]",
        "True None",
        "True",
        "torch.utils.data._utils.worker get_worker_info Returns",
    ]


@pytest.mark.processes
def test_a_torch_that_knows_worker_threads_keeps_its_function():
    done = run_script(
        NEWER_TORCH
        + """
print(list(FastLoader(Data(), batch_size=None, num_workers=2, worker_backend="thread")))
assert torch.utils.data.get_worker_info is get_worker_info
assert get_worker_info.__code__ is code

def as_torch():  # its own worker threads
    worker._thread_local_worker_info.worker_info = worker.WorkerInfo(
        id=7, num_workers=8, seed=0, dataset=None)
    print(get_worker_info().id)

thread = threading.Thread(target=as_torch)
thread.start()
thread.join()
print(get_worker_info(), list(DataLoader(Data(), batch_size=None, num_workers=2)))
"""
    )
    assert done.stdout.splitlines() == ["[0, 1, 0, 1]", "7", "None [0, 1, 0, 1]"]
