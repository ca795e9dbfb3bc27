"""worker_backend="thread": torch's order and arguments, with threads for processes."""

import gc
import pickle
import random
import threading

import pytest
import torch
from side_by_side import since_2_6
from thread_loaders import Numbers, make
from torch.utils.data import (
    DataLoader,
    Dataset,
    IterableDataset,
    SubsetRandomSampler,
    default_collate,
    get_worker_info,
)

from fastloader import FastLoader
from support import MEAN, STD, Pictures, Stream, eventually, our_threads, same

pytestmark = pytest.mark.covering

PATIENCE = 30  # seconds, for what must come at once


def workers_alive():
    return [name for name in our_threads() if name.startswith("fastloader-worker")]


class Uneven(IterableDataset):
    """Worker ``w`` yields ``3 * w + 1`` numbers."""

    def __iter__(self):
        info = get_worker_info()
        return iter([100 * info.id + i for i in range(3 * info.id + 1)])


OPTIONS = {
    "plain": {"batch_size": 4},
    "shuffled": {"batch_size": 4, "shuffle": True},
    "drop_last": {"batch_size": 4, "shuffle": True, "drop_last": True},
    "sampler": {"batch_size": 2, "sampler": SubsetRandomSampler([1, 3, 5, 7, 9])},
    "not batched": {"batch_size": None},
    "prefetch": {"batch_size": 2, "prefetch_factor": 5},
    "persistent": {"batch_size": 4, "shuffle": True, "persistent_workers": True},
}


def observed(loader):
    """Batches and the generator's state, over three epochs."""
    torch.manual_seed(1)
    return [(list(loader), torch.get_rng_state()) for _ in range(3)]


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize(
    "dataset", [Numbers(), Stream(13), Uneven()], ids=["map", "stream", "uneven"]
)
@pytest.mark.parametrize("workers", [1, 3])
def test_as_with_processes(name, dataset, workers):
    options = OPTIONS[name]
    if isinstance(dataset, IterableDataset) and (options.keys() & {"shuffle", "sampler"}):
        options = {key: each for key, each in options.items() if key not in ("shuffle", "sampler")}
    wanted = observed(DataLoader(dataset, num_workers=workers, **options))
    loader = make(dataset, workers, **options)
    got = observed(loader)
    for (batches, state), (their_batches, their_state) in zip(got, wanted, strict=True):
        same(batches, their_batches)
        assert torch.equal(state, their_state)
    loader.close()


def test_every_way(way):
    data = Pictures(11)
    options = {"batch_size": 3, "mean": MEAN, "std": STD, **way.options}
    loader = make(data, **options)
    for _ in range(2):
        for got, wanted in zip(loader, FastLoader(data, **options), strict=True):
            same(got, wanted)
    next(iter(loader))
    loader.close()


# --- orders that are forced -----------------------------------------------------------------------


class Gated(Dataset):
    """Sample ``i`` waits for its gate."""

    def __init__(self, count=6):
        self.gates = [threading.Event() for _ in range(count)]
        self.begun = [threading.Event() for _ in range(count)]

    def __len__(self):
        return len(self.gates)

    def __getitem__(self, index):
        self.begun[index].set()
        assert self.gates[index].wait(PATIENCE)
        return index

    def open(self, *numbers):
        for number in numbers:
            self.gates[number].set()


def test_batches_come_in_order_whoever_is_first():
    data = Gated()
    iterator = iter(make(data, 3, batch_size=None))
    for number in (2, 1, 0):
        assert data.begun[number].wait(PATIENCE)
        data.open(number)
        if number != 0:  # the worker has gone on to its next batch
            assert data.begun[number + 3].wait(PATIENCE)
    assert [next(iterator) for _ in range(3)] == [0, 1, 2]
    data.open(3, 4, 5)
    assert list(iterator) == [3, 4, 5]


@pytest.mark.skipif(not since_2_6, reason="torch has no in_order")
def test_in_order_false_gives_what_is_ready():
    data = Gated(4)
    iterator = iter(make(data, 2, batch_size=None, in_order=False))
    data.open(1)
    assert next(iterator) == 1
    data.open(3)
    assert next(iterator) == 3
    data.open(0, 2)
    assert list(iterator) == [0, 2]


def test_look_ahead_is_prefetch_factor_times_workers():
    taken = []

    class Sampler(torch.utils.data.Sampler):
        def __iter__(self):
            for index in range(20):
                taken.append(index)
                yield index

    iterator = iter(make(Numbers(), 2, batch_size=None, sampler=Sampler(), prefetch_factor=3))
    assert len(taken) == 6
    next(iterator)
    assert len(taken) == 7


def test_timeout():
    data = Gated()
    iterator = iter(make(data, 1, batch_size=None, timeout=0.2))
    with pytest.raises(RuntimeError, match=r"DataLoader timed out after 0\.2 seconds"):
        next(iterator)
    data.open(*range(6))


def test_early_break_leaves_no_thread():
    loader = make(Numbers(40), 3, batch_size=2)
    for _ in range(30):
        for _batch in loader:
            break
    gc.collect()
    eventually(lambda: not workers_alive(), workers_alive)


def test_close_ends_the_threads_and_the_iterator():
    for persistent in (False, True):
        loader = make(Numbers(), batch_size=2, persistent_workers=persistent)
        iterator = iter(loader)
        next(iterator)
        assert len(workers_alive()) == 2
        loader.close()
        assert not workers_alive()
        with pytest.raises(StopIteration):
            next(iterator)
        assert len(list(loader)) == 12
        loader.close()


def test_persistent_threads_are_the_same_ones():
    seen = []

    class Watched(Numbers):
        def __getitem__(self, index):
            seen.append(threading.get_ident())
            return index

    loader = make(Watched(), persistent_workers=True)
    list(loader)
    for _batch in loader:
        break
    list(loader)
    assert len(set(seen)) == 2 and threading.get_ident() not in seen
    loader.close()


# --- who a worker is ------------------------------------------------------------------------------


class Introspective(Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, index):
        info = torch.utils.data.get_worker_info()
        assert get_worker_info() is info  # imported before there was a thread
        return info.id, info.num_workers, info.seed, info.dataset is self


def test_worker_info():
    torch.manual_seed(3)
    theirs = list(DataLoader(Introspective(), batch_size=None, num_workers=2))
    torch.manual_seed(3)
    loader = make(Introspective(), batch_size=None)
    for got in (list(loader), list(loader)):
        assert [each[:2] for each in got] == [[0, 2], [1, 2], [0, 2], [1, 2]]
        assert all(each[3] for each in got)
    torch.manual_seed(3)
    assert list(make(Introspective(), batch_size=None)) == theirs
    assert get_worker_info() is None


def test_generators_of_a_worker():
    class Drawing(Numbers):
        def __getitem__(self, index):
            info = get_worker_info()
            assert info.worker_method == "thread"
            rng = info.rng
            drawn = torch.rand((), generator=rng.torch_generator).item()
            return drawn, rng.random_generator.random(), rng.numpy_generator.random(), info.seed

    torch.manual_seed(5)
    first = list(make(Drawing(8), batch_size=None))
    torch.manual_seed(5)
    assert list(make(Drawing(8), batch_size=None)) == first
    for number in (0, 1):
        drawn, plain, _, seed = first[number]
        assert plain == random.Random(seed).random()
        assert drawn == torch.rand((), generator=torch.Generator().manual_seed(seed)).item()
    assert len({each[2] for each in first}) == 8


@pytest.mark.parametrize("collate_fn", [None, lambda batch: default_collate(batch)])
def test_default_collate_takes_no_shared_memory(collate_fn):
    loader = make(Numbers(), batch_size=4, collate_fn=collate_fn)
    assert not any(values.is_shared() for _, values in loader)


def test_a_collate_fn_may_ask_who_it_is():
    loader = make(Numbers(), batch_size=4, collate_fn=lambda batch: get_worker_info().id)
    assert list(loader) == [0, 1, 0, 1, 0, 1]


def test_processes_still_know_who_they_are():
    list(make(Numbers()))
    loader = DataLoader(Introspective(), batch_size=None, num_workers=2)
    assert [each[0] for each in loader] == [0, 1, 0, 1]
    shared = DataLoader(Numbers(), batch_size=4, num_workers=2)
    assert all(values.is_shared() for _, values in shared)


def test_worker_init_fn_runs_once_in_each_thread():
    calls = []

    def init(number):
        assert get_worker_info().id == number
        calls.append((number, threading.get_ident()))

    loader = make(Numbers(), worker_init_fn=init, persistent_workers=True)
    list(loader), list(loader)
    assert sorted(number for number, _ in calls) == [0, 1]
    assert len({ident for _, ident in calls} | {threading.get_ident()}) == 3
    loader.close()


def test_without_workers_there_is_no_thread_and_loaders_can_be_copied():
    loader = make(Numbers(4), 0)
    iterator = iter(loader)
    next(iterator)
    assert not workers_alive()
    again = pickle.loads(pickle.dumps(make(Numbers(4), batch_size=2)))
    assert again.worker_backend == "thread" and "2 worker threads" in again.plan()
    assert [numbers.tolist() for numbers, _ in again] == [[0, 1], [2, 3]]


def test_a_worker_looks_like_a_process():
    """Trainers look at their exit codes."""
    loader = make(Numbers(), persistent_workers=True)
    iterator = iter(loader)
    next(iterator)
    workers = iterator._workers
    assert [each.exitcode for each in workers] == [None, None]
    assert [each.name for each in workers] == ["fastloader-worker-0", "fastloader-worker-1"]
    loader.close()
    assert [each.exitcode for each in workers] == [0, 0]
