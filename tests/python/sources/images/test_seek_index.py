"""Pictures of folders that have seek indices: the same pixels, whatever is wrong with the indices."""

import os
import pickle
import random
import shutil
import struct
import warnings

import pytest
import torch
from image_source import image_source
from indexed_pictures import index, large_folder, needs_native, needs_own_decoder, save_large
from pictures import import_torchvision
from torch.utils.data import ConcatDataset

from fastloader import FastLoader
from fastloader import transforms as T
from fastloader._core.machine import extension
from fastloader.datasets import ImageFolder

pytestmark = [needs_native, needs_own_decoder]

CROPS = T.Compose([T.RandomResizedCrop(96, scale=(0.03, 0.6)), T.RandomHorizontalFlip()])


@pytest.fixture
def root(tmp_path):
    root = large_folder(tmp_path / "photos", seed=random.randrange(1 << 16))
    assert index(root) == 0
    return root


def index_of(root):
    return root.with_name(root.name + ".fastloader-index")


def made(dataset, epochs=1, **options):
    """(pixels, counts of JPEGs, plan)"""
    options = {"num_workers": 2, **options}
    loader = FastLoader(dataset, 4, generator=torch.Generator().manual_seed(5), **options)
    batches = [images for _ in range(epochs) for images, _label in loader]
    return torch.cat(batches), loader.stats()["images"]["jpegs"], loader.plan()


def without(root, epochs=1, **options):
    pixels, jpegs, plan = made(ImageFolder(root, CROPS, index=None), epochs, **options)
    assert jpegs["indexed"] == 0 and "seek index" not in plan
    return pixels


@pytest.mark.parametrize("device", [None, "cpu"])
def test_random_crops_are_the_same(root, device):
    pixels, jpegs, plan = made(ImageFolder(root, CROPS), epochs=4, device=device)
    assert torch.equal(pixels, without(root, epochs=4, device=device))
    assert jpegs["indexed"] >= 12 and jpegs["unfit_index"] == 0
    assert "decode threads, seek index (6 pictures); random crop" in plan


def test_an_index_elsewhere(root, tmp_path):
    path = tmp_path / "elsewhere"
    os.rename(index_of(root), path)
    os.chmod(path, 0o444)
    assert made(ImageFolder(root, CROPS))[1]["indexed"] == 0
    pixels, jpegs, _plan = made(ImageFolder(root, CROPS, index=path))
    assert jpegs["indexed"] > 0 and torch.equal(pixels, without(root))


def test_pictures_that_were_renamed_copied_and_replaced(root):
    os.rename(root / "c0" / "0.jpg", root / "c0" / "another name.jpg")
    shutil.copy(root / "c0" / "2.jpg", root / "c1" / "copy.jpg")
    save_large(root / "c1" / "1.jpg", 99)
    save_large(root / "c1" / "new.jpg", 98)
    options = {"epochs": 3}
    if not extension.lacks_libjpeg():
        kept = (root / "c1" / "3.jpg").read_bytes()
        (root / "c1" / "3.jpg").write_bytes(kept[: len(kept) // 2])
        options["truncated"] = "pad"
    pixels, jpegs, _plan = made(ImageFolder(root, CROPS), **options)
    assert torch.equal(pixels, without(root, **options))
    assert jpegs["indexed"] > 0 and jpegs["unfit_index"] == 0


def cut_off(data):
    return data[:-1]


def empty(data):
    return b""


def version_2(data):
    return data[:8] + struct.pack("<I", 2) + data[12:]


def other_bytes(data):
    return random.Random(3).randbytes(len(data))


def wrong_count(data):
    return data[:16] + struct.pack("<Q", 1 << 40) + data[24:]


@pytest.mark.parametrize("damage", [cut_off, empty, version_2, other_bytes, wrong_count])
def test_a_file_that_cannot_be_used(root, damage):
    path = index_of(root)
    path.write_bytes(damage(path.read_bytes()))
    with pytest.warns(RuntimeWarning) as warned:
        dataset = ImageFolder(root, CROPS)
    assert len(warned) == 1 and warned[0].filename == __file__
    assert str(path) in str(warned[0].message)
    assert str(warned[0].message).count("run `fastloader index` again") == 1
    pixels, jpegs, plan = made(dataset)
    assert torch.equal(pixels, without(root)) and jpegs["indexed"] == 0 and "seek" not in plan
    with pytest.raises(ValueError, match="run `fastloader index` again"):
        ImageFolder(root, CROPS, index=path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ImageFolder(root, CROPS, index=None)


def test_a_file_that_is_missing(root):
    os.unlink(index_of(root))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert ImageFolder(root, CROPS).seek_file is None
    with pytest.raises(FileNotFoundError, match="fastloader-index"):
        ImageFolder(root, CROPS, index=index_of(root))


def test_damage_within_the_indices_is_counted(root):
    path = index_of(root)
    data = bytearray(path.read_bytes())
    table = struct.unpack_from("<Q", data, 24)[0]
    for _hash, begin, size in struct.iter_unpack("<QQQ", bytes(data[table:])):
        data[begin + size // 2] ^= 0x10
    path.write_bytes(data)
    pixels, jpegs, _plan = made(ImageFolder(root, CROPS), epochs=2)
    assert torch.equal(pixels, without(root, epochs=2))
    assert jpegs["indexed"] == 0 and jpegs["unfit_index"] > 0


def test_concatenated_folders(root, tmp_path):
    other = large_folder(tmp_path / "others", count=4, seed=1 << 20)
    assert index(other) == 0

    def parts(**options):
        first = ImageFolder(root, CROPS, **options)
        return ConcatDataset([first, ImageFolder(other, CROPS, **options), first])

    pixels, jpegs, plan = made(parts(), epochs=3)
    assert torch.equal(pixels, made(parts(index=None), epochs=3)[0])
    assert "seek index (10 pictures)" in plan
    # Each part finds its own: this is more than the parts without the second, or without the first.
    assert jpegs["indexed"] > 3 * 12


def test_whole_decodes_use_none(root):
    pixels, jpegs, plan = made(ImageFolder(root, CROPS), decode="whole")
    assert torch.equal(pixels, without(root)) and jpegs["indexed"] == 0 and "seek" not in plan


def test_the_decoder_is_kept_and_another_index_makes_another(root):
    dataset = ImageFolder(root, CROPS)
    loader = FastLoader(dataset, 4, num_workers=1)
    decoders = []
    for seek_file in (dataset.seek_file, dataset.seek_file, None):
        dataset.seek_file = seek_file
        list(loader)
        decoders.append(image_source(loader).decoder)
    assert decoders[0] is decoders[1] is not decoders[2]


def mirrored(picture):
    """A step that nobody knows."""
    return picture.transpose(0)


def last_steps():
    return T.Compose([*CROPS.transforms, mirrored, T.PILToTensor()])


def test_a_native_beginning_on_the_loops_thread_has_the_indices(root, monkeypatch):
    native, given = extension.load(), []
    job = native.ImageJob

    def noted(**options):
        given.append(options["seek_indices"])
        return job(**options)

    monkeypatch.setattr(native, "ImageJob", noted)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        list(FastLoader(ImageFolder(root, last_steps()), 4))
    assert [len(each) for each in given] == [6]


@pytest.mark.parametrize("context", [None, "spawn"])
def test_a_native_beginning(root, context):
    options = {"num_workers": 0 if context is None else 1, "multiprocessing_context": context}
    loaders = [
        FastLoader(
            ImageFolder(root, last_steps(), index=path),
            4,
            generator=torch.Generator().manual_seed(5),
            **options,
        )
        for path in ("auto", None)
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        first, second = (torch.cat([images for images, _ in loader]) for loader in loaders)
    assert torch.equal(first, second)
    assert ["seek index (6 pictures)" in loader.plan() for loader in loaders] == [True, False]


def test_pickled(root):
    dataset = ImageFolder(root, CROPS)
    data = pickle.dumps(dataset)
    again = pickle.loads(data)
    assert again.seek_file.mapping is not dataset.seek_file.mapping
    pixels, jpegs, _plan = made(again)
    assert jpegs["indexed"] > 0 and torch.equal(pixels, without(root))
    os.unlink(index_of(root))
    with pytest.warns(RuntimeWarning, match="fastloader index"):
        late = pickle.loads(data)
    pixels, jpegs, plan = made(late)
    assert jpegs["indexed"] == 0 and "seek" not in plan and torch.equal(pixels, without(root))


@pytest.mark.parametrize("name", ["ImageFolder", "EuroSAT"])
def test_torchvisions_folders(root, tmp_path, name):
    given = root
    if name == "EuroSAT":  # which makes the folder of class folders of its root
        given, root = tmp_path, tmp_path / "eurosat" / "2750"
        root.parent.mkdir()
        os.rename(tmp_path / "photos", root)
        os.rename(index_of(tmp_path / "photos"), index_of(root))
    theirs = getattr(import_torchvision().datasets, name)
    pixels, jpegs, plan = made(theirs(str(given), T.Compose([*CROPS.transforms, T.PILToTensor()])))
    assert torch.equal(pixels, without(root))
    assert jpegs["indexed"] > 0 and "seek index (6 pictures)" in plan


def test_pure_python_ignores_it(root, monkeypatch):
    monkeypatch.setenv("FASTLOADER_NATIVE", "0")
    assert ImageFolder(root, CROPS, index=root / "nothing").seek_file is None
    assert ImageFolder(root, CROPS).seek_file is None
