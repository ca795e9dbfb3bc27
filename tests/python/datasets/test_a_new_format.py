"""A format of one's own is one class: shards of an index in JSON and a file of pictures, as others keep
them. It is native if it says where its pictures lie, and pure Python else."""

import io
import json
import pickle
import sys
import types

import numpy as np
import pytest
import torch
from pictures import open_as_torchvision, plain_folder, resized_as_torchvision, upstream_pillow
from PIL import Image
from torch.utils.data import ConcatDataset, DataLoader, Subset

from fastloader import FastLoader
from fastloader import transforms as T
from fastloader._core.machine import extension
from fastloader.cli.__main__ import main
from fastloader.datasets import FileSpans, ImageFolder, LMDBDataset, Pictures
from fastloader.datasets.picture_source import PictureSource
from fastloader.errors import Error
from support import same

COUNT = 14
CHAIN = T.Compose([T.Resize((12, 10)), T.PILToTensor()])
needs_native = pytest.mark.skipif(extension.load() is None, reason="needs the native module")


class Shards(Pictures, called="JSON shards"):
    """``<shard>.json`` has [begin, size, label] of each picture in ``<shard>.bin``."""

    def __init__(self, folder, transform=None, target_transform=None):
        self.transform, self.target_transform = transform, target_transform
        indices = [json.loads(each.read_text()) for each in sorted(folder.glob("*.json"))]
        offsets, sizes, labels = np.concatenate(indices).T
        self.targets = labels
        files = sorted(folder.glob("*.bin"))
        self.spans = FileSpans.of(files, list(map(len, indices)), offsets, sizes)


class Fetched(Pictures, called="fetched pictures"):
    """Pictures that lie nowhere, such as those of a server."""

    def __init__(self, shards, transform=None):
        self.transform, self.targets = transform, shards.targets
        self.files = [shards.image_bytes(index) for index in range(len(shards))]

    def __len__(self):
        return len(self.files)

    def image_bytes(self, index):
        return self.files[index]


@pytest.fixture
def paths(tmp_path):
    return sorted(plain_folder(tmp_path / "plain", COUNT).glob("*/*.jpg"))


@pytest.fixture
def folder(tmp_path, paths):
    made = tmp_path / "shards"
    made.mkdir()
    for shard, some in enumerate((paths[:5], paths[5:])):
        index, content = [], b""
        for path in some:
            data = path.read_bytes()
            index.append([len(content), len(data), int(path.parent.name[1:])])
            content += data
        (made / f"{shard}.json").write_text(json.dumps(index))
        (made / f"{shard}.bin").write_bytes(content)
    return made


def wanted(paths):
    pictures = [resized_as_torchvision(open_as_torchvision(path), (12, 10)) for path in paths]
    return [torch.from_numpy(np.array(each)).permute(2, 0, 1) for each in pictures]


@needs_native
@upstream_pillow
@pytest.mark.parametrize("way", [{}, {"num_workers": 2}])
def test_places_are_native(monkeypatch, folder, paths, way):
    dataset = Shards(folder, CHAIN)
    loader = FastLoader(dataset, 4, **way)
    package = __name__.partition(".")[0]
    assert loader.plan().startswith(f"native images: {package} Shards, {COUNT} samples, "), (
        loader.plan()
    )
    assert dataset.places()[0].all()  # also of the picture with which a file begins
    native = list(loader)
    assert torch.equal(
        torch.cat([images for images, _labels in native]), torch.stack(wanted(paths))
    )
    same(native, list(DataLoader(dataset, 4)))
    assert torch.cat([labels for _images, labels in native]).tolist() == dataset.targets.tolist()
    monkeypatch.setenv("FASTLOADER_NATIVE", "0")
    loader = FastLoader(dataset, 4, **way)
    assert loader.plan().startswith("Python path: the native module is not in use: "), loader.plan()
    same(list(loader), native)


@needs_native
def test_draws_are_those_of_a_folder_and_of_the_python_path(monkeypatch, folder, paths):
    chain = T.Compose([T.RandomResizedCrop((12, 10)), T.RandomHorizontalFlip(), T.PILToTensor()])

    def run(dataset):
        torch.manual_seed(3)
        return [each for _epoch in range(2) for each in FastLoader(dataset, 4, shuffle=True)]

    native = run(Shards(folder, chain))
    same(native, run(ImageFolder(paths[0].parent.parent, chain)))
    monkeypatch.setenv("FASTLOADER_NATIVE", "0")
    same(run(Shards(folder, chain)), native)


@needs_native
def test_what_every_dataset_has(tmp_path, folder):
    dataset = Shards(folder, CHAIN)
    whole = list(FastLoader(dataset, 4))
    same(list(FastLoader(pickle.loads(pickle.dumps(dataset)), 4)), whole)
    both = ConcatDataset([dataset, Subset(Shards(folder, CHAIN), [13, 5, 0])])
    assert FastLoader(both, 4).plan().startswith("native images: ConcatDataset of ")
    same(list(FastLoader(both, 4)), list(DataLoader(both, 4)))
    loader = FastLoader(dataset, 4)
    next(iter(loader))
    state = loader.state_dict()
    loader = FastLoader(dataset, 4)
    loader.load_state_dict(state)
    same(list(loader), whole[1:])
    assert repr(Shards(folder)) == f"Dataset Shards\n    Number of datapoints: {COUNT}"
    mixed = ConcatDataset([dataset, ImageFolder(tmp_path / "plain", CHAIN)])
    assert "a ConcatDataset holds folders and JSON shards" in FastLoader(mixed, 4).plan()
    pytest.importorskip("matplotlib")
    assert loader.show_batch() is not None


@pytest.mark.parametrize("native", ["1", "0"])
def test_what_is_set_anew_between_epochs(monkeypatch, tmp_path, folder, native):
    monkeypatch.setenv("FASTLOADER_NATIVE", native)
    dataset = Shards(folder, CHAIN)
    both = FastLoader(ConcatDataset([dataset, Shards(folder, CHAIN)]), 4)
    loaders = FastLoader(dataset, 4), both

    def check():
        for loader in loaders:
            pictures = torch.cat([images for images, _labels in loader])[:COUNT]
            assert torch.equal(pictures, torch.stack([picture for picture, _label in dataset]))

    check()
    out, exif = io.BytesIO(), Image.Exif()
    exif[0x0112] = 6
    Image.open(io.BytesIO(dataset.image_bytes(3))).save(out, "JPEG", exif=exif)
    (tmp_path / "turned").write_bytes(out.getvalue())  # which stands in the place of every picture
    sizes = [len(out.getvalue())] * COUNT
    for part in both.dataset.datasets:
        part.spans = FileSpans.of([tmp_path / "turned"], [COUNT], [0] * COUNT, sizes)
    check()
    flat = dataset[0][0]
    for part in both.dataset.datasets:
        part.upright = True
    assert not torch.equal(dataset[0][0], flat)
    check()


@needs_native
def test_a_length_that_is_not_that_of_the_spans(folder):
    class Some(Shards, called="some of the shards"):
        def __init__(self, count):
            super().__init__(folder, CHAIN)
            self.count, self.targets = count, np.arange(count)

        def __len__(self):
            return self.count

    both = ConcatDataset([Some(6), Shards(folder, CHAIN)])
    loader = FastLoader(both, 4)
    assert loader.plan().startswith("native images: ConcatDataset of "), loader.plan()
    same(list(loader), list(DataLoader(both, 4)))
    plan = FastLoader(Some(COUNT + 1), 4).plan()
    assert f"the dataset has {COUNT + 1} samples, and its spans have {COUNT}" in plan, plan


def test_packing(tmp_path, monkeypatch, folder, paths):
    pytest.importorskip("lmdb")
    module = types.ModuleType("my_shards")
    module.dataset = Shards(folder)
    monkeypatch.setitem(sys.modules, "my_shards", module)
    assert main(["pack", "my_shards:dataset", str(tmp_path / "x.lmdb")]) == 0
    packed = LMDBDataset(tmp_path / "x.lmdb")
    assert [packed.image_bytes(index) for index in range(COUNT)] == [p.read_bytes() for p in paths]
    assert packed.name(6) == f"sample 1 in {folder}/1.bin"


@pytest.mark.parametrize("native", ["1", "0"])
def test_errors_name_the_sample(monkeypatch, folder, native):
    monkeypatch.setenv("FASTLOADER_NATIVE", native)
    dataset = Shards(folder, CHAIN)
    begin, size = (int(each[6]) for each in (dataset.spans.offsets, dataset.spans.sizes))
    with open(folder / "1.bin", "r+b") as file:
        file.seek(begin)
        file.write(bytes(size))
    dataset = Shards(folder, CHAIN)
    name = f"sample 1 in {folder}/1.bin"
    for broken in (lambda: dataset[6], lambda: list(FastLoader(dataset, 4))):
        with pytest.raises((OSError, Error), match=name):
            broken()
    if native == "1" and extension.load() is not None:
        loader = FastLoader(dataset, 4, on_error="skip")
        assert sum(len(labels) for _images, labels in loader) == COUNT - 1
    (folder / "0.bin").write_bytes(b"x" * 9000)
    with pytest.raises(ValueError, match=r"0\.bin was written over or cut off since"):
        dataset[0]


def test_spans_that_are_not_in_their_files(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).write_bytes(bytes(100))
    for offset, size in ((90, 11), (2**64 - 1, 2), (101, 0), (1, 2**64 - 1)):
        with pytest.raises(
            ValueError, match=f"b has 100 bytes, and its sample 1 would be {size} bytes"
        ):
            FileSpans.of(
                [tmp_path / "a", tmp_path / "b"],
                [3, 2],
                np.array([0, 1, 2, 1, offset], np.uint64),
                [9, 9, 9, 1, size],
            )
    with pytest.raises(ValueError, match="1 files with 2 samples in 1 counts: there are 1 offsets"):
        FileSpans.of([tmp_path / "a"], [2], [1], [1])
    # Both files would have sample 0: its address would be the sum of two.
    with pytest.raises(ValueError, match="b would have -1 samples"):
        FileSpans.of([tmp_path / name for name in "aba"], [1, -1, 1], [1], [1])
    with pytest.raises(TypeError, match="float"):
        FileSpans.of([tmp_path / "a"], [1.5], [1], [1])
    with pytest.raises(NotImplementedError, match=r"Nothing has neither spans nor __len__\(\)"):
        len(type("Nothing", (Pictures,), {})())


@needs_native
def test_what_is_changed_is_pythons(monkeypatch, folder):
    def plan(kind):
        return FastLoader(kind(folder, CHAIN), 4).plan()

    class Named(Shards):
        title = "mine"

        def name(self, index):
            return "mine"

    assert "Named has a name of its own" in plan(Named), plan(Named)
    del Named.name
    assert plan(Named).startswith("native images: "), plan(Named)

    class Numbered(Shards, called="numbered"):
        def __getitem__(self, index):
            return super().__getitem__(index)[0], index

    assert "Numbered has a __getitem__ of its own" in plan(Numbered), plan(Numbered)
    dataset = Numbered(folder, CHAIN)
    same(list(FastLoader(dataset, 4)), list(DataLoader(dataset, 4)))
    assert next(iter(FastLoader(dataset, 4)))[1].tolist() == [0, 1, 2, 3]

    class Unknown(Pictures):
        __init__ = Shards.__init__

    assert f"the dataset is a {__name__}." in plan(Unknown)
    monkeypatch.setattr(Pictures, "_label", lambda self, index: 7)
    assert f"Pictures._label was replaced by {__name__}." in plan(Shards), plan(Shards)


@needs_native
def test_a_class_of_a_notebook(monkeypatch, folder):
    """Whose module has no file."""
    cell = types.ModuleType("cell")
    monkeypatch.setitem(sys.modules, "cell", cell)
    source = """
class Mine(Pictures, called="mine"):
    def __init__(self, shards):
        self.transform, self.targets, self.spans = shards.transform, shards.targets, shards.spans
    def name(self, index):
        return f"number {index}"
"""
    vars(cell).update(Pictures=Pictures)
    exec(compile(source, "<cell 1>", "exec"), vars(cell))
    dataset = cell.Mine(Shards(folder, CHAIN))
    assert FastLoader(dataset, 4).plan().startswith("native images: cell Mine, ")
    same(list(FastLoader(dataset, 4)), list(DataLoader(dataset, 4)))
    monkeypatch.setattr(cell.Mine, "name", lambda self, index: "other")
    assert "Mine.name was replaced by" in FastLoader(dataset, 4).plan()


@pytest.mark.parametrize("way", [{}, {"num_workers": 2}])
def test_pictures_from_anywhere(folder, paths, way):
    """Batches are of `EncodedImage`s, which the loader's threads decode."""
    dataset = Fetched(Shards(folder), CHAIN)
    loader = FastLoader(dataset, 4, **way)
    assert f"Python path: the dataset is a {__name__}.Fetched" in loader.plan()
    same(list(loader), list(DataLoader(dataset, 4)))
    same(dataset[3], (wanted(paths)[3], int(dataset.targets[3])))
    dataset.files[2] = b"no picture"
    with pytest.raises((OSError, Error), match="sample 2"):
        list(FastLoader(dataset, 4, **way))


class ByTheBatch(Fetched, called="pictures by the batch"):
    def sources(self, indices):
        return [PictureSource(self.files[index], self.name(index)) for index in indices]


class ByPath(Fetched, called="pictures by their paths"):
    def sources(self, indices):
        return [PictureSource(self.paths[index]) for index in indices]


@pytest.mark.parametrize("native", ["1", "0"])
def test_pictures_that_are_turned_by_any_way(monkeypatch, tmp_path, folder, paths, native):
    """Also by one that reads the pictures of a batch by itself, and those of files of their own."""
    monkeypatch.setenv("FASTLOADER_NATIVE", native)
    exif = Image.Exif()
    exif[0x0112] = 6
    for path in paths:
        Image.open(path).save(path, "JPEG", exif=exif)
    turned = [
        Image.open(path).convert("RGB").transpose(Image.Transpose.ROTATE_270) for path in paths
    ]
    wanted = torch.stack([CHAIN(each) for each in turned])
    for kind in (Fetched, ByTheBatch, ByPath):
        dataset = kind(Shards(folder), CHAIN)
        dataset.files, dataset.paths = [path.read_bytes() for path in paths], paths
        dataset.upright = True
        check_turned(dataset, wanted)
        dataset.transform = None
        for picture, its in zip(dataset.__getitems__(list(range(COUNT))), turned, strict=True):
            assert picture[0].tobytes() == its.tobytes()
    packed = tmp_path / "packed.lmdb"
    assert main(["pack", str(tmp_path / "plain"), str(packed)]) == 0
    for dataset in (ImageFolder(tmp_path / "plain", CHAIN), LMDBDataset(packed, CHAIN)):
        dataset.upright = True
        check_turned(dataset, wanted)


def check_turned(dataset, wanted):
    assert torch.equal(torch.stack([dataset[index][0] for index in range(COUNT)]), wanted)
    for way in ({}, {"native": False}):
        loaded = torch.cat([images for images, _labels in FastLoader(dataset, 4, **way)])
        assert torch.equal(loaded, wanted), (dataset, way)


def test_pictures_that_are_turned(folder):
    class Turned(Fetched, called="turned pictures"):
        upright = True

    dataset = Turned(Shards(folder), CHAIN)
    out, exif = io.BytesIO(), Image.Exif()
    exif[0x0112] = 6
    Image.open(io.BytesIO(dataset.files[0])).save(out, "JPEG", exif=exif)
    dataset.files[0] = out.getvalue()
    first = next(iter(FastLoader(dataset, 2)))[0]
    same(first, torch.stack([dataset[0][0], dataset[1][0]]))
    upright = (
        Image.open(io.BytesIO(dataset.files[0]))
        .convert("RGB")
        .transpose(Image.Transpose.ROTATE_270)
    )
    assert dataset.open_rgb(0).tobytes() == upright.tobytes()
