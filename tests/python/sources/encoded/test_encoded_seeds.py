"""What encoded pictures are drawn by: the same as a folder's, in every epoch and after every resume."""

import itertools

import pytest
import torch
from encoded_samples import CROP, Captions, paths_below
from pictures import plain_folder
from torch.utils.data import RandomSampler, Subset

from fastloader import FastLoader
from fastloader.datasets import ImageFolder
from support import generator, same

pytestmark = pytest.mark.covering

EPOCHS = 4
PROCESSES = {"num_workers": 2}
THREADS = {"num_workers": 2, "worker_backend": "thread"}
LIVING = {"persistent_workers": True}
OPTIONS = [{}, PROCESSES, THREADS, PROCESSES | LIVING, THREADS | LIVING]


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return plain_folder(tmp_path_factory.mktemp("plain"), 9, classes=1)


@pytest.fixture(scope="module")
def paths(root):
    return paths_below(root)


# --- epochs of a folder -----------------------------------------------------------------------------


@pytest.fixture
def loaders(root):
    """Makes a loader of a folder, and one of the same files as encoded pictures."""

    def made(**options):
        datasets = ImageFolder(str(root), CROP), Captions(paths_below(root))
        options = {"batch_size": 2, "shuffle": True, **options}
        return [FastLoader(each, generator=generator(5), **options) for each in datasets]

    return made


def pictures(batches):
    return [batch[0] for batch in batches]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_each_epoch_is_that_of_a_folder(loaders, options):
    folder, encoded = loaders(**options)
    assert folder.plan().startswith("native")
    epochs = []
    for _ in range(EPOCHS):
        epochs.append(pictures(folder))
        same(pictures(encoded), epochs[-1])
    firsts = [torch.cat(epoch).numpy().tobytes() for epoch in epochs]
    assert len(set(firsts)) == EPOCHS


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_a_subset_that_names_a_picture_twice_is_that_of_a_folder(root, paths, options):
    named = [3, 3, 0, 3, 7]
    folder, encoded = (
        FastLoader(
            Subset(Subset(each, [8, *range(8)]), named), 2, generator=generator(5), **options
        )
        for each in (ImageFolder(str(root), CROP), Captions(paths))
    )
    assert folder.plan().startswith("native")
    for _ in range(2):
        made = pictures(folder)
        same(pictures(encoded), made)
        first, second = made[0]
        assert not torch.equal(first, second)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_epochs_that_the_user_numbers_are_those_of_a_folder(loaders, options):
    folder, encoded = loaders(**options)
    for number in (7, 2, 2, 0):
        for loader in (folder, encoded):
            loader.set_epoch(number)
        same(pictures(encoded), pictures(folder))


@pytest.fixture
def group():
    store = torch.distributed.HashStore()
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_shares_of_ranks_are_those_of_a_folder(loaders, group, options):
    folder, encoded = loaders(distributed="exact", **options)
    firsts = set()
    for _ in range(3):
        wanted = pictures(folder)
        firsts.add(torch.cat(wanted).numpy().tobytes())
        same(pictures(encoded), wanted)
    assert len(firsts) == 3


@pytest.mark.parametrize("received", [0, 1, 3, 5])
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_epochs_after_a_resume_are_those_of_the_unbroken_run(loaders, options, received):
    """Of three states, each of an epoch in which the one before was loaded."""
    folder, encoded = loaders(**options)
    wanted = [pictures(folder) for _ in range(EPOCHS + 2)]
    same(pictures(encoded), wanted[0])
    for epoch in range(1, EPOCHS):
        same(pictures(itertools.islice(iter(encoded), received)), wanted[epoch][:received])
        state = encoded.state_dict()
        _, encoded = loaders(**options)
        encoded.load_state_dict(state)
        same(pictures(encoded), wanted[epoch][received:])
    for epoch in range(EPOCHS, EPOCHS + 2):
        same(pictures(encoded), wanted[epoch])


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_epochs_after_a_state_between_them(loaders, options):
    folder, encoded = loaders(**options)
    for _ in range(EPOCHS):
        wanted = pictures(folder)
        same(pictures(encoded), wanted)
        state = encoded.state_dict()
        _, encoded = loaders(**options)
        encoded.load_state_dict(state)


@pytest.mark.parametrize("then", [{}, PROCESSES, THREADS], ids=str)
def test_workers_that_live_on_no_longer(loaders, then):
    """The seed in their state was the first epoch's, and must not give its crops again."""
    folder, encoded = loaders(**PROCESSES, **LIVING)
    first = [pictures(folder), pictures(folder)]
    same([pictures(encoded), pictures(encoded)], first)
    states = folder.state_dict(), encoded.state_dict()
    folder, encoded = loaders(**then)
    for loader, state in zip((folder, encoded), states):
        loader.load_state_dict(state)
    for _ in range(3):
        same(pictures(encoded), pictures(folder))


def test_a_sampler_over_a_dataset_without_a_length(paths):
    class Endless(Captions):
        __len__ = None

    def batches(dataset):
        sampler = RandomSampler(range(len(paths)), generator=generator(7))
        return pictures(FastLoader(dataset, 2, sampler=sampler, generator=generator(5)))

    same(batches(Endless(paths)), batches(Captions(paths)))
