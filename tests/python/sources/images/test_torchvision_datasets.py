"""torchvision's datasets: their batches are those of DataLoader over the same objects, made natively."""

import importlib
import pickle

import numpy as np
import pytest
import torch
import torchvision_datasets as made
from image_source import image_source
from pictures import import_torchvision, plain_folder
from torch.utils.data import ConcatDataset, DataLoader, Subset

from fastloader import FastLoader
from fastloader import transforms as T
from fastloader._core.machine import extension
from fastloader._core.sources.recognize import recognize_images
from support import same

pytestmark = pytest.mark.skipif(extension.load() is None, reason="needs the native module")

NORMALIZE = {1: ((0.1307,), (0.3081,)), 3: ((0.49, 0.48, 0.45), (0.25, 0.24, 0.26))}
PIXELS = [*made.ARRAYS, *made.GREY]
RANDOM = [
    T.RandomCrop(24, 4, pad_if_needed=True, fill=9),
    T.RandomHorizontalFlip(),
    T.RandomRotation(20, "bilinear"),
    T.ColorJitter(0.4, 0.4),
    T.PILToTensor(),
]


@pytest.fixture
def tv(monkeypatch):
    tv = import_torchvision()
    made.stand_in(monkeypatch, tv)
    return tv


@pytest.fixture
def v2(tv):
    return importlib.import_module("torchvision.transforms.v2")


@pytest.fixture
def dataset(tv, tmp_path):
    """A dataset by the name of its class."""

    def dataset(name, steps=None, **options):
        if steps is not None:
            options["transform"] = T.Compose(steps)
        return made.make(tv, tmp_path, name, **options)

    return dataset


def batches(loader):
    return [[images.clone(), labels.clone()] for images, labels in loader]


def native(dataset, *arguments, **options):
    loader = FastLoader(dataset, *arguments, **options)
    assert loader.plan().startswith("native images: "), loader.plan()
    return loader


def as_torch(dataset, *arguments, **options):
    """Checks that the loader's batches are DataLoader's."""
    loader = native(dataset, *arguments, **options)
    same(batches(loader), list(DataLoader(dataset, *arguments, **options)))


def whole(name):
    return [T.PILToTensor()] if name in PIXELS else [T.Resize((12, 10)), T.PILToTensor()]


def first(v2, name):
    return [v2.RGB()] if name in made.OPENED_AS_THEY_ARE else []


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", made.ALL)
def test_the_batches_are_torchs(v2, dataset, name):
    known = dataset(name, [*first(v2, name), *whole(name)])
    assert f": torchvision {name}, {len(known)} samples" in FastLoader(known, 4).plan()
    as_torch(known, 4)
    as_torch(known, 4, drop_last=True)


@pytest.mark.parametrize("name", made.ALL)
def test_the_order_is_torchs(v2, dataset, name):
    known = dataset(name, [*first(v2, name), *whole(name)])
    loader, wanted = native(known, 3, shuffle=True), DataLoader(known, 3, shuffle=True)
    for seed in range(2):
        torch.manual_seed(seed)
        got = batches(loader)
        torch.manual_seed(seed)
        same(got, list(wanted))


@pytest.mark.parametrize("name", PIXELS)
def test_floats_are_torchs(tv, dataset, name):
    steps = tv.transforms
    channels = 1 if name in made.GREY else 3
    chain = steps.Compose([steps.ToTensor(), steps.Normalize(*NORMALIZE[channels])])
    known = dataset(name, transform=chain)
    wanted = list(DataLoader(known, 4))
    for (images, labels), (images_wanted, labels_wanted) in zip(
        batches(native(known, 4)), wanted, strict=True
    ):
        assert images.shape == images_wanted.shape and images.shape[1] == channels
        torch.testing.assert_close(images, images_wanted, rtol=0, atol=1e-6)
        same(labels, labels_wanted)


@pytest.mark.parametrize("name", PIXELS)
def test_random_steps_are_those_of_replay(dataset, name):
    known = dataset(name, RANDOM)
    pictures = [made_by_torchvision for made_by_torchvision, _ in dataset(name)]
    loader = native(known, 4)
    for _ in range(2):
        images = torch.cat([images.clone() for images, _ in loader])
        for number, (image, picture) in enumerate(zip(images, pictures, strict=True)):
            steps = loader.replay(number)["steps"]
            assert steps
            same(image, T.PILToTensor()(T.apply(picture, steps)))
    assert len({str(loader.replay(number)["steps"]) for number in range(len(known))}) > 5


@pytest.mark.parametrize("name", ["Food101", "OxfordIIITPet", "ImageNet"])
def test_random_steps_on_files_are_those_of_replay(dataset, name):
    steps = [T.RandomResizedCrop((12, 10)), T.RandomHorizontalFlip(), T.PILToTensor()]
    known, plain = dataset(name, steps), dataset(name)
    loader = native(known, 4)
    images = torch.cat([images.clone() for images, _ in loader])
    for number, image in enumerate(images):
        picture = T.apply(plain[number][0], loader.replay(number)["steps"])
        same(image, T.PILToTensor()(picture))


# --- arrays -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PIXELS)
def test_pixels_are_those_of_the_moment(dataset, name):
    known = dataset(name, [T.PILToTensor()])
    loader = native(known, 4)
    before = batches(loader)
    known.data[2] += 1
    after = batches(loader)
    assert not torch.equal(before[0][0][2], after[0][0][2])
    same(after, list(DataLoader(known, 4)))
    known.data = known.data[1:]
    labels = "labels" if hasattr(known, "labels") else "targets"
    setattr(known, labels, getattr(known, labels)[1:])
    as_torch(known, 4)


@pytest.mark.parametrize("name", PIXELS)
def test_targets_are_those_of_the_epoch(dataset, name):
    known = dataset(name, [T.PILToTensor()])
    loader = native(known, 4)
    before = batches(loader)
    labels = known.labels if hasattr(known, "labels") else known.targets
    labels[1] = labels[1] + 1
    after = batches(loader)
    assert after[0][1][1] != before[0][1][1]
    same(after, list(DataLoader(known, 4)))


@pytest.mark.parametrize("name", PIXELS)
def test_an_epoch_keeps_what_nothing_changed(dataset, name):
    known = dataset(name, [T.PILToTensor()])
    before, after = recognize_images(FastLoader(known, 4)), recognize_images(FastLoader(known, 4))
    assert after.same_files(before)
    known.data = known.data[:]
    assert not recognize_images(FastLoader(known, 4)).same_files(before)


@pytest.mark.parametrize("view", [np.s_[::-1], np.s_[::2], np.s_[:, ::-1, 3:, :], np.s_[3:4]])
def test_any_strides_are_read(dataset, view):
    known = dataset("CIFAR10", [T.PILToTensor()])
    known.data = np.ascontiguousarray(known.data)
    as_torch(known, 4)
    known.data = known.data[view]
    known.targets = known.targets[: len(known.data)]
    as_torch(known, 4)


def test_a_mapped_array_is_read(dataset, tmp_path):
    known = dataset("CIFAR10", [T.PILToTensor()])
    np.save(tmp_path / "data.npy", known.data)
    known.data = np.load(tmp_path / "data.npy", mmap_mode="r")
    as_torch(known, 4)


@pytest.mark.parametrize("split", ["train", "test", "unlabeled", "train+unlabeled"])
def test_stl10_without_labels_has_minus_one(dataset, split):
    as_torch(dataset("STL10", [T.Resize(40), T.PILToTensor()], split=split), 4)


def test_targets_in_an_array_are_native(dataset):
    known = dataset("CIFAR10", [T.PILToTensor()])
    known.targets = np.array(known.targets)
    as_torch(known, 4)
    known.targets = tuple(known.targets)
    as_torch(known, 4)


def test_a_picture_that_is_too_small_fails_as_in_torch(tv, dataset):
    known = dataset("CIFAR10", transform=tv.transforms.Compose([tv.transforms.RandomCrop(40)]))
    known.transform.transforms.append(tv.transforms.PILToTensor())
    with pytest.raises(ValueError, match="larger than input"):
        next(iter(DataLoader(known, 4)))
    with pytest.raises(Exception, match="larger than the picture of 32x32"):
        next(iter(FastLoader(known, 4)))


# --- selections ---------------------------------------------------------------------------------


def test_selections_of_arrays(dataset):
    train, test = (dataset("CIFAR10", [T.PILToTensor()], train=train) for train in (True, False))
    as_torch(Subset(train, [5, 3, 3, -1]), 3)
    as_torch(ConcatDataset([test, train, test]), 4)
    as_torch(Subset(ConcatDataset([test, Subset(train, [4, 2])]), [12, 0, 11]), 2)
    loader = native(ConcatDataset([test, train]), 4)
    batches(loader)
    train.data[0] += 1
    same(batches(loader), list(DataLoader(ConcatDataset([test, train]), 4)))


def test_arrays_of_other_sizes_together(dataset):
    steps = [T.Resize((9, 8)), T.PILToTensor()]
    as_torch(ConcatDataset([dataset("CIFAR10", steps), dataset("STL10", steps)]), 4)


def test_arrays_and_files_are_not_one_dataset(tv, dataset, tmp_path):
    steps = [T.Resize((9, 8)), T.PILToTensor()]
    plain_folder(tmp_path / "plain", 3)
    files = tv.datasets.ImageFolder(tmp_path / "plain", T.Compose(steps))
    plan = FastLoader(ConcatDataset([dataset("CIFAR10", steps), files]), 4).plan()
    assert "Python path: a ConcatDataset holds arrays and folders" in plan


# --- what is Python's ---------------------------------------------------------------------------


class OwnPictures:
    """A dataset of its kind with a __getitem__ of its own."""

    def __getitem__(self, index):
        image, target = super().__getitem__(index)
        return image + 1, target


class OwnData:
    @property
    def data(self):
        return self.__dict__["data"] // 2

    @data.setter
    def data(self, data):
        self.__dict__["data"] = data


def derived(known, mixin):
    """The same dataset, of a class that derives from its own."""
    kind = type(mixin.__name__, (mixin, type(known)), {})
    made = kind.__new__(kind)
    for name, value in vars(known).items():
        setattr(made, name, value)
    return made


@pytest.mark.parametrize(
    ("name", "change", "reason"),
    [
        ("CIFAR10", lambda d: derived(d, OwnPictures), "OwnPictures has a __getitem__ of its own"),
        ("CIFAR100", lambda d: derived(d, OwnData), "OwnData has a data of its own"),
        ("MNIST", lambda d: derived(d, OwnData), "OwnData has a data of its own"),
        ("CIFAR10", lambda d: setattr(d, "target_transform", abs), "has a target_transform"),
        ("CIFAR10", lambda d: setattr(d, "targets", [*d.targets, 0]), "not one for each picture"),
        ("CIFAR10", lambda d: d.targets.__setitem__(0, True), "targets are not whole numbers"),
        ("CIFAR10", lambda d: setattr(d, "targets", np.float32(d.targets)), "targets are no list"),
        ("CIFAR10", lambda d: setattr(d, "targets", np.int32(d.targets)), "targets are no list"),
        ("CIFAR10", lambda d: setattr(d, "data", d.data[..., 0]), "no array of RGB pictures"),
        ("CIFAR10", lambda d: setattr(d, "data", list(d.data)), "no array of RGB pictures"),
        ("SVHN", lambda d: setattr(d, "data", d.data[:, :1]), "no array of RGB pictures"),
        ("SVHN", lambda d: setattr(d, "labels", d.labels * 1.0), "not whole numbers"),
        ("STL10", lambda d: setattr(d, "labels", None), "the dataset has no labels"),
        ("MNIST", lambda d: setattr(d, "data", d.data.numpy()), "no tensor of grey pictures"),
        ("MNIST", lambda d: setattr(d, "data", d.data.float()), "no tensor of grey pictures"),
        ("MNIST", lambda d: setattr(d, "targets", d.targets[1:]), "not one for each picture"),
        ("QMNIST", lambda d: setattr(d, "compat", False), "compat=False"),
        ("Food101", lambda d: setattr(d, "loader", len), "the dataset's loader is len"),
        ("Food101", lambda d: d._labels.append(1), f"{made.COUNT} files and {made.COUNT + 1} classes"),
        ("DTD", lambda d: d._labels.__setitem__(0, None), "targets are not whole numbers"),
        ("Places365", lambda d: d.imgs.__setitem__(0, (d.imgs[0][0], None)), "not whole numbers"),
        ("Places365", lambda d: setattr(d, "transforms", max), "picture and its target together"),
        ("Imagenette", lambda d: setattr(d, "loader", len), "the dataset's loader is len"),
        ("EuroSAT", lambda d: setattr(d, "transform", None), "the dataset has no transform"),
        ("OxfordIIITPet", lambda d: setattr(d, "_target_types", []), "one class is native"),
        ("OxfordIIITPet", lambda d: setattr(d, "transforms", None), "the dataset has no transform"),
        ("Caltech101", lambda d: None, "begins with torchvision.transforms.v2.RGB"),
        ("Caltech256", lambda d: None, "begins with torchvision.transforms.v2.RGB"),
        ("Caltech101", lambda d: setattr(d, "target_type", ["annotation"]), "'category' is native"),
    ],
)  # fmt: skip
def test_what_is_not_known_is_named(dataset, name, change, reason):
    known = dataset(name, whole(name))
    known = change(known) or known
    plan = FastLoader(known, 4).plan()
    begins = "native images: " if "target_transform" in reason else "Python path: "
    assert plan.startswith(begins) and reason in plan, plan


def test_the_pair_of_transforms_counts(tv, dataset):
    """OxfordIIITPet and Places365 do what their ``transforms`` say, not their ``transform``."""
    for name in ("OxfordIIITPet", "Places365"):
        known = dataset(name, [T.Resize((12, 10)), T.PILToTensor()])
        known.transform = None
        as_torch(known, 4)
        known.transforms.transform = T.Compose([T.Resize((7, 6)), T.PILToTensor()])
        as_torch(known, 4)
        known.transforms.target_transform = abs
        assert "has a target_transform" in FastLoader(known, 4).plan()


def test_two_kinds_of_pets(dataset):
    known = dataset("OxfordIIITPet", whole("OxfordIIITPet"), target_types="binary-category")
    as_torch(known, 4)
    other = dataset("OxfordIIITPet", whole("OxfordIIITPet"))
    assert [target for _, target in known] != [target for _, target in other]


# --- a step of one's own ------------------------------------------------------------------------


class Halved:
    """A step that nobody knows: of a Pillow picture, whose mode it keeps."""

    def __call__(self, image):
        return image.point([value // 2 for value in range(256)] * len(image.getbands()))


@pytest.mark.parametrize("kind", [np.array, torch.tensor])
def test_a_sample_has_the_element_of_its_targets(dataset, kind):
    known = dataset("CIFAR10", [T.Resize((12, 10)), Halved(), T.PILToTensor()])
    known.targets = kind(known.targets)
    loader = FastLoader(known, 4, collate_fn=list)
    assert "native up to" not in loader.plan()
    assert [type(target) for _, target in next(iter(loader))] == [type(known.targets[0])] * 4


def plus_one(target):
    return target + 1


@pytest.mark.parametrize("name", ["CIFAR10", "MNIST", "STL10", "QMNIST", "Food101", "Flowers102"])
@pytest.mark.parametrize("workers", [0, 2])
def test_the_beginning_is_native(dataset, name, workers):
    steps = [T.Resize((12, 10)), Halved(), T.PILToTensor()]
    known = dataset(name, steps, target_transform=plus_one)
    loader = FastLoader(known, 4, num_workers=workers)
    assert "native up to Resize, then Python: Halved" in loader.plan()
    same(batches(loader), list(DataLoader(known, 4)))


@pytest.mark.parametrize("name", ["CIFAR10", "MNIST"])
def test_a_native_beginning_can_be_sent_to_another_process(dataset, name, monkeypatch):
    known = dataset(name, [T.Resize((12, 10)), Halved(), T.PILToTensor()])
    loader = FastLoader(known, 4)
    begun = image_source(loader).stand_in(loader, None, "").dataset
    wanted = [begun.sample(number, number, 0) for number in range(len(known))]
    sent = pickle.loads(pickle.dumps(begun))
    assert len(pickle.dumps(begun)) < 2 * len(pickle.dumps(known))  # one copy of the pixels
    known.data[:] = 0
    monkeypatch.setattr(type(known), "__getitem__", None)
    same([sent.sample(number, number, 0) for number in range(len(known))], wanted)
