"""Which datasets take the native image path, which do not, what the loader says about it, and that the
other path then gives the right data."""

import importlib
import logging
import os
import re
import textwrap

import numpy as np
import pytest
import torch
from pictures import IMAGE_FOLDER, import_torchvision, plain_folder, script, stand_in
from torch.utils.data import (
    ConcatDataset,
    DataLoader,
    Dataset,
    Subset,
    random_split,
)

from fastloader import FastLoader
from fastloader import transforms as T
from fastloader.datasets import ImageFolder
from support import MEAN, STD, Stream, same

CHAIN = [T.Resize((12, 10)), T.PILToTensor()]


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return str(plain_folder(tmp_path_factory.mktemp("native_images"), 11))


@pytest.fixture
def tv():
    return import_torchvision()


def folder(root, *steps):
    return ImageFolder(root, T.Compose(steps or CHAIN))


def copied(loader):
    return [[images.clone(), labels] for images, labels in loader]


def is_native(loader):
    return loader.plan().startswith("native images: ")


# --- what is native -----------------------------------------------------------------------------

VIEWS = {
    "subclass": lambda data: NamedFolder(data.root, data.transform),
    "folder": lambda data: data,
    "subset": lambda data: Subset(data, [4, 2, -1, 7]),
    "split": lambda data: random_split(data, [4, 7], torch.Generator().manual_seed(1))[1],
    "subset of subset": lambda data: Subset(Subset(data, range(2, 10)), [0, 3, 5, 5]),
    "concat": lambda data: ConcatDataset([data, data]),
    "concat of subsets": lambda data: ConcatDataset(
        [Subset(data, [3, 1]), data, Subset(data, [9])]
    ),
    "subset of concat": lambda data: Subset(
        ConcatDataset([data, Subset(data, [3, 1])]), [12, 0, 11]
    ),
    "concat of concat": lambda data: ConcatDataset([ConcatDataset([data]), Subset(data, [2])]),
    "empty subset": lambda data: Subset(data, []),
    "tensor subset": lambda data: Subset(data, torch.tensor([3, 1])),
    "subset of tensors": lambda data: Subset(data, list(torch.tensor([3, 1]))),
    "array subset": lambda data: Subset(data, np.array([3, 1], np.uint8)),
}


@pytest.mark.parametrize("name", VIEWS)
def test_views_are_native_and_right(root, name):
    dataset = VIEWS[name](folder(root))
    loader = FastLoader(dataset, 3)
    assert is_native(loader), loader.plan()
    assert f"{len(dataset)} samples" in loader.plan()
    same(copied(loader), list(DataLoader(dataset, 3)))


@pytest.mark.parametrize("begun", [False, True])
def test_a_part_that_grew_after_the_parts_were_concatenated(tv, root, begun):
    chain = T.Compose([T.Resize((12, 10)), *[blurred] * begun, T.PILToTensor()])
    one, other = (tv.datasets.ImageFolder(root, chain) for _ in "ab")
    both = ConcatDataset([one, other])
    count = len(one)
    one.samples = one.samples + one.samples[:5][::-1]
    loader = FastLoader(both, 5)
    said = "blurred" if begun else "other sizes than when it was made"
    assert loader.plan().startswith("Python path: ") and said in loader.plan(), loader.plan()
    same(list(loader), list(DataLoader(both, 5)))
    both.cumulative_sizes = [2, 2 * count]
    loader = FastLoader(both, 5)
    with pytest.raises(IndexError):
        list(loader)
    both.cumulative_sizes = ConcatDataset.cumsum(both.datasets)
    loader = FastLoader(both, 5)
    assert ("Python path" in loader.plan()) == begun and "other sizes" not in loader.plan()
    same(list(loader), list(DataLoader(both, 5)))


@pytest.mark.parametrize(
    "indices", [[1.0, 2.0], ["1", "2"], [2**70], [[1, 2], [3, 4]], [[1], [2, 3]]]
)
def test_what_is_no_index_is_refused_as_torch_refuses_it(tv, root, indices):
    chain = tv.transforms.Compose([tv.transforms.Resize((12, 10)), tv.transforms.PILToTensor()])
    dataset = Subset(tv.datasets.ImageFolder(root, chain), indices)
    with pytest.raises((TypeError, IndexError)) as wanted:
        list(DataLoader(dataset))
    loader = FastLoader(dataset)
    assert "not whole numbers" in loader.plan()
    with pytest.raises(wanted.type, match=re.escape(str(wanted.value))):
        list(loader)


def test_targets_that_somebody_has_set(root):
    dataset = folder(root)
    for targets in ([5] * 11, torch.arange(11), np.arange(11, dtype=np.uint8)):
        dataset.targets = targets
        loader = FastLoader(dataset, 3)
        assert is_native(loader)
        same(copied(loader), list(DataLoader(dataset, 3)))
    dataset.targets = [0.5] * 11
    assert "targets" in FastLoader(dataset).plan()


def test_a_step_with_a_forward_of_its_own(tv, root):
    step = tv.transforms.Resize((12, 10))
    step.forward = lambda image: image.resize((5, 7))
    chain = tv.transforms.Compose([step, tv.transforms.PILToTensor()])
    loader = FastLoader(tv.datasets.ImageFolder(root, chain))
    assert "has a forward of its own" in loader.plan()
    assert next(iter(loader))[0].shape == (1, 3, 7, 5)


def test_targets_of_other_types(tv, root):
    chain = tv.transforms.Compose([tv.transforms.Resize((12, 10)), tv.transforms.PILToTensor()])
    dataset = tv.datasets.ImageFolder(root, chain)
    samples = dataset.samples
    for convert in (bool, float, lambda target: target - 2**62):
        dataset.samples = [(path, convert(target)) for path, target in samples]
        same(copied(FastLoader(dataset, 3)), list(DataLoader(dataset, 3)))
    dataset.samples = [(path, target + 2**63) for path, target in samples]
    assert "64 bits" in FastLoader(dataset).plan()


def of_version(tv, version):
    return (
        tv.transforms if version == "v1" else importlib.import_module("torchvision.transforms.v2")
    )


@pytest.mark.parametrize("version", ["v1", "v2"])
@pytest.mark.parametrize("name", ["folder", "concat of subsets", "split"])
def test_torchvisions_folder_is_native_and_right(tv, root, version, name):
    transforms = of_version(tv, version)
    chain = transforms.Compose(
        [transforms.Resize(14), transforms.CenterCrop((12, 10)), transforms.PILToTensor()]
    )
    dataset = VIEWS[name](tv.datasets.ImageFolder(root, chain))
    loader = FastLoader(dataset, 3)
    assert is_native(loader), loader.plan()
    same(copied(loader), list(DataLoader(dataset, 3)))


@pytest.mark.filterwarnings("ignore:The transform `ToTensor")
@pytest.mark.parametrize("version", ["v1", "v2"])
def test_torchvisions_usual_chains(tv, root, version):
    t = of_version(tv, version)
    bicubic = tv.transforms.InterpolationMode.BICUBIC
    ends = [t.ToTensor(), t.Normalize(MEAN, STD)]
    chain = t.Compose([t.Resize(14, interpolation=bicubic), t.CenterCrop(12), *ends])
    dataset = tv.datasets.ImageFolder(root, chain)
    loader = FastLoader(dataset, 4)
    assert is_native(loader), loader.plan()
    for (images, labels), (wanted, wanted_labels) in zip(loader, DataLoader(dataset, 4)):
        same(labels, wanted_labels)
        assert images.dtype == wanted.dtype == torch.float32
        assert torch.allclose(images, wanted, atol=2e-6, rtol=0)
    train = t.Compose(
        [
            t.RandomResizedCrop(12, interpolation=bicubic),
            t.RandomHorizontalFlip(),
            t.RandomVerticalFlip(0.1),
            *ends,
        ]
    )
    loader = FastLoader(tv.datasets.ImageFolder(root, train), 4)
    assert is_native(loader), loader.plan()
    assert next(iter(loader))[0].shape == (4, 3, 12, 12)


@pytest.mark.processes
def test_torchvision_is_not_imported(root):
    """Objects that say that they are torchvision's are not."""
    script(
        """
        import sys
        sys.path.insert(0, sys.argv[2])
        import torch
        from fastloader import FastLoader, transforms as T
        from fastloader.datasets import ImageFolder
        from pictures import IMAGE_FOLDER, stand_in
        ours = ImageFolder(sys.argv[1], T.Compose([T.Resize((12, 10)), T.PILToTensor()]))

        def default_loader(path): raise AssertionError("the native path reads for itself")
        default_loader.__module__ = IMAGE_FOLDER
        t = "torchvision.transforms.transforms"
        chain = stand_in(t, "Compose", transforms=[
            stand_in(t, "Resize", size=(12, 10), max_size=None, interpolation="bilinear"),
            stand_in(t, "PILToTensor"),
        ])
        theirs = stand_in(IMAGE_FOLDER, "ImageFolder", (torch.utils.data.Dataset,),
                          samples=list(ours.samples), loader=default_loader, transform=chain,
                          target_transform=None)
        type(theirs).__len__ = lambda self: len(self.samples)
        for dataset in (theirs, ImageFolder(sys.argv[1], chain)):
            assert FastLoader(dataset, 3).plan().startswith("Python path: ")
        assert FastLoader(ours, 3).plan().startswith("native images: ")
        assert not [name for name in sys.modules if name.partition(".")[0] == "torchvision"]
        """,
        root,
        "",
    )


# --- what is not --------------------------------------------------------------------------------


class OwnFolder(ImageFolder):
    def __getitem__(self, index):
        return super().__getitem__(index)


class NamedFolder(ImageFolder):
    """It has more than ImageFolder, and nothing else."""

    def __init__(self, root, transform):
        super().__init__(root, transform)
        self.title = "mine"

    def name_of(self, index):
        return self.classes[self.targets[index]]


class OwnResize(T.Resize):
    def apply(self, image, draw):
        return super().apply(image, draw).convert("L").convert("RGB")


class OwnCompose(T.Compose):
    def __call__(self, image):
        return 255 - super().__call__(image)


class OwnSubset(Subset):
    def __getitems__(self, indices):
        return [self.dataset[0] for _index in indices]


class Wrapped(Dataset):
    def __init__(self, inner):
        self.inner = inner

    def __len__(self):
        return len(self.inner)

    def __getitem__(self, index):
        return self.inner[index]


def own_worker_init(number):
    os.environ["OWN_WORKER"] = str(number)


def blurred(image):
    return image.convert("L").convert("RGB")


class Rotate:
    def __call__(self, image):
        return image.rotate(90)

    def __repr__(self):
        return "Rotate(by=90)"


R, P = T.Resize((12, 10)), T.PILToTensor()

# name: (dataset from root, loader options, what plan() must name)
STOPPED = {
    "subclass of dataset": (
        lambda r: OwnFolder(r, T.Compose(CHAIN)),
        {},
        "OwnFolder has a __getitem__ of its own",
    ),
    "subclass of step": (
        lambda r: folder(r, OwnResize((12, 10)), P),
        {},
        "OwnResize has a apply of its own",
    ),
    "subclass of Compose": (
        lambda r: ImageFolder(r, OwnCompose(CHAIN)),
        {},
        "OwnCompose has a __call__ of its own",
    ),
    "subclass of Subset": (lambda r: OwnSubset(folder(r), [1, 2]), {}, "OwnSubset"),
    "wrapped": (lambda r: Wrapped(folder(r)), {}, "Wrapped"),
    "worker_init_fn": (
        folder,
        {"worker_init_fn": own_worker_init, "num_workers": 1},
        "own_worker_init",
    ),
    "function": (lambda r: folder(r, R, blurred, P), {}, "blurred"),
    "unknown step": (lambda r: folder(r, R, Rotate(), P), {}, "Rotate(by=90)"),
    "only a function": (
        lambda r: ImageFolder(r, lambda image: T.Compose(CHAIN)(image)),
        {},
        "lambda",
    ),
    "normalised bytes": (
        lambda r: folder(r, R, P, lambda x: x.float(), T.Normalize(MEAN, STD)),
        {},
        "lambda",
    ),
    "behind the tensor": (lambda r: folder(r, R, P, lambda x: x + 1), {}, "lambda"),
    "two means": (
        lambda r: folder(r, R, T.ToTensor(), T.Normalize([0.5, 0.5], [0.5, 0.5])),
        {"skip": True},
        "Normalize(",
    ),
    "native=False": (folder, {"native": False}, "native=False"),
    "mean of one channel": (folder, {"mean": [0.5], "std": [0.5], "skip": True}, "1 channel"),
    "iterable": (lambda r: Stream(8), {}, "iterable"),
}


def lines(caplog, begin):
    """The log's records that begin so."""
    return [each for each in caplog.records if each.getMessage().startswith(f"fastloader: {begin}")]


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", STOPPED)
def test_stopped_by(root, caplog, name):
    make, options, wanted = STOPPED[name]
    options = dict(options)
    skip = options.pop("skip", False)
    dataset = make(root)
    loader = FastLoader(dataset, 3, **options)
    plan = loader.plan()
    assert plan.startswith("Python path: ") and wanted in plan, plan
    if skip:
        return
    with caplog.at_level(logging.INFO, "fastloader"):
        got = list(loader)
    said = lines(caplog, "Python path: ")
    assert len(said) == 1 and wanted in said[0].getMessage() and said[0].levelname == "INFO"
    options = {name: value for name, value in options.items() if name != "native"}
    same(got, list(DataLoader(dataset, 3, **options)))


def test_one_line_for_all_epochs(root, caplog):
    loader = FastLoader(folder(root), 3, native=False)
    with caplog.at_level(logging.INFO, "fastloader"):
        for _ in range(3):
            list(loader)
    assert len(lines(caplog, "Python path: ")) == 1
    assert len(lines(caplog, "an epoch begins: Python path: ")) == 3


def test_nothing_is_said_on_the_native_path_or_above_info(root, caplog):
    with caplog.at_level(logging.WARNING, "fastloader"):
        list(FastLoader(folder(root), 3, native=False))
    assert not caplog.records
    with caplog.at_level(logging.INFO, "fastloader"):
        list(FastLoader(folder(root), 3))
    assert not [record for record in caplog.records if "Python path" in record.getMessage()]


def test_pictures_of_different_sizes(root):
    for steps in ([T.Resize(12)], [T.Resize(12, max_size=14), T.ToTensor()], [T.ToTensor()]):
        loader = FastLoader(folder(root, *steps), 1)
        assert "different sizes" in loader.plan()
        assert next(iter(loader))[0].shape[:2] == (1, 3)


def test_without_transform(root):
    loader = FastLoader(ImageFolder(root), 2)
    assert "Pillow images" in loader.plan()
    with pytest.raises(TypeError, match="default_collate"):
        next(iter(loader))


def test_batch_size_none(root):
    dataset = folder(root)
    loader = FastLoader(dataset, batch_size=None)
    assert "batch_size=None" in loader.plan()
    same(list(loader), list(DataLoader(dataset, batch_size=None)))


def test_switched_off(root, enter_way):
    dataset = folder(root)
    wanted = copied(FastLoader(dataset, 3))
    enter_way("pure")
    loader = FastLoader(dataset, 3)
    assert loader.plan().startswith("Python path: ")
    same(list(loader), wanted)


def test_torchvisions_own_kinds(tv, root):
    t = tv.transforms
    resize = t.Resize((12, 10))

    def loader_of(path):
        return tv.datasets.folder.default_loader(path)

    def plan(dataset):
        made = FastLoader(dataset, 3)
        same(list(made), list(DataLoader(dataset, 3)))
        return made.plan()

    make = tv.datasets.ImageFolder
    chain = t.Compose([resize, t.PILToTensor()])
    assert "loader_of" in plan(make(root, chain, loader=loader_of))
    assert "target_transform" in plan(make(root, chain, target_transform=float))
    assert "Grayscale" in plan(make(root, t.Compose([resize, t.Grayscale(3), t.PILToTensor()])))
    assert "Pad" in plan(make(root, t.Compose([resize, t.Pad(2), t.PILToTensor()])))
    nearest = t.Resize((12, 10), t.InterpolationMode.NEAREST)
    assert "Resize" in plan(make(root, t.Compose([nearest, t.PILToTensor()])))
    gray_behind = t.Compose([resize, t.ToTensor(), t.Grayscale(3)])
    assert "Grayscale" in plan(make(root, gray_behind))
    subclass = type("Mine", (make,), {})
    assert "Mine" in plan(subclass(root, chain))
    assert "DatasetFolder" in plan(
        tv.datasets.DatasetFolder(root, tv.datasets.folder.default_loader, (".jpg",), chain)
    )
    # PIL at the end: torchvision's transforms mean what they say.
    loader = FastLoader(make(root, t.Compose([resize])), 3)
    assert "Pillow image" in loader.plan()


def test_a_stand_in_that_only_looks_alike(root):
    """Module and name decide, not one of them."""
    fake = stand_in("mymodule", "ImageFolder", (Dataset,), samples=[])
    type(fake).__len__ = lambda self: 0
    assert "mymodule.ImageFolder" in FastLoader(fake, 3).plan()
    assert IMAGE_FOLDER not in FastLoader(fake, 3).plan()
    step = stand_in("elsewhere", "Resize", size=(12, 10), max_size=None, interpolation="bilinear")
    assert FastLoader(folder(root, step, P), 3).plan().startswith("Python path")


# --- what is read, when -------------------------------------------------------------------------


def test_the_transform_of_the_moment_counts(root):
    """Users change dataset.transform between epochs, through Subset too."""
    dataset = folder(root)
    loader = FastLoader(Subset(dataset, [1, 2, 3]), 3)
    assert next(iter(loader))[0].shape == (3, 3, 12, 10)
    dataset.transform = T.Resize((4, 5))
    assert next(iter(loader))[0].shape == (3, 3, 4, 5)
    dataset.transform = T.Compose([T.Resize((4, 5)), blurred, P])
    assert loader.plan().startswith("Python path")
    assert next(iter(loader))[0].shape == (3, 3, 4, 5)


def test_changed_samples_of_torchvision_count(tv, root):
    """Balanced folders are made by assigning to samples."""
    t = tv.transforms
    dataset = tv.datasets.ImageFolder(root, t.Compose([t.Resize((12, 10)), t.PILToTensor()]))
    dataset.samples = [(path, target + 5) for path, target in dataset.samples[::-2]]
    loader = FastLoader(dataset, 3)
    assert is_native(loader)
    same(copied(loader), list(DataLoader(dataset, 3)))


def test_plan_draws_nothing_and_names_threads(root):
    state = torch.get_rng_state()
    plan = FastLoader(folder(root), 3, num_workers=5, shuffle=True).plan()
    assert "5 decode threads" in plan and "11 samples" in plan
    assert torch.equal(torch.get_rng_state(), state)


def test_options_of_the_native_path_are_refused_on_the_other(root):
    for options in ({"on_error": "skip"}, {"truncated": "pad"}):
        loader = FastLoader(folder(root), 3, native=False, **options)
        with pytest.raises(ValueError, match="native=False"):
            iter(loader)


def test_fast_in_the_shell(root):
    """plan() of a loader works without having iterated, and stays true."""
    loader = FastLoader(folder(root), 3)
    before = loader.plan()
    list(loader)
    assert loader.plan() == before
    assert textwrap.shorten(before, 60).startswith("native images: fastloader ImageFolder")
