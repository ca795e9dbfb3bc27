"""Every dataset that is recognised, with each function that a sample takes replaced by another, and with
subclasses: the plan says what Python does. The datasets are our formats, and those of the recogniser's
own table."""

import array
import collections
import copy
import functools
import importlib
import io
import json
import re
import tarfile
import types

import numpy as np
import patched
import pytest
import torch
import torchvision_datasets as made
from pictures import import_timm, import_torchvision, plain_folder
from PIL import Image
from torch.utils.data import (
    ConcatDataset,
    DataLoader,
    StackDataset,
    Subset,
    TensorDataset,
    dataloader,
)

from fastloader import FastLoader
from fastloader import datasets as ours
from fastloader import transforms as T
from fastloader._core.machine import extension, identity
from fastloader._core.sources.recognize import RECOGNIZERS, recognize_images
from fastloader.cli.__main__ import main
from fastloader.datasets.pictures import formats
from support import same

pytestmark = pytest.mark.skipif(extension.load() is None, reason="needs the native module")
tv = import_torchvision()
import_timm()

CHAIN = T.Compose([T.Resize((12, 10)), T.PILToTensor()])


def folder(root):
    return ours.ImageFolder(root, CHAIN)


def listed(root):
    file = root.parent / "list.json"
    rows = [{"path": path, "label": label} for path, label in folder(root).samples]
    file.write_text(json.dumps(rows))
    return ours.ListImages(file, CHAIN)


def tar(root):
    file = root.parent / "x.tar"
    with tarfile.open(file, "w") as shard:
        for number, (path, label) in enumerate(folder(root).samples):
            with open(path, "rb") as picture:
                content = picture.read()
            for extension_, data in (("jpg", content), ("cls", str(label).encode())):
                member = tarfile.TarInfo(f"{number}.{extension_}")
                member.size = len(data)
                shard.addfile(member, io.BytesIO(data))
    return ours.TarImages(file, CHAIN)


def lmdb(root):
    pytest.importorskip("lmdb")
    file = root.parent / "x.lmdb"
    assert main(["pack", str(root), str(file)]) == 0
    return ours.LMDBDataset(file, CHAIN)


def hugging_face(root):
    datasets = pytest.importorskip("datasets")
    rows = {"image": [], "label": []}
    for path, label in folder(root).samples:
        with open(path, "rb") as picture:
            rows["image"].append({"bytes": picture.read(), "path": None})
        rows["label"].append(label)
    features = {"image": datasets.Image(), "label": datasets.Value("int64")}
    return datasets.Dataset.from_dict(rows, features=datasets.Features(features))


def parquet(root):
    file = root.parent / "x.parquet"
    hugging_face(root).to_parquet(file)
    return ours.ParquetImages(file, CHAIN)


def timm(module):
    def timm(root):
        steps = importlib.import_module("timm.data.transforms")
        kind = identity.found(module, "ImageDataset")
        return kind(
            str(root),
            transform=tv.transforms.Compose([T.Resize((12, 10)), steps.MaybePILToTensor()]),
        )

    return timm


MAKERS = {
    ("fastloader.datasets.files", "ImageFolder"): folder,
    ("fastloader.datasets.files", "ListImages"): listed,
    ("fastloader.datasets.lmdb", "LMDBDataset"): lmdb,
    ("fastloader.datasets.tar", "TarImages"): tar,
    ("fastloader.datasets.hugging_face", "HFImages"): lambda root: ours.HFImages(
        hugging_face(root), CHAIN
    ),
    ("fastloader.datasets.parquet", "ParquetImages"): parquet,
    ("datasets.arrow_dataset", "Dataset"): lambda root: hugging_face(root).with_transform(CHAIN),
    ("timm.data.dataset", "ImageDataset"): timm("timm.data.dataset"),
    ("fastloader.compat.timm.dataset", "ImageDataset"): timm("fastloader.compat.timm.dataset"),
}


@pytest.fixture
def dataset(home, monkeypatch, tmp_path):
    importlib.import_module(home[0])
    if home in MAKERS:
        found = MAKERS[home](plain_folder(tmp_path / "plain", 3))
    else:
        made.stand_in(monkeypatch, tv)
        v2 = importlib.import_module("torchvision.transforms.v2")
        first = [v2.RGB()] if home[1] in made.OPENED_AS_THEY_ARE else []
        found = made.make(tv, tmp_path, home[1], transform=T.Compose([*first, *CHAIN.transforms]))
    assert type(found) is identity.found(*home)
    return found


def plan(dataset):
    return FastLoader(dataset, 2).plan()


OURS = [
    (each.__module__, each.__qualname__)
    for each in map(vars(ours).get, ours.__all__)
    if each in formats()
]
ROWS = pytest.mark.parametrize("home", [*OURS, *RECOGNIZERS.rows], ids=".".join)


@pytest.mark.exhaustive
@ROWS
def test_every_function_that_a_sample_takes(monkeypatch, home, dataset):
    assert plan(dataset).startswith("native images: "), plan(dataset)
    functions = patched.ran(lambda: (dataset[1], len(dataset)))
    assert functions
    silent = []
    for places in functions:
        if not patched.is_taken(type(dataset), *places[0]):
            continue
        with monkeypatch.context() as patches:
            patched.patch(patches, places)
            said = plan(dataset)
        if said.startswith("native images: ") or "was replaced by patched.patch" not in said:
            silent.append((patched.called(*places[0]), said))
    assert silent == []
    assert plan(dataset).startswith("native images: ")


@ROWS
def test_a_subclass(home, dataset):
    kind = type(dataset)
    functions = [places[0] for places in patched.ran(lambda: (dataset[1], len(dataset)))]
    own = copy.copy(dataset)
    own.__class__ = type("Own", (kind,), {"title": "mine", "__init__": lambda self: None})
    assert plan(own).startswith("native images: Own, "), plan(own)
    same(list(FastLoader(own, 2)), list(DataLoader(own, 2)))
    names = {
        name for holder, name in functions if isinstance(holder, type) and issubclass(kind, holder)
    }
    for name in {"__getitem__", "__len__"} | names:
        method = getattr(kind, name)
        own.__class__ = type("Own", (kind,), {name: lambda *_, method=method: method(*_)})
        assert f"Own has a {name} of its own" in plan(own), plan(own)

    def missing(self, name):
        raise AttributeError(name)

    for name in ("samples", "transform", "__getitems__", "__getattr__", "__eq__"):
        own.__class__ = type("Own", (kind,), {name: missing})
        assert f"Own has a {name} of its own" in plan(own), plan(own)


@ROWS
def test_methods_of_the_object(home, dataset):
    functions = [places[0] for places in patched.ran(lambda: dataset[1])]
    for holder, name in functions:
        if isinstance(holder, type) and isinstance(dataset, holder) and name[:2] != "__":
            own = copy.copy(dataset)
            try:
                setattr(own, name, getattr(dataset, name))
            except AttributeError:  # a property
                continue
            assert f"the dataset has a {name} of its own" in plan(own), plan(own)


class OwnSubset(Subset):
    """As Lightning's and other libraries have it: with a name of its own, and nothing else."""


class OwnConcat(ConcatDataset):
    title = "mine"


class OwnTensors(TensorDataset):
    def described(self):
        return len(self.tensors)


class OwnStack(StackDataset):
    pass


@pytest.mark.parametrize(
    "make",
    [
        lambda known: OwnSubset(known, [1, 2]),
        lambda known: OwnConcat([known, OwnSubset(known, [2])]),
        lambda known: OwnTensors(torch.arange(9)),
        lambda known: OwnStack(a=torch.arange(9), b=OwnTensors(torch.arange(9))),
        lambda known: OwnSubset(OwnTensors(torch.arange(9)), [1, 2]),
    ],
    ids=["subset", "concat", "tensors", "stack", "subset of tensors"],
)
def test_selections_that_only_derive_from_torchs(tmp_path, make):
    selection = make(folder(plain_folder(tmp_path / "plain", 3)))
    assert "Python path" not in plan(selection), plan(selection)
    same(list(FastLoader(selection, 2)), list(DataLoader(selection, 2)))
    kind = type(selection)
    changes = {
        "__getitems__": of_sevens_by_class,
        "__getitem__": lambda self, index: (torch.ones(2), 3),
    }
    for name, method in changes.items():
        selection.__class__ = type("Changed", (kind,), {name: method})
        assert "Python path: the dataset is a " in plan(selection), plan(selection)
        same(list(FastLoader(selection, 2)), list(DataLoader(selection, 2)))


@pytest.mark.parametrize("module", ["timm.data.dataset", "fastloader.compat.timm.dataset"])
def test_a_reader_of_timm_that_only_derives_from_it(tmp_path, module):
    importlib.import_module(module)
    dataset = timm(module)(plain_folder(tmp_path / "plain", 3))
    kind = type(dataset.reader)
    dataset.reader.__class__ = type("Own", (kind,), {"title": "mine"})
    assert plan(dataset).startswith("native images: "), plan(dataset)
    dataset.reader.__class__ = type(
        "Own", (kind,), {"__getitem__": lambda self, at: kind.__getitem__(self, 0)}
    )
    assert "Own has a __getitem__ of its own" in plan(dataset), plan(dataset)
    same(list(FastLoader(dataset, 2)), list(DataLoader(dataset, 2)))


def of_sevens_by_class(self, indices):
    return of_sevens(indices)


def of_sevens(indices):
    return [(torch.zeros(3), 7) for _index in indices]


@pytest.mark.exhaustive
@ROWS
def test_samples_of_a_batch_by_the_object(home, dataset):
    dataset.__getitems__ = of_sevens
    assert "the dataset has a __getitems__ of its own" in plan(dataset), plan(dataset)
    same(list(FastLoader(dataset, 2)), list(DataLoader(dataset, 2)))


@pytest.mark.parametrize(
    "make",
    [
        lambda known: Subset(known, [1, 2]),
        lambda known: ConcatDataset([known]),
        lambda known: TensorDataset(torch.arange(9)),
        lambda known: StackDataset(a=torch.arange(9)),
        lambda known: Subset(TensorDataset(torch.arange(9)), [1, 2]),
    ],
    ids=["subset", "concat", "tensors", "stack", "subset of tensors"],
)
def test_samples_of_a_batch_by_a_selection(tmp_path, make):
    known = folder(plain_folder(tmp_path / "plain", 3))
    selection = make(known)
    assert "Python path" not in plan(selection)
    selection.__getitems__ = of_sevens
    assert "the dataset has a __getitems__ of its own" in plan(selection), plan(selection)
    same(list(FastLoader(selection, 2)), list(DataLoader(selection, 2)))
    outer = Subset(selection, [1, 0])
    assert "the dataset has a __getitems__ of its own" in plan(outer), plan(outer)
    same(list(FastLoader(outer, 2)), list(DataLoader(outer, 2)))


@pytest.mark.parametrize("kind", [Subset, ConcatDataset])
def test_selections(monkeypatch, tmp_path, kind):
    known = folder(plain_folder(tmp_path / "plain", 3))
    selection = Subset(known, [1, 0]) if kind is Subset else ConcatDataset([known, known])
    assert plan(selection).startswith("native images: ")
    for name in ("__getitem__", "__getitems__", "__len__"):
        with monkeypatch.context() as patches:
            patches.setattr(kind, name, lambda *_: 1, raising=False)
            assert f"{kind.__name__}.{name} was replaced by {__name__}." in plan(selection)


def test_pillow_counts_for_all(monkeypatch, tmp_path):
    known = folder(plain_folder(tmp_path / "plain", 3))
    before = Image.open
    monkeypatch.setattr(Image, "open", lambda *given: before(*given).rotate(90))
    assert "PIL.Image.open was replaced by" in plan(known)
    same(list(FastLoader(known, 2)), list(DataLoader(known, 2)))
    monkeypatch.undo()
    native = list(FastLoader(known, 2))
    monkeypatch.setattr(Image.Image, "convert", lambda self, mode: self)
    assert "Image.convert was replaced by" in plan(known)
    monkeypatch.undo()
    assert plan(known).startswith("native images: ")
    monkeypatch.setattr(Image.open, "__defaults__", ("r", ["PNG"]))
    assert "PIL.Image.open was given other defaults" in plan(known)
    monkeypatch.undo()
    same(list(FastLoader(known, 2)), native)


def test_a_class_in_the_place_of_another(monkeypatch, tmp_path):
    folders = tv.datasets.folder
    root = plain_folder(tmp_path / "plain", 3)

    class ImageFolder(folders.ImageFolder):
        def __getitem__(self, index):
            return super().__getitem__(index)[0], index

    ImageFolder.__module__, ImageFolder.__qualname__ = folders.__name__, "ImageFolder"
    monkeypatch.setattr(folders, "ImageFolder", ImageFolder)
    dataset = folders.ImageFolder(str(root), CHAIN)
    assert plan(dataset).startswith("Python path: ")
    same(list(FastLoader(dataset, 2)), list(DataLoader(dataset, 2)))


def test_the_loader_of_a_folder(monkeypatch, tmp_path):
    folders = tv.datasets.folder
    root = str(plain_folder(tmp_path / "plain", 3))

    @functools.wraps(folders.default_loader)
    def turned(path):
        return folders.default_loader(path).rotate(180)

    dataset = folders.ImageFolder(root, CHAIN, loader=turned)
    assert (
        f"the dataset's loader is {__name__}.test_the_loader_of_a_folder.<locals>.turned"
        in plan(dataset)
    )
    same(list(FastLoader(dataset, 2)), list(DataLoader(dataset, 2)))
    dataset = folders.ImageFolder(root, CHAIN)
    native = list(FastLoader(dataset, 2))
    before = folders.pil_loader
    monkeypatch.setattr(folders, "pil_loader", lambda path: before(path).rotate(180))
    assert "torchvision.datasets.folder.pil_loader was replaced by" in plan(dataset)
    same(list(FastLoader(dataset, 2)), list(DataLoader(dataset, 2)))
    monkeypatch.undo()
    monkeypatch.setattr(tv, "_image_backend", "accimage")
    assert "image backend is 'accimage'" in plan(dataset)
    monkeypatch.undo()
    same(list(FastLoader(dataset, 2)), native)


def test_an_index_that_a_patch_adds(monkeypatch, tmp_path):
    """As people patch `DatasetFolder` to learn which sample it was."""
    folders = tv.datasets.folder
    dataset = folders.ImageFolder(str(plain_folder(tmp_path / "plain", 3)), CHAIN)
    before = folders.DatasetFolder.__getitem__
    monkeypatch.setattr(
        folders.DatasetFolder, "__getitem__", lambda self, index: (*before(self, index), index)
    )
    assert f"DatasetFolder.__getitem__ was replaced by {__name__}." in plan(dataset)
    assert len(next(iter(FastLoader(dataset, 2)))) == 3


def test_numbers_of_arrays_are_not_looked_into():
    """An attribute of a class may be an array, whose equality is another one."""

    class Own(ours.ImageFolder):
        weights = np.ones(3)

    assert identity.change(Own, ours.ImageFolder) == ""


def test_a_module_in_the_place_of_another(monkeypatch, tmp_path):
    folders = tv.datasets.folder
    dataset = folders.ImageFolder(str(plain_folder(tmp_path / "plain", 3)), CHAIN)
    assert plan(dataset).startswith("native images: ")
    monkeypatch.setattr(folders, "Image", types.ModuleType("mine"))
    assert "torchvision.datasets.folder.Image was replaced by" in plan(dataset)
    monkeypatch.undo()
    monkeypatch.setattr(folders, "open", lambda path, mode: io.FileIO(path), raising=False)
    assert f"torchvision.datasets.folder.open was replaced by {__name__}." in plan(dataset)


def test_samples_in_a_list_of_ones_own(tmp_path):
    class Backwards(list):
        def __getitem__(self, index):
            return super().__getitem__(-1 - index)

    folders = tv.datasets.folder
    dataset = folders.ImageFolder(str(plain_folder(tmp_path / "plain", 3)), CHAIN)
    dataset.samples = Backwards(dataset.samples)
    assert "the dataset's samples are a " in plan(dataset)
    same(list(FastLoader(dataset, 2)), list(DataLoader(dataset, 2)))


def test_what_fetches_samples(monkeypatch, tmp_path):
    from torch.utils.data._utils.fetch import _MapDatasetFetcher

    known = folder(plain_folder(tmp_path / "plain", 3))
    before = _MapDatasetFetcher.fetch
    monkeypatch.setattr(_MapDatasetFetcher, "fetch", lambda self, at: before(self, at[:1]))
    assert f"_MapDatasetFetcher.fetch was replaced by {__name__}." in plan(known)
    same(list(FastLoader(known, 2)), list(DataLoader(known, 2)))


def test_a_class_in_the_place_of_torchs_fetcher(monkeypatch, tmp_path):
    from torch.utils.data._utils import fetch

    known = folder(plain_folder(tmp_path / "plain", 3))

    class First(fetch._MapDatasetFetcher):
        def fetch(self, at):
            return super().fetch(at[:1])

    monkeypatch.setattr(fetch, "_MapDatasetFetcher", First)
    assert "_MapDatasetFetcher was replaced by" in plan(known)
    same(list(FastLoader(known, 2)), list(DataLoader(known, 2)))


@pytest.mark.parametrize("name", ["__next__", "_next_data", "_next_index"])
@pytest.mark.parametrize("kind", ["_SingleProcessDataLoaderIter", "_MultiProcessingDataLoaderIter"])
def test_methods_of_torchs_iterators(monkeypatch, tmp_path, kind, name):
    known = folder(plain_folder(tmp_path / "plain", 3))
    assert plan(known).startswith("native images: ")
    kind = getattr(dataloader, kind)
    before = getattr(kind, name)
    monkeypatch.setattr(kind, name, lambda self: before(self))
    assert f"{kind.__name__}.{name} was replaced by {__name__}." in plan(known)
    same(list(FastLoader(known, 2)), list(DataLoader(known, 2)))


def black(_file, _name):
    return Image.new("RGB", (9, 9))


def test_a_plugin_before_pillows_own(monkeypatch, tmp_path):
    known = folder(plain_folder(tmp_path / "plain", 3))
    assert plan(known).startswith("native images: ")
    monkeypatch.setattr(Image, "ID", [*Image.ID])
    monkeypatch.setattr(Image, "OPEN", {**Image.OPEN})
    Image.register_open("ZZ", black, lambda begin: begin[:2] == b"\xff\xd8")
    assert plan(known).startswith("native images: "), (
        "the plugins before it take all of these files"
    )
    Image.ID.insert(0, Image.ID.pop())
    assert f"Pillow opens JPEG by {__name__}.black" in plan(known)
    same(list(FastLoader(known, 2)), list(DataLoader(known, 2)))
    # As pillow-heif's, if it was imported before Pillow opened anything.
    Image.OPEN["ZZ"] = black, lambda begin: begin[4:12] == b"ftypheic"
    assert plan(known).startswith("native images: ")
    Image.OPEN["ZZ"] = black, None
    assert f"Pillow opens JPEG by {__name__}.black" in plan(known)


def test_what_pillow_has_for_a_format(monkeypatch, tmp_path):
    from PIL import BmpImagePlugin, PngImagePlugin

    known = folder(plain_folder(tmp_path / "plain", 3))
    assert plan(known).startswith("native images: ")
    for factory, accept in (
        (black, Image.OPEN["JPEG"][1]),
        (PngImagePlugin.PngImageFile, Image.OPEN["JPEG"][1]),
        (Image.OPEN["JPEG"][0], Image.OPEN["PNG"][1]),
    ):
        with monkeypatch.context() as patches:
            patches.setitem(Image.OPEN, "JPEG", (factory, accept))
            assert "Pillow opens JPEG by" in plan(known)
    with monkeypatch.context() as patches:
        patches.setitem(Image.OPEN, "BMP", Image.OPEN["JPEG"])
        assert "Pillow opens JPEG by PIL.JpegImagePlugin.jpeg_factory" in plan(known)
    with monkeypatch.context() as patches:
        patches.setattr(Image, "ID", [each for each in Image.ID if each != "JPEG"])
        assert "Pillow opens no JPEG" in plan(known)
    with monkeypatch.context() as patches:
        patches.setitem(Image.DECODERS, "jpeg", BmpImagePlugin.BmpRleDecoder)
        assert "Pillow decodes 'jpeg' by" in plan(known)
    assert plan(known).startswith("native images: ")


def test_what_decodes_pictures_of_hugging_face(monkeypatch, tmp_path):
    datasets = pytest.importorskip("datasets")
    data = MAKERS["datasets.arrow_dataset", "Dataset"](plain_folder(tmp_path / "plain", 3))
    assert plan(data).startswith("native images: ")
    before = datasets.Image.decode_example
    monkeypatch.setattr(datasets.Image, "decode_example", lambda *a, **k: before(*a, **k))
    assert "Image.decode_example was replaced by" in plan(data)


def folder_with(tmp_path, sequence):
    dataset = tv.datasets.folder.ImageFolder(str(plain_folder(tmp_path / "plain", 3)), CHAIN)
    dataset.samples = sequence(dataset.samples)
    return dataset


@pytest.mark.parametrize(
    "sequence",
    [
        collections.deque,
        collections.UserList,
        lambda samples: dict(enumerate(samples)),
        lambda samples: types.SimpleNamespace(samples=samples),  # which has no samples to give
        lambda samples: [(*sample, 1) for sample in samples],
        lambda samples: [samples[0], (*samples[1], 1), samples[2]],
        lambda samples: [(path, target) for path, target in samples] + [7],
        lambda samples: [(None, target) for _path, target in samples],
    ],
)
def test_samples_that_are_no_list_of_pairs(tmp_path, sequence):
    dataset = folder_with(tmp_path, sequence)
    loader = FastLoader(dataset, 2, sampler=[0, 1, 2, 1, 0])
    assert loader.plan().startswith("Python path: the dataset's samples are "), loader.plan()
    try:
        wanted = list(DataLoader(dataset, 2, sampler=[0, 1, 2, 1, 0]))
    except Exception as error:
        with pytest.raises(type(error), match=re.escape(str(error).splitlines()[-1])):
            list(loader)
    else:
        same(list(loader), wanted)


@pytest.mark.parametrize(
    ("sequence", "change"),
    [
        (
            lambda samples: np.array(samples, dtype=object),
            lambda samples: samples.__setitem__((0, 1), 8),
        ),
        (
            lambda samples: [[*each] for each in samples],
            lambda samples: samples[0].__setitem__(1, 8),
        ),
        (
            lambda samples: [np.array(each, dtype=object) for each in samples],
            lambda samples: samples[0].__setitem__(1, 8),
        ),
        (tuple, lambda samples: None),
    ],
)
def test_samples_that_are_read_again_once_they_change(tmp_path, sequence, change):
    """An array is what people take against the copies of lists in worker processes."""
    dataset = folder_with(tmp_path, sequence)
    loader = FastLoader(dataset, 2)
    for _epoch in range(2):
        assert loader.plan().startswith("native images: ")
        same(list(loader), list(DataLoader(dataset, 2)))
    change(dataset.samples)
    same(list(loader), list(DataLoader(dataset, 2)))


def test_an_array_of_samples_is_read_once(tmp_path):
    dataset = folder_with(tmp_path, lambda samples: np.array(samples, dtype=object))
    first, second = (recognize_images(FastLoader(dataset, 2)) for _ in range(2))
    assert first.same_files(second)


class OneMore(list):
    def __getitem__(self, index):
        return super().__getitem__(index) + 1


class Deque(collections.deque):
    """Which Python finds by place, and of which no source says so."""


@pytest.mark.parametrize("indices", [OneMore([0, 1]), Deque([2, 0]), np.ma.masked_array([1, 2])])
def test_indices_of_a_subset_in_a_sequence_of_ones_own(tmp_path, indices):
    known = folder(plain_folder(tmp_path / "plain", 3))
    for dataset in (known, TensorDataset(torch.arange(9))):
        selection = Subset(dataset, indices)
        kind = type(indices)
        said = f"the indices of a Subset are a {kind.__module__}.{kind.__qualname__}"
        assert said in plan(selection), plan(selection)
        same(list(FastLoader(selection, 2)), list(DataLoader(selection, 2)))


def test_indices_of_a_series_are_found_by_their_labels(tmp_path):
    pandas = pytest.importorskip("pandas")
    known = folder(plain_folder(tmp_path / "plain", 3))
    picked = pandas.Series([2, 0, 1], index=[1, 2, 0])
    for dataset in (known, TensorDataset(torch.arange(9))):
        assert "the indices of a Subset are a pandas." in plan(Subset(dataset, picked))
        same(
            list(FastLoader(Subset(dataset, picked), 2)),
            list(DataLoader(Subset(dataset, picked), 2)),
        )
        for index in (picked.index, pandas.RangeIndex(1, 3)):  # which is found by place
            selection = Subset(dataset, index)
            assert "Python path" not in plan(selection), plan(selection)
            same(list(FastLoader(selection, 2)), list(DataLoader(selection, 2)))


@pytest.mark.parametrize(
    "indices", [(2, 0), range(1, 3), array.array("q", [1, 0]), np.array([2, 1])]
)
def test_indices_of_a_subset_that_are_found_by_place(tmp_path, indices):
    known = folder(plain_folder(tmp_path / "plain", 3))
    for dataset in (known, TensorDataset(torch.arange(9))):
        selection = Subset(dataset, indices)
        assert "Python path" not in plan(selection), plan(selection)
        same(list(FastLoader(selection, 2)), list(DataLoader(selection, 2)))


@pytest.mark.parametrize(
    ("home", "name"),
    [
        (("torchvision.datasets.cifar", "CIFAR10"), "targets"),
        (("torchvision.datasets.mnist", "MNIST"), "targets"),
        (("torchvision.datasets.svhn", "SVHN"), "labels"),
        (("torchvision.datasets.caltech", "Caltech101"), "y"),
        (("fastloader.datasets.files", "ImageFolder"), "targets"),
    ],
    ids=str,
)
def test_targets_in_a_list_of_ones_own(home, name, dataset):
    setattr(dataset, name, OneMore(int(each) // 2 for each in getattr(dataset, name)))
    assert f"are a {__name__}.OneMore" in plan(dataset), plan(dataset)
    same(list(FastLoader(dataset, 2)), list(DataLoader(dataset, 2)))


def test_what_gives_rows_of_hugging_face_to_a_transform(monkeypatch, tmp_path):
    pytest.importorskip("datasets")
    data = MAKERS["datasets.arrow_dataset", "Dataset"](plain_folder(tmp_path / "plain", 3))
    assert plan(data).startswith("native images: ")
    formatter = identity.found("datasets.formatting.formatting", "CustomFormatter")
    for name in ("format_batch", "format_row"):
        before = getattr(formatter, name)
        with monkeypatch.context() as patches:
            patches.setattr(
                formatter,
                name,
                lambda self, table, before=before: {**before(self, table), "label": [7]},
            )
            assert f"CustomFormatter.{name} was replaced by {__name__}." in plan(data), plan(data)
    assert plan(data).startswith("native images: ")
