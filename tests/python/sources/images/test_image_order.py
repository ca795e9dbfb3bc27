"""The native image path takes samples in torch's order, draws what torch draws, and its iterators
end and fail as torch's do."""

import gc
import itertools
import sys
import threading

import pytest
import torch
from numbered_pictures import COUNT, Own
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    DistributedSampler,
    RandomSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

from fastloader import EncodedImage, FastLoader
from support import generator, labels, same

pytestmark = pytest.mark.covering

CASES = {
    "sequential": lambda: {"batch_size": 4},
    "one": lambda: {},
    "drop_last": lambda: {"batch_size": 4, "drop_last": True},
    "shuffle": lambda: {"batch_size": 4, "shuffle": True},
    "generator": lambda: {"batch_size": 4, "shuffle": True, "generator": generator(5)},
    "subset": lambda: {"batch_size": 2, "sampler": SubsetRandomSampler([1, 3, 5], generator(6))},
    "weighted": lambda: {
        "batch_size": 4,
        "sampler": WeightedRandomSampler([1.0] * COUNT, 31, generator=generator(7)),
    },
    "batch_sampler": lambda: {"batch_sampler": BatchSampler(RandomSampler(range(COUNT)), 4, False)},
    "list of batches": lambda: {"batch_sampler": [[1, 2], [5], [0, 3, 4]]},
    "distributed": lambda: {
        "batch_size": 4,
        "sampler": DistributedSampler(range(COUNT), num_replicas=2, rank=1),
    },
    "own": lambda: {"batch_size": 3, "sampler": Own([3, 3, -1, 0, 22, 3])},
    "iterable": lambda: {"batch_size": 3, "sampler": range(5, 19)},
    "tensors": lambda: {"batch_size": 3, "sampler": Own(list(torch.arange(6)))},
    "empty": lambda: {"batch_size": 3, "sampler": Own([])},
}


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("workers", [0, 2])
def test_order_and_generators_are_torchs(whole, device, name, workers):
    def observe(kind, **options):
        torch.manual_seed(9)
        loader = kind(whole, num_workers=workers, **CASES[name](), **options)
        seen = []
        for _ in range(3):
            seen.append([[images.clone(), labels] for images, labels in loader])
            seen.append(torch.get_rng_state())
            if loader.generator is not None:
                seen.append(loader.generator.get_state())
        seen.append(len(loader))
        return seen

    with_ours = observe(FastLoader, **device)
    same(with_ours, observe(DataLoader))


@pytest.mark.parametrize("name", ["shuffle", "generator"])
def test_order_is_torchs_with_persistent_workers(whole, device, name):
    """Their seed is drawn once, at the first epoch."""

    def observe(kind, **options):
        torch.manual_seed(9)
        seen = []
        loader = kind(whole, num_workers=1, persistent_workers=True, **CASES[name](), **options)
        for _ in range(3):
            seen.append([[images.clone(), labels] for images, labels in loader])
            seen.append(torch.get_rng_state())
        return seen

    same(observe(FastLoader, **device), observe(DataLoader))


def test_structure_is_default_collates(whole, device):
    batch = next(iter(FastLoader(whole, 4, **device)))
    reference = next(iter(DataLoader(whole, 4)))
    assert type(batch) is type(reference) is list and len(batch) == 2
    assert batch[1].dtype == torch.int64 and batch[1].device == reference[1].device
    same(batch, reference)


def test_nothing_is_drawn_before_iter(crops, device):
    state, own = torch.get_rng_state(), generator(3)
    before = own.get_state()
    loader = FastLoader(crops, 4, shuffle=True, generator=own, **device)
    loader.plan(), len(loader), loader.stats(), repr(loader)
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(own.get_state(), before)
    iter(loader)
    assert torch.equal(torch.get_rng_state(), state)  # its generator was given
    assert not torch.equal(own.get_state(), before)


# --- iterators ----------------------------------------------------------------------------------


IN_ORDER = [list(range(COUNT))[i : i + 4] for i in range(0, COUNT, 4)]


def test_early_breaks(whole, device):
    loader = FastLoader(whole, 4, **device)
    for _ in range(20):
        for _batch in loader:
            break
    assert labels(loader) == IN_ORDER


@pytest.mark.exhaustive
@pytest.mark.parametrize("workers", [1, 2, 3])
def test_an_early_break_leaves_the_generator_as_torch_does(whole, workers):
    """RandomSampler draws once more at its end, and torch asks it as far ahead as its workers go."""

    def scenario(kind, taken, options):
        generator = torch.Generator().manual_seed(3)
        loader = kind(whole, 5, shuffle=True, generator=generator, num_workers=workers, **options)
        iterator = iter(loader)
        for _ in range(taken):
            next(iterator)
        state = generator.get_state()
        del iterator
        return [state, *(labels for _, labels in loader)]

    for options in ({}, {"prefetch_factor": 1}, {"drop_last": True}):
        for taken in range(COUNT // 5 + 1):
            same(scenario(FastLoader, taken, options), scenario(DataLoader, taken, options))


def test_two_iterators_and_zip(crops, device):
    loader = FastLoader(crops, 4, **device)
    a, b = iter(loader), iter(loader)
    (one, first), (other, second) = next(a), next(b)
    assert torch.equal(first, second) and not torch.equal(one, other)
    assert [x[1].tolist() for x in itertools.chain(a)] == IN_ORDER[1:]
    assert [x[1].tolist() for x in b] == IN_ORDER[1:]
    assert [(x[1].tolist(), y[1].tolist()) for x, y in zip(loader, loader)] == list(
        zip(IN_ORDER, IN_ORDER)
    )


def test_an_ended_iterator_stays_ended(whole, device):
    iterator = iter(FastLoader(whole, 20, **device))
    assert len(list(iterator)) == 2
    for _ in range(3):
        with pytest.raises(StopIteration):
            next(iterator)


def test_close_ends_iterators_and_the_loader_goes_on(whole, device):
    loader = FastLoader(whole, 4, **device)
    iterator = iter(loader)
    kept = next(iterator)
    copy = kept[0].clone()
    loader.close()
    loader.close()
    with pytest.raises((StopIteration, RuntimeError)):
        for _ in range(10):
            next(iterator)
    same(kept[0], copy)
    assert labels(loader) == IN_ORDER
    with FastLoader(whole, 4, **device) as again:
        next(iter(again))


def test_loader_may_go_before_its_iterator_and_the_batches(crops, device):
    torch.manual_seed(1)
    reference = [images.clone() for images, _ in FastLoader(crops, 4, **device)]
    torch.manual_seed(1)
    loader = FastLoader(crops, 4, **device)
    iterator = iter(loader)
    first = next(iterator)[0]
    del loader
    gc.collect()
    rest = [images for images, _ in iterator]
    del iterator
    gc.collect()
    same([first, *rest], reference)


def test_iterators_that_are_dropped_leave_nothing(whole, device):
    loader = FastLoader(whole, 4, **device)
    iterators = [iter(loader) for _ in range(5)]
    for iterator in iterators:
        next(iterator)
    loop = [iterators]
    loop.append(loop)
    del iterators, iterator, loop
    gc.collect()
    assert labels(loader) == IN_ORDER


def test_iterators_on_many_threads(crops):
    """One pool serves them all."""
    torch.manual_seed(1)
    results, seeds = {}, {}

    def work(number):
        own = generator(number % 2)
        loader = FastLoader(crops, 4, generator=own, num_workers=1)
        results[number] = [images.clone() for images, _ in loader]
        seeds[number] = number % 2

    threads = [threading.Thread(target=work, args=(i,)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number in range(6):
        same(results[number], results[number % 2])
    assert not torch.equal(results[0][0], results[1][0])


def test_sampler_error_takes_its_batchs_place(whole, device):
    class Broken(Own):
        def __iter__(self):
            yield from range(6)
            raise KeyError("sampler")

    iterator = iter(FastLoader(whole, 2, sampler=Broken([0] * 9), **device))
    for first in (0, 2, 4):
        assert next(iterator)[1].tolist() == [first, first + 1]
    with pytest.raises(KeyError, match="sampler"):
        next(iterator)
    with pytest.raises(StopIteration):
        next(iterator)


@pytest.mark.parametrize("bad", [COUNT, -COUNT - 1, 10**6])
def test_index_beyond_the_end(whole, device, bad):
    iterator = iter(FastLoader(whole, 2, sampler=Own([0, 1, bad, 2, 3, 4]), **device))
    assert next(iterator)[1].tolist() == [0, 1]
    with pytest.raises(IndexError):
        next(iterator)
    assert next(iterator)[1].tolist() == [3, 4]


def test_batch_without_an_index(whole, device):
    batches = Own([[0, 1], [], [2]])
    with pytest.raises(IndexError):
        list(DataLoader(whole, batch_sampler=batches))
    iterator = iter(FastLoader(whole, batch_sampler=batches, **device))
    assert next(iterator)[1].tolist() == [0, 1]
    with pytest.raises(IndexError):
        next(iterator)
    assert next(iterator)[1].tolist() == [2]


@pytest.mark.parametrize("bad", [1.0, "1", None])
def test_index_that_is_none(whole, device, bad):
    iterator = iter(FastLoader(whole, 2, sampler=Own([0, 1, bad, 2, 3, 4]), **device))
    assert next(iterator)[1].tolist() == [0, 1]
    with pytest.raises(TypeError):
        next(iterator)
    assert next(iterator)[1].tolist() == [3, 4]


def test_loader_pickles_and_copies(crops):
    import pickle

    loader = FastLoader(crops, 4, shuffle=True, generator=generator(3))
    next(iter(loader))
    loader.generator.manual_seed(3)
    again = pickle.loads(pickle.dumps(loader))
    same(
        [[i.clone(), x] for i, x in again],
        [[i.clone(), x] for i, x in loader],
    )


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("depth", [None, 2])
def test_two_iterators_draw_their_orders_when_torch_does(whole, workers, depth):
    def orders(kind, **options):
        loader = kind(
            whole, 4, shuffle=True, generator=generator(5), num_workers=workers, **options
        )
        one, other = iter(loader), iter(loader)
        seen = [next(other)[1].tolist(), next(one)[1].tolist()]
        seen += [labels(one), labels(other)]
        return seen, loader.generator.get_state().tolist()

    assert orders(FastLoader, depth=depth) == orders(DataLoader)


class Slow(torch.utils.data.Dataset):
    def __len__(self):
        return 384

    def __getitem__(self, index):
        return index


@pytest.mark.parametrize("kind", ["pictures", "encoded", "arrays", "python", "normalised"])
def test_threads_that_share_an_iterator_get_other_batches(whole, kind):
    options = {}
    if kind == "arrays":
        data = torch.utils.data.TensorDataset(torch.arange(384), torch.arange(384))
    elif kind == "python":
        data = torch.utils.data.StackDataset(Slow(), Slow())
    else:
        data = whole if kind != "encoded" else Encoded(whole)
        data = torch.utils.data.Subset(data, [*range(COUNT)] * 16)
    if kind == "normalised":
        options = {"device": "cpu", "mean": (0.5,) * 3, "std": (0.5,) * 3}
    loader = FastLoader(data, 4, **options)
    wanted = sorted(number for batch in loader for number in batch[1].tolist())
    assert len(wanted) in (384, 16 * COUNT)
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(3):
            iterator, seen = iter(loader), []

            def take(iterator=iterator, seen=seen):
                for batch in iterator:
                    seen.extend(batch[1].tolist())

            threads = [threading.Thread(target=take) for _ in range(3)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert sorted(seen) == wanted
    finally:
        sys.setswitchinterval(before)


class Encoded(torch.utils.data.Dataset):
    def __init__(self, folder):
        self.folder = folder

    def __len__(self):
        return len(self.folder)

    def __getitem__(self, index):
        path, label = self.folder.samples[index]
        return EncodedImage(path, self.folder.transform), label
