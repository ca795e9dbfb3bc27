"""What encoded pictures are drawn by: the same as a folder's, in every epoch and after every resume."""

import itertools
from pathlib import Path

import numpy as np
import pytest
import torch
from encoded_samples import CROP, Captions, paths_below
from pictures import import_torchvision, open_as_torchvision, plain_folder
from torch.utils.data import ConcatDataset, DataLoader, RandomSampler, Subset

from fastloader import EncodedImage, FastLoader
from fastloader import transforms as T
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


@pytest.mark.exhaustive
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


@pytest.mark.exhaustive
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


@pytest.mark.exhaustive
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


# --- what a sample is called, and what it is drawn by ------------------------------------------------


class OwnSubset(Subset):
    """As other libraries have them, with nothing that matters."""


SELECTIONS = {
    "subset of one's own": lambda data: OwnSubset(data, [7, 2, -1, 5]),
    "subset": lambda data: Subset(data, [7, 2, -1, 5]),
    "subset of a subset": lambda data: Subset(Subset(data, [8, *range(8)]), [3, 0, 8]),
    "twice": lambda data: Subset(data, [4, 4, 2]),
    "from both ends": lambda data: Subset(data, [8, -1]),
    "parts": lambda data: ConcatDataset([Subset(data, [5, 1]), data, Subset(data, [5])]),
    "part of parts": lambda data: Subset(ConcatDataset([Subset(data, [5, 1]), data]), [1, 7, -1]),
    "parts that repeat": lambda data: ConcatDataset([Subset(data, [5, 5]), data]),
}


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("selection", SELECTIONS)
def test_a_selection_is_that_of_a_folder_and_replayed_by_its_own_index(
    root, paths, options, selection
):
    select = SELECTIONS[selection]
    folder, encoded = (
        FastLoader(select(data), 2, generator=generator(5), **options)
        for data in (ImageFolder(str(root), CROP), Captions(paths))
    )
    assert folder.plan().startswith("native")
    same(pictures(encoded), pictures(folder))
    for index in range(len(folder.dataset)):
        assert encoded.replay(index) == folder.replay(index)
    for loader in (folder, encoded):
        with pytest.raises(ValueError, match=f"sample {len(folder.dataset)} was not among"):
            loader.replay(len(folder.dataset))


@pytest.mark.parametrize("workers", [0, 2])
def test_a_transform_that_is_known_in_part_is_replayed_by_its_own_index(root, workers):
    def note(picture):
        return torch.tensor(picture.size)

    folder = ImageFolder(str(root), T.Compose([T.RandomResizedCrop(24), note]))
    whole = FastLoader(folder, 3, generator=generator(5), num_workers=workers)
    part = FastLoader(Subset(folder, [7, 2, 5]), 3, generator=generator(5), num_workers=workers)
    list(whole), list(part)
    assert [part.replay(i) for i in range(3)] == [whole.replay(i) for i in (7, 2, 5)]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_what_takes_a_bad_ones_place_is_that_of_a_folder(tmp_path, options):
    folder = ImageFolder(str(plain_folder(tmp_path, 9, classes=1)), CROP)
    files = [path for path, _ in folder.samples]
    Path(files[3]).write_bytes(b"no picture")
    options = {"on_error": "replace", "generator": generator(5), **options}
    seen = []
    for data in (folder, Captions(files)):
        with FastLoader(
            Subset(data, [0, 3, 8, 4]),
            2,
            **options,
        ) as loader:
            loader.generator.manual_seed(5)
            seen.append(pictures(loader))
    same(*seen)


# --- a transform that is changed between two epochs ---------------------------------------------------


def changed_child(tv, steps):
    steps[1].transforms[0].brightness = (2.0, 2.0)


def another_child(tv, steps):
    steps[1].transforms[0] = tv.Grayscale(3)


def one_more_child(tv, steps):
    steps[1].transforms.append(tv.Grayscale(3))


def mean_in_place(tv, steps):
    steps[3].mean[0] = 0.9


def std_in_place(tv, steps):
    steps[3].std *= 2


def default_dtype(tv, steps):
    torch.set_default_dtype(torch.float64)


def p_of_apply(tv, steps):
    steps[1].p = 0.0


CHANGES = [
    *(changed_child, another_child, one_more_child, mean_in_place, std_in_place, default_dtype),
    p_of_apply,
]


@pytest.mark.exhaustive
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("options", [{}, PROCESSES, THREADS], ids=str)
def test_a_transform_that_is_changed_is_read_again(root, paths, options, change):
    tv = import_torchvision().transforms

    def epochs(data_of):
        jitter = tv.RandomApply(torch.nn.ModuleList([tv.ColorJitter((0.5, 0.5))]), 1.0)
        mean, std = torch.tensor([0.5, 0.4, 0.3]), np.array([0.5, 0.4, 0.3])
        steps = [tv.Resize((10, 8)), jitter, tv.ToTensor(), tv.Normalize(mean, std)]
        data = data_of(tv.Compose(steps))
        seen = [pictures(FastLoader(data, 2, **options))]
        kind = torch.get_default_dtype()
        try:
            change(tv, steps)
            seen += [
                pictures(FastLoader(data, 2, **options)),
                pictures(DataLoader(data_of.plain, 2)),
            ]
        finally:
            torch.set_default_dtype(kind)
        return seen

    def of_folder(transform):
        of_folder.plain = ImageFolder(str(root), transform)
        return of_folder.plain

    def of_encoded(transform):
        of_encoded.plain = ImageFolder(str(root), transform)
        return Captions(paths, transform)

    for data_of in (of_folder, of_encoded):
        before, after, wanted = epochs(data_of)
        assert not torch.equal(before[0], after[0]) or before[0].dtype != after[0].dtype
        for one, other in zip(after, wanted, strict=True):
            torch.testing.assert_close(one, other, rtol=0, atol=1e-6)


def a_method_of_the_class(chain):
    type(chain.transforms[0]).forward = lambda self, picture: picture.resize((7, 7))


def a_property_of_the_class(chain):
    type(chain.transforms[0]).size = property(lambda self: (9, 9), lambda self, value: None)


def the_class_of_a_step(chain):
    forward = {"forward": lambda self, picture: picture.resize((7, 7))}
    chain.transforms[0].__class__ = type("Other", (type(chain.transforms[0]),), forward)


def the_class_of_the_chain(chain):
    call = {"__call__": lambda self, picture: torch.zeros(3, 5, 5)}
    chain.__class__ = type("Chain", (type(chain),), call)


def a_hook_of_all_modules(chain):
    register = torch.nn.modules.module.register_module_forward_hook
    return register(lambda module, given, picture: picture.rotate(180))


OF_CLASSES = [
    *(a_method_of_the_class, a_property_of_the_class, the_class_of_a_step, the_class_of_the_chain),
    a_hook_of_all_modules,
]


@pytest.mark.parametrize("change", OF_CLASSES)
@pytest.mark.parametrize("options", [{}, THREADS], ids=str)
def test_a_class_that_is_changed_is_read_again(paths, options, change):
    tv = import_torchvision().transforms

    class Own(tv.Resize):
        pass

    chain = tv.Compose([Own((10, 8)), tv.ToTensor()])
    loader = FastLoader(Captions(paths, chain), 2, **options)
    before = pictures(loader)
    hook = change(chain)
    try:
        after = torch.cat(pictures(loader))
        alone = EncodedImage(paths[0], chain).decode()
        wanted = torch.stack([chain(open_as_torchvision(path)) for path in paths])
    finally:
        if hook is not None:
            hook.remove()
    assert before[0].shape[1:] == (3, 10, 8) and not torch.equal(torch.cat(before), wanted)
    torch.testing.assert_close(after, wanted, rtol=0, atol=1e-6)
    torch.testing.assert_close(alone, wanted[0], rtol=0, atol=1e-6)
    if hook is not None:
        same(pictures(loader), before)
