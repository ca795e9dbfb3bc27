"""Loaders whose samplers are replaced after construction, as frameworks do it."""

import copy
import pickle

import pytest
import torch
from pictures import plain_folder
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    DistributedSampler,
    RandomSampler,
    SequentialSampler,
)

from fastloader import FastLoader
from fastloader import transforms as T
from fastloader._core.batch.augmentation import Augmentation, RandomErasing
from fastloader.datasets import ImageFolder
from support import MEAN, STD, Pictures, labels, same

DATA = Pictures(10)


class Forever:
    """timm's and ultralytics': a batch sampler that never ends."""

    def __init__(self, sampler):
        self.sampler = sampler

    def __iter__(self):
        while True:
            yield from iter(self.sampler)


def infinite(base):
    class InfiniteDataLoader(base):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            object.__setattr__(self, "batch_sampler", Forever(self.batch_sampler))
            self.iterator = super().__iter__()

        def __len__(self):
            return len(self.batch_sampler.sampler)

        def __iter__(self):
            for _ in range(len(self)):
                yield next(self.iterator)

    return InfiniteDataLoader


@pytest.mark.parametrize("workers", [0, 1])
def test_a_batch_sampler_without_end(workers):
    def epochs(base):
        torch.manual_seed(3)
        loader = infinite(base)(DATA, batch_size=4, shuffle=True, num_workers=workers)
        return [list(loader) for _ in range(3)]

    same(epochs(FastLoader), epochs(DataLoader))


def test_another_sampler_in_the_batch_sampler():
    """accelerate's way; the state is then of the new one."""
    loader = FastLoader(DATA, batch_size=2)
    again = FastLoader(DATA, batch_size=2)
    for each in (loader, again):
        assert type(each.batch_sampler.sampler) is SequentialSampler
        each.batch_sampler.sampler = RandomSampler(DATA, generator=torch.Generator().manual_seed(4))
    iterator = iter(loader)
    next(iterator)
    again.load_state_dict(loader.state_dict())
    same(labels(again), [label.tolist() for _, label in iterator])


def repeated(self):
    return iter([3] * 6)


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (SequentialSampler, {"batch_size": 6}),
        (RandomSampler, {"batch_size": 6, "shuffle": True}),
        (DistributedSampler, {"batch_size": 6}),
        (BatchSampler, {"batch_size": 6}),
    ],
)
def test_a_sampler_whose_order_was_replaced(monkeypatch, tmp_path, kind, options):
    """One sample that comes six times is drawn six times, as it is by DataLoader."""
    transform = T.Compose([T.RandomResizedCrop(12), T.PILToTensor()])
    data = ImageFolder(plain_folder(tmp_path / "plain", 6, size=(40, 30)), transform)
    if kind is DistributedSampler:
        options["sampler"] = DistributedSampler(data, 1, 0)
    monkeypatch.setattr(kind, "__iter__", sixes if kind is BatchSampler else repeated)
    images = next(iter(FastLoader(data, **options)))[0]
    assert len({image.numpy().tobytes() for image in images}) == 6


def sixes(self):
    return iter([[3] * 6])


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
def test_copies_erase_too(copied):
    """The same boxes as the loader that was copied, which are 0 and nowhere else."""
    plain = torch.cat([images for images, _ in FastLoader(DATA, batch_size=4, mean=MEAN, std=STD)])
    loader = FastLoader(DATA, batch_size=4, mean=MEAN, std=STD)
    loader._runtime.delivery.augment(Augmentation(RandomErasing(1.0, min_area=0.2), None))
    answers = []
    for each in (loader, copied(loader)):
        torch.manual_seed(6)
        answers.append(torch.cat([images for images, _ in each]))
    assert torch.equal(*answers)
    for erased, whole in zip(answers[0], plain, strict=True):
        changed = erased != whole
        assert changed.any() and not changed.all()
        assert (erased[changed] == 0).all()
