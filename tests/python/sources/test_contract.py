"""What every source keeps on every path of the delivery. A toy source shows how little that takes, and
another one what a thread adds to it."""

import json
import os
import pickle

import pytest
import torch
from pictures import plain_folder
from thread_toy import ThreadToys, with_toys
from torch.utils.data import DataLoader, Sampler, TensorDataset
from toy import some_toys

from fastloader import FastLoader
from fastloader._core.batch.augmentation import Augmentation, Mixing, RandomErasing
from fastloader._core.machine import extension
from fastloader.datasets import ImageFolder
from fastloader.transforms import Compose, Resize
from support import MEAN, STD, Pictures, expected

pytestmark = pytest.mark.covering

COUNT, BATCH = 23, 4
native = extension.load()


def of_toys(tmp_path):
    return some_toys(COUNT)


def of_thread_toys(tmp_path):
    return ThreadToys(some_toys(COUNT).pictures)


def of_python(tmp_path):
    return Pictures(COUNT, seed=3)


def of_arrays(tmp_path):
    pictures = torch.randint(0, 256, (COUNT, 3, 6, 5), dtype=torch.uint8)
    return TensorDataset(pictures, torch.arange(COUNT))


def of_images(tmp_path):
    root = tmp_path / "pictures"
    root.mkdir()
    plain_folder(root, COUNT, classes=COUNT)
    return ImageFolder(str(root), Compose([Resize((8, 6))]))


SOURCES = {
    "toy-0": (of_toys, {}, "toys"),
    "toy-2": (of_toys, {"num_workers": 2}, "toys"),
    "thread-toy": (of_thread_toys, {}, "thread toys"),
    "python-0": (of_python, {}, "Python path"),
    "python-processes": (of_python, {"num_workers": 2}, "Python path"),
    "python-threads": (of_python, {"num_workers": 2, "worker_backend": "thread"}, "Python path"),
    "arrays-0": (of_arrays, {}, "arrays"),
    "arrays-2": (of_arrays, {"num_workers": 2}, "arrays"),
    "images-0": (of_images, {}, "native images"),
    "images-2": (of_images, {"num_workers": 2}, "native images"),
}


@pytest.fixture(params=list(SOURCES))
def source(request, tmp_path):
    """(dataset, options, how `plan` begins)"""
    make, options, words = SOURCES[request.param]
    return make(tmp_path), options, words


@pytest.fixture(params=["plain", "cpu", "twin", "streams", "pure"])
def load(request, enter_way, source):
    """Makes loaders of that source for one path; with ``normalised``, whether images are."""
    dataset, options, words = source
    if request.param in ("plain", "pure") and words == "native images":
        if native is None or request.param == "pure":
            pytest.skip("the native module is not in use")
    way = None if request.param == "plain" else enter_way(request.param)

    def make(**more):
        given = {**options, **more}
        if way is not None:
            given |= {**way.options, "mean": MEAN, "std": STD}
        return with_toys(FastLoader(dataset, BATCH, **given))

    make.path = "torch" if way is None else way.path
    make.dataset, make.words = dataset, words
    make.normalised = way is not None
    return make


def values(batches):
    return [[leaf.cpu().tolist() for leaf in batch] for batch in batches]


def wanted_of(load, order):
    """Batches as DataLoader makes them of samples in that order, normalised where the loader does."""
    made = []
    for begin in range(0, len(order), BATCH):
        chosen = order[begin : begin + BATCH]
        pictures, numbers = zip(*(load.dataset[index] for index in chosen))
        pictures = torch.stack([torch.as_tensor(picture) for picture in pictures])
        made.append([expected(pictures) if load.normalised else pictures, torch.tensor(numbers)])
    return values(made)


def close_to(got, wanted):
    assert len(got) == len(wanted)
    for (images, numbers), (right, labels) in zip(got, wanted):
        assert numbers == labels
        torch.testing.assert_close(torch.tensor(images), torch.tensor(right), rtol=0, atol=2e-6)


def test_order_and_values(load):
    loader = load(shuffle=True)
    assert loader.plan().startswith(load.words)
    torch.manual_seed(11)
    got = [values(loader), values(loader)]
    torch.manual_seed(11)
    peer = DataLoader(range(COUNT), BATCH, shuffle=True, num_workers=0)
    for epoch in got:
        order = [index for batch in peer for index in batch.tolist()]
        close_to(epoch, wanted_of(load, order))
    assert loader.stats()["path"] == load.path and loader.stats()["batches"] == 2 * len(peer)


@pytest.mark.parametrize("taken", [0, 1, 3, 6])
def test_a_state_goes_on_behind_what_was_received(load, taken):
    torch.manual_seed(5)
    generator = torch.Generator().manual_seed(9)
    loader = load(shuffle=True, generator=generator)
    iterator = iter(loader)
    first = values(next(iterator) for _ in range(taken))
    state = json.loads(json.dumps(loader.state_dict()))
    loader.close()
    other = load(shuffle=True, generator=torch.Generator().manual_seed(1))
    other.load_state_dict(state)
    rest = values(other)
    seeded = torch.Generator().manual_seed(9)
    peer = DataLoader(range(COUNT), BATCH, shuffle=True, generator=seeded)
    order = [index for batch in peer for index in batch.tolist()]
    close_to(first + rest, wanted_of(load, order))


def test_an_error_takes_its_batchs_place(load):
    class Refusing(Sampler):
        def __iter__(self):
            yield [0, 1]
            yield [COUNT + 7]  # out of range
            yield [2, 3]

        def __len__(self):
            return 3

    loader = _over(load, Refusing())
    iterator = iter(loader)
    got = [values([next(iterator)])]
    with pytest.raises(IndexError):
        next(iterator)
    got.append(values([next(iterator)]))
    with pytest.raises(StopIteration):
        next(iterator)
    assert [[numbers for _, numbers in batch] for batch in got] == [[[0, 1]], [[2, 3]]]
    assert loader.stats()["errors"] == 1


def _over(load, batch_sampler):
    loader = load()
    given = {name: getattr(loader, name) for name in ("num_workers", "worker_backend", "device")}
    given |= {"mean": MEAN, "std": STD} if load.normalised else {}
    return with_toys(FastLoader(load.dataset, batch_sampler=batch_sampler, **given))


def test_a_loop_that_breaks_off_and_begins_again(load):
    loader = load()
    for taken in (1, 2):
        for number, _ in enumerate(loader, 1):
            if number == taken:
                break
    close_to(values(loader), wanted_of(load, list(range(COUNT))))


def test_close_ends_the_iterator_and_not_the_loader(load):
    loader = load()
    iterator = iter(loader)
    next(iterator)
    loader.close()
    with pytest.raises(StopIteration):
        next(iterator)
    close_to(values(loader), wanted_of(load, list(range(COUNT))))


def test_a_copy_of_the_loader_makes_the_same_batches(load):
    loader = load()
    next(iter(loader))
    copied = with_toys(pickle.loads(pickle.dumps(loader)))
    close_to(values(copied), wanted_of(load, list(range(COUNT))))


@pytest.mark.exhaustive
def test_a_forked_child_iterates_anew(load):
    loader = load()
    assert len(list(loader)) == len(loader)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            numbers = [numbers for _, numbers in loader]
            code = 0 if torch.cat(numbers).tolist() == list(range(COUNT)) else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_figures(load):
    loader = load()
    for _ in loader:
        pass
    report, stats = loader.report(), loader.stats()
    assert report.batches == len(loader) and report.path == load.path
    assert list(report.stages)[-1] == "wait"
    assert stats["stages"].keys() == report.stages.keys()
    toys = load.words in ("toys", "thread toys")
    assert ("toys" in stats) == toys
    if toys:
        assert "play" in report.stages and report.threads == 1


def test_what_is_erased_and_mixed_has_room(load):
    loader = load(drop_last=True)
    if not load.normalised:
        pytest.skip("only normalised images are erased and mixed")
    mixing = Mixing(mode="elem", mixup_alpha=0.8, num_classes=COUNT)
    erasing = RandomErasing(0.9, mode="pixel", max_count=3)
    loader._runtime.delivery.augment(Augmentation(erasing, mixing))
    sizes = [(tuple(images.shape), tuple(targets.shape)) for images, targets in loader]
    assert sizes == [((BATCH, 3, *sizes[0][0][2:]), (BATCH, COUNT))] * (COUNT // BATCH)
    assert loader.stats()["errors"] == 0
