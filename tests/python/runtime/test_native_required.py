"""With ``native="require"`` batches that Python would make are an error, with the reason that ``plan()``
gives, and ``is_native`` says beforehand who makes them."""

import copy
import pickle

import pytest
import torch
from pictures import import_torchvision, plain_folder
from torch.utils.data import (
    ConcatDataset,
    IterableDataset,
    StackDataset,
    Subset,
    TensorDataset,
)

from fastloader import EncodedImage, FastLoader
from fastloader import transforms as T
from fastloader._core.machine import extension
from fastloader.datasets import ImageFolder
from support import same

native_only = pytest.mark.skipif(extension.load() is None, reason="the native module is not in use")

KNOWN = [T.Resize(16), T.CenterCrop(12)]


class Invert:
    """A step of the user's own."""

    def __call__(self, image):
        return image.point(lambda value: 255 - value)

    def __repr__(self):
        return "Invert()"


WHOLE = T.Compose([*KNOWN, T.PILToTensor()])
STOPPED = T.Compose([*KNOWN, Invert(), T.PILToTensor()])


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return str(plain_folder(tmp_path_factory.mktemp("pictures"), 6))


class Encoded(torch.utils.data.Dataset):
    """Gives encoded pictures; those behind the first ``native`` ones with a step of Python's."""

    def __init__(self, root, native=6):
        self.files, self.native = ImageFolder(root), native

    def __len__(self):
        return 6

    def __getitem__(self, index):
        transform = WHOLE if index < self.native else STOPPED
        return {"image": EncodedImage(self.files.path(index), transform), "label": index}


class Arrays(torch.utils.data.Dataset):
    """Whatever it reads, nobody could know it."""

    def __len__(self):
        return 4

    def __getitem__(self, index):
        return torch.zeros(3, 4, 4, dtype=torch.uint8)


def keep(samples):
    return samples


@native_only
@pytest.mark.parametrize(
    "options",
    [{}, {"num_workers": 2}, {"num_workers": 1, "worker_backend": "thread"}, {"collate_fn": keep}],
    ids=["loop", "processes", "threads", "collate_fn"],
)
def test_native_pictures_are_as_without_it(root, options):
    dataset = ImageFolder(root, WHOLE)
    loader = FastLoader(dataset, 2, native="require", **options)
    assert loader.is_native is True
    same(list(loader), list(FastLoader(dataset, 2, **options)))
    assert loader.is_native is True and loader.native == "require"


@native_only
@pytest.mark.parametrize(
    "make",
    [
        lambda root: TensorDataset(torch.arange(4)),
        lambda root: StackDataset(torch.arange(4), torch.arange(4)),
        lambda root: Subset(ImageFolder(root, WHOLE), [1, 0]),
    ],
    ids=["arrays", "stacked", "subset"],
)
def test_other_native_datasets_are_as_without_it(root, make):
    loader = FastLoader(make(root), 2, native="require")
    assert loader.is_native is True
    same(list(loader), list(FastLoader(make(root), 2)))


@native_only
@pytest.mark.parametrize(
    ("make", "options", "reason"),
    [
        (lambda root: ImageFolder(root, STOPPED), {}, "Invert()"),
        (lambda root: Subset(ImageFolder(root, STOPPED), [0]), {}, "Invert()"),
        (
            lambda root: ConcatDataset([ImageFolder(root, WHOLE), ImageFolder(root, STOPPED)]),
            {"num_workers": 2},
            "Invert()",
        ),
        (lambda root: TensorDataset(torch.arange(4)), {"collate_fn": keep}, "collate_fn is"),
    ],
    ids=["folder", "subset", "concatenated", "arrays"],
)
def test_what_is_known_not_to_be_native_raises_when_the_loader_is_made(root, make, options, reason):
    plain = FastLoader(make(root), 2, **options)
    assert plain.is_native is False and reason in plain.plan()
    with pytest.raises(ValueError, match="native='require', and Python makes") as caught:
        FastLoader(make(root), 2, native="require", **options)
    assert reason in str(caught.value) and "docs/native.md" in str(caught.value)


def test_without_the_native_module_nothing_is_native(root, monkeypatch):
    monkeypatch.setattr(extension, "load", lambda: None)
    for dataset in (ImageFolder(root, WHOLE), Encoded(root), Arrays()):
        assert FastLoader(dataset, 2).is_native is False
        with pytest.raises(ValueError, match=r"require.*the native module is not in use"):
            FastLoader(dataset, 2, native="require")


@native_only
def test_a_transform_that_is_replaced_between_epochs_raises_at_the_next(root):
    dataset = ImageFolder(root, WHOLE)
    loader = FastLoader(dataset, 2, native="require")
    assert len(list(loader)) == 3
    dataset.transform = STOPPED
    assert loader.is_native is False
    with pytest.raises(ValueError, match=r"Invert\(\)"):
        iter(loader)
    dataset.transform = WHOLE
    assert loader.is_native is True and len(list(loader)) == 3


@native_only
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"num_workers": 1},
        {"num_workers": 1, "worker_backend": "thread"},
        {"collate_fn": keep},
        {"batch": "list"},
        {"num_workers": 1, "batch": "pad"},
        {"batch_size": None},
    ],
    ids=["loop", "process", "thread", "collate_fn", "list", "pad", "samples"],
)
def test_encoded_pictures_are_known_with_the_first_batch(root, options):
    options = {"batch_size": 2, **options}
    loader = FastLoader(Encoded(root), native="require", **options)
    assert loader.is_native is False  # nothing was seen yet
    same(list(loader), list(FastLoader(Encoded(root), **options)))
    assert loader.is_native is True


@native_only
@pytest.mark.parametrize(
    "options",
    [{}, {"num_workers": 1}, {"num_workers": 1, "worker_backend": "thread"}, {"collate_fn": keep}],
    ids=["loop", "process", "thread", "collate_fn"],
)
def test_the_batch_whose_pictures_python_makes_raises_in_its_place(root, options):
    loader = FastLoader(Encoded(root, native=4), 2, native="require", **options)
    batches = iter(loader)
    next(batches)
    next(batches)
    with pytest.raises(ValueError, match=r"makes the pictures \['image'\].*Invert\(\)"):
        next(batches)
    assert loader.is_native is False
    with pytest.raises(StopIteration):
        next(batches)


class Streamed(IterableDataset):
    def __init__(self, dataset):
        self.dataset = dataset

    def __iter__(self):
        return map(self.dataset.__getitem__, range(len(self.dataset)))


class Shifted(ImageFolder):
    """A subclass with samples of its own, which are not native."""

    def __getitem__(self, index):
        return super().__getitem__((index + 1) % len(self))


@native_only
@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda root: Arrays(), "the dataset is a"),
        (lambda root: Streamed(Arrays()), "the dataset is iterable"),
        (lambda root: Shifted(root, WHOLE), "Shifted has a __getitem__ of its own"),
    ],
    ids=["arrays", "iterable", "subclass"],
)
def test_a_batch_without_an_encoded_picture_raises(root, make, reason, workers):
    loader = FastLoader(make(root), 2, native="require", num_workers=workers)
    with pytest.raises(ValueError, match=f"{reason}.*no EncodedImage is in this batch"):
        next(iter(loader))
    assert loader.is_native is False


@native_only
def test_an_iterable_dataset_of_encoded_pictures_is_native(root):
    loader = FastLoader(Streamed(Encoded(root)), 2, native="require")
    assert len(list(loader)) == 3 and loader.is_native is True


@native_only
def test_a_folder_whose_loader_gives_encoded_pictures_is_native(root):
    torchvision = import_torchvision()
    folder = torchvision.datasets.ImageFolder(root, loader=lambda path: EncodedImage(path, WHOLE))
    loader = FastLoader(folder, 2, native="require")
    assert len(list(loader)) == 3 and loader.is_native is True
    folder = torchvision.datasets.ImageFolder(root, loader=lambda path: torch.zeros(3, 4, 4))
    with pytest.raises(ValueError, match="no EncodedImage"):
        next(iter(FastLoader(folder, 2, native="require")))


@native_only
def test_a_file_that_pillow_decodes_is_no_error(root, tmp_path):
    from PIL import Image

    (tmp_path / "a").mkdir()
    Image.open(ImageFolder(root).path(0)).save(tmp_path / "a" / "0.bmp")
    loader = FastLoader(ImageFolder(str(tmp_path), WHOLE), 1, native="require")
    assert len(list(loader)) == 1 and loader.is_native is True


@native_only
def test_a_look_decides_nothing_about_sharding(root):
    stopped = ImageFolder(root, STOPPED)
    with pytest.raises(ValueError, match=r"Invert\(\)"):
        FastLoader(stopped, 2, native="require", distributed="auto")
    loader = FastLoader(ImageFolder(root, WHOLE), 2, native="require", distributed="auto")
    assert not loader._runtime.sharding.decided
    # Here the plan asks for the batch_sampler, so that iter() is the first to look.
    loader = FastLoader(stopped, batch_size=None, native="require", distributed="auto")
    assert not loader._runtime.sharding.decided
    with pytest.raises(ValueError, match=r"Invert\(\)"):
        iter(loader)


@native_only
def test_copies_and_pickles_require_it_too(root):
    loader = FastLoader(ImageFolder(root, WHOLE), 2, native="require")
    for made in (copy.copy(loader), pickle.loads(pickle.dumps(loader))):
        assert made.native == "require" and made.is_native is True
        made.dataset.transform = STOPPED
        with pytest.raises(ValueError, match=r"Invert\(\)"):
            iter(made)
        made.dataset.transform = WHOLE


@native_only
def test_it_can_be_set_later(root):
    loader = FastLoader(ImageFolder(root, STOPPED), 2, native=False)
    assert loader.is_native is False
    loader.native = "require"
    with pytest.raises(ValueError, match=r"Invert\(\)"):
        iter(loader)
    loader.native = False
    assert len(list(loader)) == 3


def test_other_values_are_refused(root):
    with pytest.raises(ValueError, match="native='always'"):
        FastLoader(ImageFolder(root, WHOLE), native="always")
    with pytest.raises(TypeError, match="got 1"):
        FastLoader(ImageFolder(root, WHOLE), native=1)
    loader = FastLoader(ImageFolder(root, WHOLE))
    with pytest.raises(ValueError, match="native='always'"):
        loader.native = "always"
    assert loader.native is True
