"""torch.set_default_device(): what a loader draws and allocates for itself is on the CPU all the same.

"meta" stands for any accelerator: whatever lands there by mistake has no values, and fails loudly.
"""

import contextlib
import itertools
import random

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset, RandomSampler, TensorDataset

import fastloader.datasets
import fastloader.transforms as T
from fastloader import FastLoader
from support import MEAN, STD, Pictures, same

pytestmark = pytest.mark.covering


class Lookup(Dataset):
    """On the CPU, whatever is asked for; the last row lies in a tensor far larger than itself."""

    def __init__(self):
        self.pictures = Pictures(13, seed=random.randrange(1 << 30))
        self.wide = torch.rand(13, 30_000, device="cpu")

    def __len__(self):
        return 13

    def __getitem__(self, index):
        image, _ = self.pictures[index]
        return image, torch.full((), float(index), device="cpu"), self.wide[index]


@contextlib.contextmanager
def default_device(device):
    before = torch.empty(0).device
    torch.set_default_device(device)
    try:
        yield
    finally:
        torch.set_default_device(before if before.type != "cpu" else None)


def set_meta(_worker):
    torch.set_default_device("meta")


RUNNERS = {
    "no workers": {},
    "fork": {"num_workers": 2, "multiprocessing_context": "fork"},
    "spawn": {"num_workers": 2, "multiprocessing_context": "spawn"},
    "threads": {"num_workers": 2, "worker_backend": "thread"},
    "kept": {"num_workers": 2, "persistent_workers": True},
}


def epochs(make):
    torch.manual_seed(7)
    loader = make()
    return [list(loader) for _ in range(2 if loader.persistent_workers else 1)]


@pytest.mark.filterwarnings("ignore:This DataLoader will create")
@pytest.mark.parametrize("shuffle", [False, True], ids=["in order", "shuffled"])
@pytest.mark.parametrize("runner", RUNNERS)
def test_samples_of_a_python_dataset(fast, runner, shuffle):
    if runner == "spawn" and (shuffle or fast.way != "none"):
        pytest.skip("begins as the others do, and takes its time")
    data = Lookup()
    options = {"batch_size": 4, "shuffle": shuffle, **RUNNERS[runner]}
    wanted = epochs(lambda: fast(data, **options))
    if runner != "threads":  # where nothing may differ from DataLoader's
        options["worker_init_fn"] = set_meta
    with default_device("meta"):
        got = epochs(lambda: fast(data, **options))
    same(got, wanted)


@pytest.mark.filterwarnings("ignore:This DataLoader will create")
@pytest.mark.parametrize("workers", [0, 2])
def test_samples_that_are_not_collated(workers):
    """A row of a large tensor travels alone."""
    data = Lookup()
    options = {"batch_size": None, "num_workers": workers, "worker_init_fn": set_meta}
    wanted = list(DataLoader(data, batch_size=None))
    with default_device("meta"):
        same(list(FastLoader(data, **options)), wanted)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("shuffle", [False, True], ids=["in order", "shuffled"])
def test_arrays(fast, shuffle, workers):
    rng = np.random.default_rng()
    pixels = torch.from_numpy(rng.integers(0, 256, (13, 3, 5, 7), dtype=np.uint8))
    data = TensorDataset(pixels, torch.from_numpy(rng.random(13)))
    wanted = epochs(lambda: fast(data, batch_size=4, shuffle=shuffle, num_workers=workers))
    with default_device("meta"):
        got = epochs(lambda: fast(data, batch_size=4, shuffle=shuffle, num_workers=workers))
    same(got, wanted)


def stack_images(batch):
    return torch.stack([image for image, _ in batch])


@pytest.fixture
def folder(tmp_path):
    rng = np.random.default_rng()
    for number in range(7):
        place = tmp_path / str(number % 2)
        place.mkdir(exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (40, 30, 3), dtype=np.uint8)).save(
            place / f"{number}.png"
        )
    return tmp_path


@pytest.mark.filterwarnings("ignore:This DataLoader will create")
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("native", [True, False])
def test_folders_of_pictures(way, folder, native, workers):
    chain = T.Compose([T.RandomResizedCrop(16), T.RandomHorizontalFlip(), T.ToTensor()])
    if way.name == "pure" and native:
        pytest.skip("native images need the native module")

    # Class numbers that torch collates go to the default device, with DataLoader as well.
    options = {} if native else {"collate_fn": stack_images}

    def make():
        data = fastloader.datasets.ImageFolder(folder, chain)
        loader = FastLoader(
            data, batch_size=3, shuffle=True, num_workers=workers, **options, **way.options
        )
        assert loader.plan().startswith("Python" if way.name == "pure" else "native")
        assert ("then Python" in loader.plan()) == (not native and way.name != "pure")
        return loader

    wanted = epochs(make)
    with default_device("meta"):
        got = epochs(make)
    same(got, wanted)


@pytest.mark.filterwarnings("ignore:This DataLoader will create")
@pytest.mark.parametrize("runner", ["fork", "threads"])
def test_the_device_is_set_in_the_middle_of_an_epoch(fast, runner):
    data = Lookup()
    wanted = list(DataLoader(data, batch_size=2))
    loader = FastLoader(data, batch_size=2, **RUNNERS[runner])
    batches = iter(loader)
    got = list(itertools.islice(batches, 2))
    with default_device("meta"):
        got += list(batches)
    same(got, wanted)


def test_a_state_is_gone_on_with(way):
    """Skipping on the sampler draws the order again."""
    data = Lookup()
    options = {"batch_size": 2, "shuffle": True, "mean": MEAN, "std": STD, **way.options}
    with default_device("meta"):
        loader = FastLoader(data, **options)
        batches = iter(loader)
        for _ in range(2):
            next(batches)
        state = loader.state_dict()
        wanted = list(batches)
        again = FastLoader(data, **options)
        again.load_state_dict(state)
        same(list(again), wanted)


class Asking(torch.utils.data.Sampler):
    """Draws its order as the user's default device has it."""

    def __init__(self):
        self.devices = []

    def __len__(self):
        return 6

    def __iter__(self):
        self.devices.append(torch.empty(1).device.type)
        for index in range(6):
            self.devices.append(torch.empty(1).device.type)
            yield index


@pytest.mark.parametrize("workers", [0, 2])
def test_the_users_code_keeps_the_default_device(workers):
    seen = []

    def collate(batch):
        seen.append(torch.empty(1).device.type)
        return len(batch)

    sampler = Asking()
    with default_device("meta"):
        loader = FastLoader(
            range(6), sampler=sampler, batch_size=2, collate_fn=collate, num_workers=workers
        )
        list(loader)
        assert set(sampler.devices) == {"meta"}
        if not workers:
            assert seen == ["meta"] * 3


def test_a_generator_says_where_is_drawn():
    """RandomSampler needs one of the device that randperm draws on: the CPU's here."""
    data = TensorDataset(torch.arange(9, device="cpu"))
    sampler = RandomSampler(data, generator=torch.Generator().manual_seed(3))
    wanted = list(FastLoader(data, sampler=sampler, batch_size=2))
    sampler = RandomSampler(data, generator=torch.Generator().manual_seed(3))
    with default_device("meta"):
        same(list(FastLoader(data, sampler=sampler, batch_size=2)), wanted)
