"""A draw belongs to the sample. In one epoch, its pixels are the same whatever the batch size, the
workers, the kind of source, the world size, and wherever the loop goes on from a state."""

import itertools
import random
import types

import pytest
import torch
from pictures import plain_folder
from torch.utils.data import (
    BatchSampler,
    Dataset,
    DistributedSampler,
    RandomSampler,
    Subset,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

from fastloader import EncodedImage, FastLoader
from fastloader import transforms as T
from fastloader._core.batch.augmentation import RandomErasing
from fastloader.compat.timm.loader import ErasingLoader
from fastloader.datasets import ImageFolder
from support import MEAN, STD, generator

pytestmark = pytest.mark.covering

COUNT = 23
HEAD = [T.RandomResizedCrop(12), T.RandomHorizontalFlip()]
FLOATS = [T.ToTensor(), T.Normalize(MEAN, STD)]
RECIPES = {
    "crops": HEAD,
    "bytes erased": [*HEAD, T.PILToTensor(), T.RandomErasing(0.9, value=7)],
    "deviates": [*HEAD, *FLOATS, T.RandomErasing(0.9, value="random")],
    "constants": [*HEAD, *FLOATS, T.RandomErasing(0.9, value=(1, 2, 3))],
    "RandAugment": [*HEAD, T.RandAugment()],
    "TrivialAugmentWide": [T.TrivialAugmentWide(), *HEAD],
    "AutoAugment": [*HEAD, T.AutoAugment()],
    "AugMix": [*HEAD, T.AugMix()],
    "colour": [*HEAD, T.RandomApply([T.ColorJitter(0.4, 0.4, 0.4, 0.1)], 0.8), T.RandomGrayscale()],
    "SimCLR": [*HEAD, T.GaussianBlur(5), T.RandomSolarize(128), T.RandomInvert()],
    "geometry": [T.RandomAffine(30, (0.1, 0.1), (0.8, 1.2), 10), T.RandomPerspective(), *HEAD],
    "rotation": [
        *HEAD,
        T.RandomRotation(40),
        T.RandomChoice([T.RandomPosterize(3), T.RandomEqualize()]),
    ],
}
# Of whole batches, by the loader.
ERASINGS = {
    "const": RandomErasing(0.9, max_count=3),
    "rand": RandomErasing(0.9, mode="rand", max_count=2),
    "pixel": RandomErasing(0.9, mode="pixel"),
}


class Encoded(Dataset):
    """The same files, left encoded by a dataset of one's own."""

    def __init__(self, folder):
        self.folder = folder

    def __len__(self):
        return len(self.folder)

    def __getitem__(self, index):
        path, label = self.folder.samples[index]
        return EncodedImage(path, self.folder.transform), label


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return str(plain_folder(tmp_path_factory.mktemp("drawn"), COUNT, classes=COUNT))


BATCHES = [1, 4, 7, COUNT]
WORKERS = [(0, "process"), (2, "process"), (1, "thread"), (3, "thread")]
KINDS = ["folder", "encoded", "view"]
# The batch size and the steps before a state, from which the epoch goes on; the number of ranks.
BROKEN_OFF = [None, (5, 0), (5, 2), (2, 7)]
WORLDS = [1, 2, 3]
COMBINATIONS = [
    each
    for each in itertools.product(KINDS, BATCHES, WORKERS, BROKEN_OFF, WORLDS)
    if not (each[3] and each[4] > 1)  # see `test_erasing_of_any_number_of_ranks`
]


def dataset(root, recipe, kind):
    folder = ImageFolder(root, T.Compose(RECIPES[recipe]))
    if kind == "encoded":
        return Encoded(folder)
    return Subset(folder, range(COUNT)) if kind == "view" else folder


def pixels(data, erasing, batch, workers, broken_off, world):
    """The pixels of each sample in an epoch, by its label."""
    count, backend = workers
    options = {"num_workers": count, "worker_backend": backend}
    if erasing is not None:
        options |= {"mean": MEAN, "std": STD, "random_erasing": ERASINGS[erasing]}
    found = {}

    def take(batches):
        for images, labels in batches:
            for image, label in zip(images, labels.tolist(), strict=True):
                found[label] = image.clone()

    def make(size, rank):
        torch.manual_seed(5)
        order = {"shuffle": True}
        if world > 1:
            order = {"sampler": DistributedSampler(data, world, rank, shuffle=False)}
        return ErasingLoader(data, size, generator=generator(6), **order, **options)

    for rank in range(world):
        with make(batch, rank) as loader:
            if broken_off is not None:
                size, steps = broken_off
                with make(size, rank) as before:
                    take(itertools.islice(before, steps))
                    state = before.state_dict()
                loader.load_state_dict(state)
            take(loader)
    assert len(found) == COUNT
    return [found[label] for label in range(COUNT)]


def check(root, recipe, erasing, combinations):
    # By the places of the loader's order, which is another one with shares.
    wanted = {
        shared: pixels(dataset(root, recipe, "folder"), erasing, COUNT, (0, "process"), None, ranks)
        for shared, ranks in ((False, 1), (True, 4))
    }
    for kind, *rest in combinations:
        got = pixels(dataset(root, recipe, kind), erasing, *rest)
        shared = rest[-1] > 1
        wrong = [i for i in range(COUNT) if not torch.equal(got[i], wanted[shared][i])]
        assert not wrong, (recipe, erasing, kind, *rest)


@pytest.mark.parametrize("erasing", ERASINGS)
def test_erasing_of_any_number_of_ranks(root, erasing, monkeypatch):
    """With ``distributed=``, also where another number of ranks goes on."""
    data = ImageFolder(root, T.Compose(HEAD))
    place = {"rank": 0, "world": 1}
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setenv("FASTLOADER_AUDIT", "0")  # there is no other rank
    # As a group without a store, over which the ranks compare nothing.
    group = types.SimpleNamespace(_get_default_store=lambda: None)
    monkeypatch.setattr(torch.distributed, "distributed_c10d", group)
    monkeypatch.setattr(torch.distributed, "get_rank", lambda *_: place["rank"])
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda *_: place["world"])

    def make(rank, world, batch):
        place.update(rank=rank, world=world)
        torch.manual_seed(10 * rank + world)  # which the ranks need not have in common
        return ErasingLoader(
            data, batch, shuffle=True, distributed="exact", generator=generator(6),
            mean=MEAN, std=STD, random_erasing=ERASINGS[erasing],
        )  # fmt: skip

    def epoch(before, after, number):
        """Of ranks with (world, batch size, steps), and of those that go on behind them."""
        found, state = {}, {}
        for world, batch, steps in (before, after):
            loaded = state
            for rank in range(world):
                with make(rank, world, batch) as loader:
                    loader.set_epoch(number)
                    loader.load_state_dict(loaded)
                    for images, labels in itertools.islice(iter(loader), steps):
                        found |= zip(labels.tolist(), images.clone())
                    state = state if rank else loader.state_dict()
        return [found[label] for label in range(COUNT)]

    for number in range(2):
        wanted = epoch((1, COUNT, 0), (1, COUNT, None), number)
        for before, after in (
            *(((2, 3, 2), (3, 4, None)), ((1, 4, 3), (2, 5, None)), ((3, 2, 1), (1, 6, None))),
            *(((2, 1, 0), (2, 7, None)), ((4, 2, 1), (4, 3, None))),
        ):
            got = epoch(before, after, number)
            assert all(map(torch.equal, got, wanted)), (erasing, number, before, after)


REPEATING = {
    "replacement": lambda own: RandomSampler(range(COUNT), True, 40, own),
    "weighted": lambda own: WeightedRandomSampler([1.0] * COUNT, 40, generator=own),
    "subset": lambda own: SubsetRandomSampler([1, 1, 2, 3, 2, 5, 5] * 6, own),
}


@pytest.mark.exhaustive
@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize("repeating", REPEATING)
def test_samples_that_come_again(root, repeating, grouped):
    """By their place, which the batch sampler that groups them has no part in."""

    def epoch(kind, batch, workers, broken_off):
        data = dataset(root, "deviates", kind)
        count, backend = workers

        def make(size):
            own = generator(6)
            sampler = REPEATING[repeating](own)
            order = {"batch_size": size, "sampler": sampler}
            if grouped:
                order = {"batch_sampler": BatchSampler(sampler, size, False)}
            options = {"num_workers": count, "worker_backend": backend}
            return FastLoader(data, generator=own, **order, **options)

        with make(batch) as loader:
            batches = []
            if broken_off is not None:
                with make(broken_off[0]) as before:
                    batches += itertools.islice(iter(before), broken_off[1])
                    loader.load_state_dict(before.state_dict())
            batches += loader
        return [
            (label, image.numpy().tobytes())
            for images, labels in batches
            for label, image in zip(labels.tolist(), images, strict=True)
        ]

    wanted = epoch("folder", 40, (0, "process"), None)
    assert len({label for label, _ in wanted}) < len(wanted) == len(set(wanted))
    ways = [*itertools.product(("folder", "encoded"), (1, 4), WORKERS, BROKEN_OFF)]
    for way in chosen(ways, 6):
        assert epoch(*way) == wanted, way


def chosen(ways, count):
    seed = random.SystemRandom().randrange(1 << 31)
    print("seed", seed)
    return random.Random(seed).sample(ways, count)


def some(count):
    return chosen(COMBINATIONS, count)


@pytest.mark.exhaustive
@pytest.mark.parametrize("recipe", RECIPES)
def test_recipes(root, recipe):
    check(root, recipe, None, some(3))


@pytest.mark.parametrize("erasing", ERASINGS)
def test_erasing_of_the_loader(root, erasing):
    check(root, "crops", erasing, some(8))


@pytest.mark.slow
@pytest.mark.parametrize("recipe", RECIPES)
def test_every_combination_of_recipes(root, recipe):
    check(root, recipe, None, COMBINATIONS)


@pytest.mark.slow
@pytest.mark.parametrize("erasing", ERASINGS)
def test_every_combination_of_erasing(root, erasing):
    check(root, "crops", erasing, COMBINATIONS)
