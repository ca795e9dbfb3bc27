"""Transforms that the native path knows in part: it begins, Python does the rest, and the samples are
the dataset's own."""

import enum
import random
import warnings

import numpy as np
import pytest
import torch
import torchvision_datasets as made
from image_source import image_source
from pictures import import_torchvision, plain_folder, random_folder
from torch.utils.data import ConcatDataset, DataLoader, Subset, default_collate

from fastloader import FastLoader
from fastloader import transforms as T
from fastloader._core.machine import extension
from fastloader._core.pictures.images import CropSeeds
from fastloader._core.pictures.in_place import BegunPictures
from fastloader.datasets import ImageFolder
from support import same

pytestmark = pytest.mark.skipif(extension.load() is None, reason="needs the native module")

WAYS = [
    {},
    {"num_workers": 2},
    {"num_workers": 2, "worker_backend": "thread"},
    {"num_workers": 1, "multiprocessing_context": "spawn"},
]


class Mirrored:
    """A step that nobody knows, which needs a Pillow picture."""

    def __call__(self, image):
        return image.transpose(0)


def plus_one(target):
    return target + 1


def collated(samples):
    images, targets = default_collate(samples)
    return {"images": images, "targets": targets}


STEPS = [T.Resize((12, 10)), Mirrored(), T.PILToTensor()]


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return str(plain_folder(tmp_path_factory.mktemp("begun"), 9))


def folder(root, steps=None, **options):
    return ImageFolder(root, T.Compose(steps or STEPS), **options)


@pytest.mark.exhaustive
@pytest.mark.parametrize("way", WAYS, ids=str)
def test_samples_are_the_datasets_own(root, way, monkeypatch):
    dataset = folder(root)
    loader = FastLoader(dataset, 4, **way)
    assert "native up to Resize, then Python: Mirrored (" in loader.plan(), loader.plan()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = list(loader)
    same(found, list(DataLoader(dataset, 4)))


def test_the_native_path_made_them(root, monkeypatch):
    """Not the dataset's own code, which would give the same."""
    dataset = folder(root)
    wanted = list(DataLoader(dataset, 4))
    with pytest.warns(UserWarning, match="Mirrored"):
        batches = iter(FastLoader(dataset, 4))
    monkeypatch.setattr(ImageFolder, "__getitem__", lambda self, index: 1 / 0)
    same(list(batches), wanted)


@pytest.mark.parametrize(
    ("make", "options"),
    [
        (lambda root: folder(root, target_transform=plus_one), {}),
        (lambda root: Subset(folder(root), [7, 2, 3]), {}),
        (
            lambda root: folder(root, [T.Resize((12, 10)), T.PILToTensor()]),
            {"collate_fn": collated},
        ),
        (lambda root: folder(root), {"batch_size": None}),
        (lambda root: ConcatDataset([folder(root), folder(root)]), {}),
        (lambda root: folder(root, [T.Resize((9, 9)), T.ToTensor(), torch.neg]), {}),
        (lambda root: folder(root, [T.RandomHorizontalFlip(1), T.Pad(1), Mirrored(), *STEPS]), {}),
    ],
    ids=["target_transform", "subset", "collate_fn", "samples", "concat", "behind", "recipe"],
)
def test_whatever_else_is_pythons(root, make, options):
    dataset, options = make(root), {"batch_size": 2, **options}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = list(FastLoader(dataset, **options))
    same(found, list(DataLoader(dataset, **options)))


def test_torchvisions_folder(root):
    tv = import_torchvision()
    t = tv.transforms
    for steps in (
        [t.Resize(14), t.CenterCrop((12, 10)), Mirrored(), t.ToTensor()],
        [t.CenterCrop(9), t.PILToTensor(), Shifted()],
    ):
        dataset = tv.datasets.ImageFolder(root, t.Compose(steps), target_transform=plus_one)
        loader = FastLoader(dataset, 4, num_workers=1)
        assert "native up to CenterCrop" in loader.plan()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = list(loader)
        same(found, list(DataLoader(dataset, 4)))


class Shifted:
    def __call__(self, image):
        return image + 1


class Kind(enum.IntEnum):
    FIRST = 0
    SECOND = 1


def named_targets(root, **options):
    dataset = import_torchvision().datasets.ImageFolder(root, T.Compose(STEPS), **options)
    dataset.samples = [(path, Kind(target % 2)) for path, target in dataset.samples]
    return dataset


def names(samples):
    return [target.name for _picture, target in samples]


@pytest.mark.parametrize("whole", [False, True])
def test_the_users_code_gets_the_targets_that_are_there(root, whole, monkeypatch):
    """Members of an enumeration are whole numbers, and more than that."""
    from torch.utils.data._utils.collate import default_collate_fn_map

    steps = [STEPS[0], STEPS[2]] if whole else STEPS
    for options in ({"target_transform": lambda target: target.name}, {}):
        dataset = named_targets(root, **options)
        dataset.transform = T.Compose(steps)
        collate_fn = None if options else names
        loader = FastLoader(dataset, 4, collate_fn=collate_fn)
        same(list(loader), list(DataLoader(dataset, 4, collate_fn=collate_fn)))
    loader = FastLoader(dataset, 4)
    assert (
        "the dataset's targets are not whole numbers of Python's int: Kind" in loader.plan()
        or not whole
    )
    same(list(loader), list(DataLoader(dataset, 4)))
    monkeypatch.setitem(
        default_collate_fn_map, Kind, lambda batch, **_: [each.name for each in batch]
    )
    same(list(FastLoader(dataset, 4)), list(DataLoader(dataset, 4)))


def test_the_users_code_gets_numbers_of_numpy(tmp_path, monkeypatch):
    tv = import_torchvision()
    made.stand_in(monkeypatch, tv)
    dataset = made.make(tv, tmp_path, "CIFAR10", transform=T.Compose([T.PILToTensor()]))
    dataset.targets = [np.int64(target) for target in dataset.targets]
    assert FastLoader(dataset, 4).plan().startswith("native images: ")
    dataset.target_transform = lambda target: target.item()
    same(list(FastLoader(dataset, 4)), list(DataLoader(dataset, 4)))


def test_any_file_is_a_sample(tmp_path):
    """What the native decoder does not know, Pillow decodes; what nobody knows is an error of the
    dataset's."""
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    root = str(random_folder(tmp_path, seed, each=2, others=True))
    dataset = folder(root, is_valid_file=lambda path: True)
    begun = begun_of(dataset)
    opened = 0
    for index in range(len(dataset)):
        try:
            wanted = dataset[index]
        except Exception as error:
            with pytest.raises(type(error)):
                sample(begun, index)
            continue
        found = sample(begun, index)
        assert torch.equal(found[0], wanted[0]) and found[1] == wanted[1]
        opened += 1
    assert opened > 10


def begun_of(dataset):
    """What stands in the dataset's place."""
    loader = FastLoader(dataset, 2)
    begun = image_source(loader).stand_in(loader, None, "").dataset
    assert type(begun) is BegunPictures
    return begun


def sample(begun, key, seed=0):
    """Its sample, as it is asked for within an epoch."""
    return begun[CropSeeds(seed, False, 0).with_seeds(key, len(begun), batched=False)]


def test_random_beginnings_follow_the_samples_seed(root):
    steps = [T.RandomResizedCrop(8), T.ColorJitter(0.5), Mirrored(), T.PILToTensor()]
    begun = begun_of(folder(root, steps))
    before = torch.get_rng_state()
    first, second = sample(begun, 2, seed=3)[0], sample(begun, 2, seed=4)[0]
    assert not torch.equal(first, second)
    assert torch.equal(sample(begun, 2, seed=3)[0], first)
    assert torch.equal(torch.get_rng_state(), before)


class Asking:
    """A step that asks its worker for the dataset."""

    def __call__(self, pixels):
        info = torch.utils.data.get_worker_info()
        return pixels * 0 + int(type(info.dataset) is ImageFolder and info.dataset.answer)


@pytest.mark.parametrize("way", WAYS[1:], ids=str)
def test_the_users_code_sees_the_dataset(root, way):
    dataset = folder(root, [T.Resize((12, 10)), T.PILToTensor(), Asking()])
    dataset.answer = 42
    loader = FastLoader(dataset, 4, **way)
    assert "native up to" in loader.plan()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert all((images == 42).all() for images, _ in loader)


@pytest.mark.parametrize("index", [99, -1, np.int64(3), torch.tensor(2), "1"], ids=str)
def test_indices_of_any_kind(root, index):
    dataset = folder(root)
    begun = begun_of(dataset)
    try:
        wanted = dataset[index]
    except Exception as error:
        with pytest.raises(type(error)):
            sample(begun, index)
        return
    assert torch.equal(sample(begun, index)[0], wanted[0])


def test_what_is_put_into_the_dataset_counts_at_once(root):
    dataset = folder(root)
    begun = begun_of(Subset(dataset, [1, 2]))
    assert sample(begun, 0)[0].shape == (3, 12, 10)
    dataset.transform = T.Compose([T.Resize((3, 3)), T.PILToTensor()])
    assert sample(begun, 0)[0].shape == (3, 3, 3)
    begun = begun_of(folder(root))
    begun.own.target_transform = str
    assert sample(begun, 0)[1] == str(begun.own.targets[0])


class Upright:
    """A step that looks at what stands beside the pixels."""

    def __call__(self, image):
        from PIL import ImageOps

        return ImageOps.exif_transpose(image)


def test_steps_see_the_files_header(tmp_path):
    from PIL import Image

    exif = Image.Exif()
    exif[0x0112] = 6
    (tmp_path / "a").mkdir()
    for number in range(3):
        pixels = np.random.default_rng(number).integers(0, 256, (30, 40, 3), np.uint8)
        Image.fromarray(pixels).save(tmp_path / "a" / f"{number}.jpg", exif=exif)
    dataset = folder(str(tmp_path), [T.Resize(20), Upright(), T.PILToTensor()])
    begun = begun_of(dataset)
    for index in range(3):
        assert torch.equal(sample(begun, index)[0], dataset[index][0])
        assert sample(begun, index)[0].shape == (3, 26, 20)


def changes_the_dataset(_worker):
    info = torch.utils.data.get_worker_info()
    info.dataset.transform = T.Compose([T.Resize((3, 3)), T.PILToTensor()])


def test_workers_that_may_change_the_dataset_have_their_own(root):
    loader = FastLoader(folder(root), 4, num_workers=1, worker_init_fn=changes_the_dataset)
    assert "native up to" not in loader.plan()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert next(iter(loader))[0].shape == (4, 3, 3, 3)


class Counting(ImageFolder):
    """It has a state, for which its workers are asked."""

    def state_dict(self):
        return {}

    def load_state_dict(self, state):
        pass


def test_a_dataset_with_a_state_is_its_own(root):
    loader = FastLoader(Counting(root, T.Compose(STEPS)), 4, num_workers=1)
    assert "native up to" not in loader.plan()


@pytest.mark.parametrize(
    "steps",
    [
        [Mirrored(), T.Resize((12, 10)), T.PILToTensor()],
        [T.PILToTensor(), torch.neg],
    ],
    ids=["unknown first", "conversion first"],
)
def test_what_has_no_beginning(root, steps):
    assert "native up to" not in FastLoader(folder(root, steps), 4).plan()


def test_native_false_and_no_module(root, monkeypatch):
    assert "native up to" not in FastLoader(folder(root), 4, native=False).plan()
    monkeypatch.setenv("FASTLOADER_NATIVE", "0")
    assert "native up to" not in FastLoader(folder(root), 4).plan()


def test_large_pictures_are_pillows(root, monkeypatch):
    """Who warns of them."""
    from PIL import Image

    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1000)
    begun = begun_of(folder(root))
    with pytest.warns(Image.DecompressionBombWarning):
        sample(begun, 0)
