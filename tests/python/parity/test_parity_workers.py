"""Worker processes: seeds, context, look-ahead, timeout and pinning as with DataLoader."""

import gc
import multiprocessing
import random
import warnings

import numpy as np
import pytest
import torch
from side_by_side import (
    Numbers,
    batches,
    described,
    generators,
    image,
    same_for_both,
    since_2_6,
)
from torch.utils.data import IterableDataset, get_worker_info

from fastloader import FastLoader
from support import children, eventually

pytestmark = pytest.mark.covering


class Draws(Numbers):
    """What the generators of the process that runs it give, and what it knows of itself."""

    def __getitem__(self, index):
        info = get_worker_info()
        drawn = torch.tensor(
            [random.random(), np.random.rand(), torch.rand(()).item()],
            dtype=torch.float64,
        )
        if info is None:
            return image(index), index, drawn, "main"
        told = (
            info.id,
            info.num_workers,
            info.seed,
            info.dataset is self,
            repr(info).split("(")[0],
        )
        return (
            image(index),
            index,
            drawn,
            repr((told, torch.initial_seed(), torch.get_num_threads())),
        )


@pytest.mark.exhaustive
@pytest.mark.parametrize("workers", [0, 1, 3])
@pytest.mark.parametrize("generator", [False, True], ids=["", "generator"])
@pytest.mark.parametrize("persistent", [False, True], ids=["", "persistent"])
def test_seeds(fast, generator, persistent, workers):
    """base_seed + worker_id for torch and random, and numpy's own; drawn anew for each epoch, with
    persistent workers once."""
    if persistent and not workers:
        pytest.skip("needs workers")

    def scenario(make):
        own = torch.Generator().manual_seed(11) if generator else None
        options = {"generator": own, "shuffle": True, "num_workers": workers}
        loader = make(Draws(7), batch_size=2, persistent_workers=persistent, **options)
        seen = []
        for _ in range(2):
            iterator = iter(loader)
            seen += [generators(), iterator._base_seed]
            seen += [[described(batch) for batch in iterator], generators()]
        return [*seen, own is not None and own.get_state().tolist()]

    same_for_both(fast, scenario)


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "context, by_name", [("fork", True), ("fork", False), ("spawn", True), ("forkserver", False)]
)
def test_contexts(fast, context, by_name):
    if context != "fork" and fast.way not in ("none", "twin"):
        pytest.skip("takes seconds, and nothing of it is theirs")

    def scenario(make):
        chosen = context if by_name else multiprocessing.get_context(context)
        loader = make(Draws(5), batch_size=2, num_workers=1, multiprocessing_context=chosen)
        seen = [batches(loader)]
        assert loader.multiprocessing_context.get_start_method() == context
        return seen

    same_for_both(fast, scenario)


def init(worker):
    random.seed(worker)
    get_worker_info().dataset.value = float


@pytest.mark.exhaustive
def test_worker_init_fn(fast):
    def scenario(make):
        return batches(make(Draws(6), num_workers=2, worker_init_fn=init))

    same_for_both(fast, scenario)


class Raises:
    def __call__(self, worker):
        raise LookupError(f"worker {worker} will not start")


@pytest.mark.exhaustive
def test_worker_init_fn_that_raises(fast):
    def scenario(make):
        iterator = iter(make(Numbers(6), num_workers=1, worker_init_fn=Raises()))
        with pytest.raises(LookupError) as caught:
            next(iterator)
        return str(caught.value).splitlines()[0]

    assert "worker process 0" in same_for_both(fast, scenario)


@pytest.mark.exhaustive
def test_persistent_workers_are_the_same_processes(fast):
    def scenario(make):
        loader = make(Numbers(6), batch_size=2, num_workers=2, persistent_workers=True)
        seen, pids = [], set()
        for epoch in range(3):
            for number, _ in enumerate(loader):
                pids.add(tuple(worker.pid for worker in loader._iterator._workers))
                if epoch == 1 and number == 0:
                    break  # the next epoch begins anew all the same
            seen.append((number, len(children()), loader._iterator._num_workers))
        assert len(pids) == 1
        return seen

    assert same_for_both(fast, scenario) == [(2, 2, 2), (0, 2, 2), (2, 2, 2)]


@pytest.mark.exhaustive
def test_persistent_workers_keep_their_data_set(fast):
    class Counts(IterableDataset):
        epoch = 0

        def __iter__(self):
            self.epoch += 1
            yield image(self.epoch), self.epoch

    def scenario(make):
        loader = make(Counts(), num_workers=2, persistent_workers=True)
        return [batches(loader) for _ in range(3)]

    same_for_both(fast, scenario)


class Asked:
    """A sampler that counts what it gave."""

    def __init__(self):
        self.count = 0

    def __iter__(self):
        for index in range(20):
            self.count += 1
            yield index


@pytest.mark.parametrize("workers, factor", [(1, 1), (1, 4), (2, 3), (2, None)])
def test_prefetch_factor(fast, workers, factor):
    """So many are asked for at iter(), and one for each batch that is taken: no more than torch."""

    def scenario(make):
        sampler = Asked()
        more = {"num_workers": workers, "prefetch_factor": factor}
        loader = make(Numbers(20), sampler=sampler, **more)
        iterator = iter(loader)
        seen = [sampler.count, loader.prefetch_factor]
        for _ in range(8):
            next(iterator)
            seen.append(sampler.count)
        return seen

    ahead = workers * (factor or 2)
    assert same_for_both(fast, scenario)[0] == ahead


class Told(IterableDataset):
    """Each worker gives ``count`` samples, and a sign for each that it is asked for."""

    def __init__(self, count, asked):
        self.count = count
        self.asked = asked

    def __iter__(self):
        worker = get_worker_info().id
        for number in range(self.count):
            self.asked.release()
            yield image(number), (worker, number)


@pytest.mark.exhaustive
@pytest.mark.parametrize("workers, factor", [(1, 1), (1, 2), (2, 2)])
def test_prefetch_factor_of_an_iterable(fast, workers, factor):
    """Its workers read as far ahead as with torch, whoever takes the batches from them."""

    def scenario(make):
        asked = multiprocessing.get_context("fork").Semaphore(0)
        iterator = iter(make(Told(20, asked), num_workers=workers, prefetch_factor=factor))
        total, seen = 0, []
        for taken in range(3):
            allowed = workers * factor + taken
            while asked.acquire(timeout=30 if total < allowed else 0.3):
                total += 1
            seen.append(total)
            next(iterator)
        return seen

    ahead = workers * factor
    assert same_for_both(fast, scenario) == [ahead, ahead + 1, ahead + 2]


@pytest.mark.exhaustive
@pytest.mark.parametrize("factor", [1, 3])
@pytest.mark.parametrize("persistent", [False, True])
def test_workers_of_an_iterable_that_end_at_different_times(fast, factor, persistent):
    """With nothing under way but at workers that have ended, the epoch goes on."""

    class Uneven(IterableDataset):
        def __iter__(self):
            worker = get_worker_info().id
            for number in range([0, 7, 2][worker]):
                yield image(10 * worker + number), (worker, number)

    def scenario(make):
        options = {"num_workers": 3, "prefetch_factor": factor, "persistent_workers": persistent}
        loader = make(Uneven(), **options)
        return [batches(loader), batches(loader)]

    assert [len(epoch) for epoch in same_for_both(fast, scenario)] == [9, 9]


@pytest.mark.exhaustive
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_prefetch_factor_zero(fast):
    def scenario(make):
        loader = make(Numbers(), num_workers=1, prefetch_factor=0)
        with pytest.raises(AssertionError) as caught:
            iter(loader)
        said = str(caught.value)
        del caught
        gc.collect()  # torch's half-made iterator complains when it dies
        return said

    said = same_for_both(fast, scenario)
    assert "greater than 0" in said or not since_2_6


class Gated(Numbers):
    """Index 0 waits until the gate is opened."""

    def __init__(self, gate):
        super().__init__(6)
        self.gate = gate

    def __getitem__(self, index):
        if index == 0:
            assert self.gate.wait(60)
        return super().__getitem__(index)


@pytest.mark.skipif(not since_2_6, reason="torch has no in_order")
def test_in_order_false(fast):
    """What is ready first arrives first."""

    def scenario(make):
        gate = multiprocessing.get_context("fork").Event()
        loader = make(Gated(gate), num_workers=2, prefetch_factor=1, in_order=False)
        seen = []
        for _, index in loader:
            seen.append(index.item())
            if len(seen) == 4:
                gate.set()
        return seen[0] != 0, sorted(seen)

    assert same_for_both(fast, scenario) == (True, list(range(6)))


@pytest.mark.exhaustive
def test_timeout(fast):
    """The message, and that the batch is delivered once it is there."""

    def scenario(make):
        gate = multiprocessing.get_context("fork").Event()
        iterator = iter(make(Gated(gate), num_workers=1, timeout=1))
        with pytest.raises(RuntimeError) as caught:
            next(iterator)
        gate.set()
        return str(caught.value), [described(batch) for batch in iterator]

    said, rest = same_for_both(fast, scenario)
    assert said == "DataLoader timed out after 1 seconds" and len(rest) == 6


@pytest.mark.exhaustive
def test_timeout_counts_from_next(fast):
    """A training step may take longer than the time-out, as long as next() does not."""

    def scenario(make):
        context = multiprocessing.get_context("fork")
        gate = context.Event()
        iterator = iter(make(Gated(gate), num_workers=1, timeout=1, sampler=[1, 0, 2]))
        seen = [described(next(iterator))]
        # The step: longer than the time-out, and until its end nothing comes from the worker.
        assert not context.Event().wait(1.5)
        gate.set()
        return seen + [described(batch) for batch in iterator]

    assert len(same_for_both(fast, scenario)) == 3


def test_timeout_without_workers(fast):
    def scenario(make):
        with pytest.raises(AssertionError) as caught:
            iter(make(Numbers(), timeout=3))
        return str(caught.value)

    said = same_for_both(fast, scenario)
    assert "requires timeout == 0" in said or not since_2_6


class Pinnable:
    """With a pin_memory of its own."""

    def __init__(self, samples):
        self.images = torch.stack([sample[0] for sample in samples])
        self.pinned = False

    def pin_memory(self):
        self.pinned = True
        return self


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is an accelerator: tests/gpu")
@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("device", ["", "cuda"])
def test_pin_memory_without_an_accelerator(fast, workers, device):
    """A warning, and nothing is pinned."""
    if device and not since_2_6:
        pytest.skip("a named device is pinned for whether it is there or not: torch's own error")

    def scenario(make):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            loader = make(
                Numbers(2),
                num_workers=workers,
                pin_memory=True,
                pin_memory_device=device,
                collate_fn=lambda samples: (
                    torch.stack([s[0] for s in samples]),
                    Pinnable(samples),
                ),
            )
            seen = [(batch[1].pinned, batch[0].is_pinned()) for batch in loader]
        return seen, [(each.category, str(each.message)) for each in caught], loader.pin_memory

    assert same_for_both(fast, scenario)[0] == [(False, False)] * 2


def test_more_workers_than_processors(fast):
    def scenario(make):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            make(Numbers(2), num_workers=4000)
        return [str(each.message) for each in caught]

    assert "4000 worker processes" in same_for_both(fast, scenario)[0]


@pytest.mark.exhaustive
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_unpicklable_arguments(fast):
    """With spawn: torch's warning, and pickle's error, from iter()."""

    def scenario(make):
        options = {"num_workers": 1, "multiprocessing_context": "spawn"}
        loader = make(Numbers(4), worker_init_fn=lambda worker: None, **options)
        with warnings.catch_warnings(record=True) as caught, pytest.raises(Exception) as raised:
            warnings.simplefilter("always")
            iter(loader)
        kind = type(raised.value)
        del raised
        gc.collect()
        return [str(each.message) for each in caught], kind

    same_for_both(fast, scenario)


def test_workers_end_with_the_epoch(fast):
    loader = fast(Numbers(4), num_workers=2)
    list(loader)
    eventually(lambda: not children(), lambda: f"{children()} gone")


def test_iterating_from_another_thread(fast):
    import threading

    def scenario(make):
        seen = []
        loader = make(Numbers(5), num_workers=1, shuffle=True)
        thread = threading.Thread(target=lambda: seen.extend(batches(loader)))
        thread.start()
        thread.join()
        return seen

    assert len(same_for_both(fast, scenario)) == 5


def test_the_iterators_are_torchs():
    """With nothing to deliver, the iterator is of torch's classes and goes by their names."""
    from torch.utils.data import dataloader

    for workers, kind in (
        (0, dataloader._SingleProcessDataLoaderIter),
        (1, dataloader._MultiProcessingDataLoaderIter),
    ):
        iterator = iter(FastLoader([1], num_workers=workers))
        assert isinstance(iterator, kind)
        assert iterator._profile_name == f"enumerate(DataLoader)#{kind.__name__}.__next__"
