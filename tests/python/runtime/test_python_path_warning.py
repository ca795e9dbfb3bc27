"""Who has pictures that could be read natively is told once why they are not, and nobody else is."""

import collections
import importlib
import threading
import warnings

import pytest
import torch
from pictures import import_timm, import_torchvision, plain_folder
from thread_ranks import ThreadRanks
from torch.utils.data import ConcatDataset, Subset, TensorDataset

import fastloader
from fastloader import FastLoader, PythonPathWarning
from fastloader import transforms as T
from fastloader._core.machine import extension
from fastloader.datasets import ImageFolder
from support import Pictures, Stream

pytestmark = pytest.mark.skipif(extension.load() is None, reason="the native module is not in use")

KNOWN = [T.Resize(16), T.CenterCrop(12)]


class Shifted(ImageFolder):
    """A subclass with samples of its own, which are not native."""

    def __getitem__(self, index):
        return super().__getitem__((index + 1) % len(self))


class Invert:
    """A step of the user's own."""

    def __call__(self, image):
        return image.point(lambda value: 255 - value)

    def __repr__(self):
        return "Invert()"


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return str(plain_folder(tmp_path_factory.mktemp("pictures"), 6))


def stopped(root):
    return ImageFolder(root, T.Compose([*KNOWN, Invert(), T.PILToTensor()]))


def told(loader, epochs=1):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(epochs):
            collections.deque(loader, maxlen=0)
    return [each for each in caught if issubclass(each.category, PythonPathWarning)]


@pytest.mark.parametrize("compiler", [False, True])  # which then has a frame of its own in between
@pytest.mark.parametrize("workers", [0, 1])
def test_it_names_the_step_and_the_table_once_and_blames_the_line(root, workers, compiler):
    if compiler:
        importlib.import_module("torch._dynamo")
    loader = FastLoader(stopped(root), 2, num_workers=workers)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _epoch in range(3):
            for _batch in loader:  # this line
                pass
    (one,) = [each for each in caught if each.category is PythonPathWarning]
    text = str(one.message)
    assert "Invert()" in text and "docs/native.md" in text and "native=False" in text
    assert one.filename == __file__
    with open(__file__) as source:
        assert "# this line" in source.readlines()[one.lineno - 1]


@pytest.mark.parametrize(
    ("make", "options", "reason"),
    [
        (lambda root: Subset(stopped(root), [0, 2]), {}, "Invert()"),
        (lambda root: ConcatDataset([stopped(root), stopped(root)]), {}, "Invert()"),
        (lambda root: Shifted(root, T.Compose(KNOWN)), {}, "Shifted"),
    ],
    ids=["subset", "concatenated", "subclass"],
)
def test_what_could_be_native_is_told(root, make, options, reason):
    (one,) = told(FastLoader(make(root), 2, **options))
    assert reason in str(one.message)


class Encoded(ImageFolder):
    """A subclass whose pictures the decode threads make."""

    def __getitem__(self, index):
        return fastloader.EncodedImage(self.path(index), self.transform), index


def test_a_subclass_that_gives_encoded_pictures_is_not_called_slower(root):
    loader = FastLoader(Encoded(root, T.Compose(KNOWN)), 2)
    (one,) = told(loader)
    assert loader.stats()["pictures"]["pool"] == 6
    text = str(one.message)
    assert "slower" not in text and "Encoded has a __getitem__ of its own" in text
    assert "slower" in str(told(FastLoader(stopped(root), 2))[0].message)


class Files(torch.utils.data.Dataset):
    """Whatever it reads, nobody could know it."""

    def __len__(self):
        return 4

    def __getitem__(self, index):
        return torch.zeros(3, 4, 4, dtype=torch.uint8)


@pytest.mark.parametrize(
    ("make", "options"),
    [
        (lambda root: Files(), {}),
        (lambda root: Pictures(4), {}),
        (lambda root: Stream(4), {}),
        (lambda root: [1, 2, 3], {}),
        (lambda root: TensorDataset(torch.zeros(4, 3)), {"collate_fn": len}),
        (lambda root: ConcatDataset([Files(), Files()]), {}),
        (lambda root: ConcatDataset([Files(), stopped(root)]), {"collate_fn": len}),
        (lambda root: ImageFolder(root, T.Compose(KNOWN)), {}),
        (stopped, {"native": False}),
    ],
    ids=[
        "dataset of one's own", "pictures in memory", "iterable", "list", "arrays",
        "concatenated", "mixed", "native", "not wanted",
    ],
)  # fmt: skip
def test_nobody_else_is_told(root, make, options):
    assert told(FastLoader(make(root), 2, **options), epochs=2) == []


def test_pure_python_was_told_already(root, monkeypatch):
    monkeypatch.setenv("FASTLOADER_NATIVE", "0")
    assert told(FastLoader(stopped(root), 2)) == []


def test_another_reason_is_another_warning(root):
    dataset = stopped(root)
    loader = FastLoader(dataset, 2)
    assert len(told(loader)) == 1
    dataset.transform = T.Compose([T.Resize(16), Invert(), T.CenterCrop(12), T.PILToTensor()])
    assert len(told(loader)) == 0, "the same step in another place"
    dataset.transform = T.Compose([*KNOWN, T.ToTensor(), lambda image: image])
    (one,) = told(loader)
    assert "lambda" in str(one.message)


def test_a_filter_silences_it_alone(root):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", category=fastloader.PythonPathWarning)
        list(FastLoader(stopped(root), 2))
        warnings.simplefilter("error")
        with pytest.raises(PythonPathWarning):
            list(FastLoader(stopped(root), 2))


def test_torchvisions_folder_with_a_step_that_is_not_native(root):
    import_torchvision()
    from torchvision import datasets, transforms

    steps = [transforms.RandomResizedCrop(12), transforms.Lambda(str), transforms.ToTensor()]
    dataset = datasets.ImageFolder(root, transforms.Compose(steps))
    loader = FastLoader(dataset, 2)
    with pytest.raises(TypeError):  # a str is no picture
        told(loader)
    assert "Lambda" in loader.plan()


def test_timms_defaults_are_native(root):
    import_timm()
    from fastloader.compat.timm import ImageDataset, create_loader

    loader = create_loader(ImageDataset(root), (3, 12, 12), 2, is_training=True, num_workers=0)
    assert "ColorJitter" in loader.loader.plan()
    assert told(loader) == []


def test_the_table_has_every_step_that_is_read():
    import ast
    import inspect

    from fastloader.transforms._reader import chain
    from support import PACKAGE_ROOT

    page = PACKAGE_ROOT / "docs" / "native.md"
    if not page.is_file():
        pytest.skip("needs the source tree")
    tree = ast.parse(inspect.getsource(chain))
    compared = [node for node in ast.walk(tree) if isinstance(node, ast.Compare)]
    steps = {
        leaf.value.removeprefix("timm ")
        for node in compared
        if getattr(node.left, "id", "") == "kind"
        for leaf in ast.walk(node)
        if isinstance(leaf, ast.Constant)
    }
    steps |= {name for _module, name in chain.KNOWN} | {*chain._MAKE_HOLDER}
    assert len(steps) > 40
    text = page.read_text()
    assert [name for name in sorted(steps) if f"`{name}`" not in text] == []


# ---- Several ranks, of which one speaks for all.


def told_of_ranks(monkeypatch, root, world, make, epochs):
    """The number of warnings after each epoch, and what was warned of. Ranks are threads, and come one
    after the other."""
    ranks, said = ThreadRanks(monkeypatch), []
    turns = [threading.Event() for _ in range(world + 1)]
    turns[0].set()

    def work(rank):
        assert turns[rank].wait(60)
        try:
            loader = make(rank)
            for _ in range(epochs):
                collections.deque(loader, maxlen=0)
        finally:
            turns[rank + 1].set()

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        ranks.run(world, work)
    said = [str(each.message) for each in caught if issubclass(each.category, PythonPathWarning)]
    return said


def test_rank_0_says_it_for_all_ranks(root, monkeypatch):
    said = told_of_ranks(monkeypatch, root, 3, lambda _rank: FastLoader(stopped(root), 2), 3)
    assert len(said) == 1 and "Invert()" in said[0]


@pytest.mark.parametrize("epochs", [1, 2, 3])
def test_what_rank_0_has_not_is_said_by_another_one_at_its_second_epoch(root, monkeypatch, epochs):
    def make(rank):
        native = ImageFolder(root, T.Compose([*KNOWN, T.PILToTensor()]))
        return FastLoader(stopped(root) if rank == 2 else native, 2)

    said = told_of_ranks(monkeypatch, root, 3, make, epochs)
    assert len(said) == (epochs > 1)


@pytest.mark.parametrize(("rank", "count"), [("0", 1), ("3", 0), ("", 1)])
def test_before_there_is_a_group_the_launchers_rank_counts(root, monkeypatch, rank, count):
    monkeypatch.setenv("RANK", rank)
    assert len(told(FastLoader(stopped(root), 2))) == count
