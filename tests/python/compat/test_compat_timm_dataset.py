"""compat.timm's ImageDataset beside the installed timm's: which files, which classes, and its rule for
those that cannot be read."""

import gc
import io
import logging
import os
import pickle

import numpy as np
import pytest
import torch
from pictures import plain_folder
from PIL import Image

from fastloader.compat import timm as ours
from fastloader.compat.timm import dataset as readers


@pytest.fixture
def nested(tmp_path):
    """Folders at several depths, names that sort naturally, other files, and pictures in the root."""
    for name in (
        "b10/x10.jpg", "b10/x9.JPG", "b9/deep/Y.png", "b9/y.jpeg", "x1.png", "a/notes.txt",
        "a/c/deep/z.png", "B9/late.png", "a/w.webp",
    ):  # fmt: skip
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (4, 5), (len(name), 0, 0)).save(path, "PNG")
    return tmp_path


def maps(folder):
    (folder / "classes.txt").write_text("deep\nb9\nb10\n")
    (folder / "classes.pkl").write_bytes(pickle.dumps({"b9": 5, "deep": 2}))
    return ["", None, {"b10": 7, "": 1}, "classes.txt", str(folder / "classes.txt"), "classes.pkl"]


@pytest.mark.parametrize("which", range(6))
def test_files_and_classes(theirs, nested, which):
    class_map = maps(nested)[which]
    mine, their = (kind.ImageDataset(str(nested), class_map=class_map) for kind in (ours, theirs))
    assert mine.reader.samples == their.reader.samples and len(mine) == len(their) > 0
    assert mine.reader.class_to_idx == their.reader.class_to_idx
    for options in ({}, {"basename": True}, {"absolute": True}):
        assert mine.filenames(**options) == their.filenames(**options)
        assert mine.filename(0, **options) == their.filename(0, **options)


@pytest.mark.parametrize("input_key", [".webp", ".png;.webp"])
def test_other_extensions(theirs, nested, input_key):
    mine, their = (kind.ImageDataset(str(nested), input_key=input_key) for kind in (ours, theirs))
    assert mine.reader.samples == their.reader.samples


OPTIONS = {
    "plain": {},
    "grey": {"input_img_mode": "L"},
    "bytes": {"load_bytes": True},
    "raw": {"input_img_mode": ""},
    "transforms": {"transform": np.asarray, "target_transform": str},
    "features": {"additional_features": ["a"]},
}


@pytest.mark.parametrize("name", OPTIONS)
def test_samples(theirs, nested, name):
    mine, their = (kind.ImageDataset(str(nested), **OPTIONS[name]) for kind in (ours, theirs))
    for index in range(len(their)):
        (image, *rest), (their_image, *their_rest) = mine[index], their[index]
        assert type(image) is type(their_image) or name == "raw"
        assert rest == their_rest
        if name == "bytes":
            assert image == their_image
        else:
            assert np.array_equal(np.asarray(image), np.asarray(their_image))


class Reader:
    """A reader of one's own: no target, features behind it."""

    def __init__(self, bad=()):
        self.bad = bad
        self.asked = []

    def __len__(self):
        return 4

    def __getitem__(self, index):
        self.asked.append(index)
        if index in self.bad:
            raise OSError(f"no {index}")
        file = io.BytesIO()
        Image.new("RGB", (3, 2), (index, 0, 0)).save(file, "PNG")
        return file, None, index


def test_no_target_is_minus_one():
    assert ours.ImageDataset("", Reader(), target_transform=str)[2][1] == -1
    image, *rest = ours.ImageDataset("", Reader(), additional_features=["number"])[2]
    assert image.getpixel((0, 0)) == (2, 0, 0) and rest == [-1, 2]


@pytest.mark.parametrize("format", ["JPEG", "PNG"])
def test_undecoded_pictures_are_read_later(tmp_path, recwarn, format):
    path = tmp_path / "c" / "a.jpg"
    path.parent.mkdir()
    made = Image.effect_noise((20, 10), 50)
    made.save(path, format, quality=100)
    image, _target = ours.ImageDataset(str(tmp_path), input_img_mode="")[0]
    assert image.format == format and image.size == (20, 10)
    expected = np.asarray(Image.open(io.BytesIO(path.read_bytes())))
    assert np.array_equal(np.asarray(image), expected)
    del image
    gc.collect()
    # Another kind's file is open for as long as the picture, as with timm.
    assert format == "PNG" or not unclosed(recwarn, path)


def unclosed(heard, path):
    """The warnings of files below ``path``. What other tests have left may be collected here."""
    return [
        each
        for each in heard
        if each.category is ResourceWarning and str(path) in str(each.message)
    ]


def test_nothing_stays_open(nested, recwarn):
    dataset = ours.ImageDataset(str(nested))
    for index in range(len(dataset)):
        dataset[index]
    ours.ImageDataset(str(nested), load_bytes=True)[0]
    gc.collect()
    assert not unclosed(recwarn, nested)
    assert not [
        link for link in os.listdir("/proc/self/fd")
        if str(nested) in os.path.realpath(f"/proc/self/fd/{link}")
    ]  # fmt: skip


# --- files that cannot be read ------------------------------------------------------------------


def test_the_next_one_is_taken(caplog):
    reader = Reader(bad=(3, 0))
    dataset = ours.ImageDataset("", reader)
    assert dataset[3][0].getpixel((0, 0)) == (1, 0, 0)
    assert reader.asked == [3, 0, 1] and dataset.skipped == 2
    assert [record.message for record in caplog.records] == [
        "Skipped sample (index 3). no 3", "Skipped sample (index 0). no 0",
    ]  # fmt: skip


@pytest.mark.parametrize("tries", [None, 2])
def test_too_many_in_a_row(monkeypatch, tries):
    if tries is not None:
        monkeypatch.setenv("TIMM_DATASET_MAX_RETRIES", str(tries))
    reader = Reader(bad=range(4))
    dataset = ours.ImageDataset("", reader)
    with pytest.raises(RuntimeError, match=f"Failed to load {tries or 10} consecutive") as caught:
        dataset[1]
    assert len(reader.asked) == dataset.skipped == (tries or 10)
    assert isinstance(caught.value.__cause__, OSError)


def test_tries_are_checked(monkeypatch):
    monkeypatch.setenv("TIMM_DATASET_MAX_RETRIES", "-1")
    with pytest.raises(ValueError, match="TIMM_DATASET_MAX_RETRIES=-1"):
        ours.ImageDataset("", Reader())


def test_other_errors_are_not_retried(nested):
    def wrong(image):
        raise OSError("in the transform")

    with pytest.raises(OSError, match="in the transform"):
        ours.ImageDataset(str(nested), transform=wrong)[0]


@pytest.fixture
def damaged(tmp_path):
    """Ten pictures, of which 3, 4 and the last are not."""
    root = plain_folder(tmp_path / "pictures", 10, classes=1)
    for number in (3, 4, 9):
        (root / "c0" / f"{number:03}.jpg").write_bytes(b"no picture")
    return str(root)


def test_natively_too(theirs, damaged, caplog, way):
    """The same pictures and labels in their places, counted and logged."""
    options = {"num_workers": 0, "device": torch.device("cpu")}
    caplog.set_level(logging.WARNING, "fastloader")
    datasets = ours.ImageDataset(damaged), theirs.ImageDataset(damaged)
    for dataset in datasets:
        dataset.reader.samples = [
            (path, number) for number, (path, _class) in enumerate(dataset.reader.samples)
        ]
    mine = ours.create_loader(datasets[0], 24, 4, **options)
    their = theirs.create_loader(datasets[1], 24, 4, **options)
    for one, other in zip(mine, their, strict=True):
        torch.testing.assert_close(one[0], other[0], rtol=0, atol=2e-6)
        assert torch.equal(one[1], other[1])
    said = [record for record in caplog.records if record.name == "fastloader"]
    assert len([record for record in said if "kipped" in record.message]) == 4
    counted = mine.stats()["images"]["bad"] if way.name != "pure" else datasets[0].skipped
    assert counted == 4  # 3, then 4, then 4 again, then 9
    mine.close()


def test_natively_too_many_in_a_row(damaged, monkeypatch):
    monkeypatch.setenv("TIMM_DATASET_MAX_RETRIES", "2")
    loader = ours.create_loader(ours.ImageDataset(damaged), 24, 4, device="cpu")
    assert loader.loader.plan().startswith("native")
    batches = iter(loader)
    with pytest.raises(RuntimeError, match="Failed to load 2 consecutive samples"):
        next(batches)


# --- readers ------------------------------------------------------------------------------------


def test_root(tmp_path):
    with pytest.raises(FileNotFoundError, match="no such file or folder"):
        ours.ImageDataset(str(tmp_path / "absent"))
    with pytest.raises(RuntimeError, match="Found 0 images in subfolders"):
        ours.ImageDataset(str(tmp_path))


def test_class_maps_refused(nested):
    for class_map, kind, what in (
        ("absent.txt", FileNotFoundError, "absent.txt"),
        ("x1.png", ValueError, "a .txt or a .pkl file"),
    ):
        with pytest.raises(kind, match=what):
            ours.ImageDataset(str(nested), class_map=class_map)
    (nested / "list.pkl").write_bytes(pickle.dumps(["b9"]))
    with pytest.raises(ValueError, match="holds a list"):
        ours.ImageDataset(str(nested), class_map="list.pkl")
    (nested / "evil.pkl").write_bytes(pickle.dumps(os.getcwd))
    with pytest.raises(pickle.UnpicklingError, match=r"not posix\.getcwd"):
        ours.ImageDataset(str(nested), class_map="evil.pkl")


def test_natural_key():
    names = ["x10", "X9", "x1y", "x"]
    assert sorted(names, key=readers.natural_key) == ["x", "x1y", "X9", "x10"]


def test_tar_files_are_read_by_timm(theirs, nested, tmp_path_factory):
    import tarfile

    path = tmp_path_factory.mktemp("tar") / "pictures.tar"
    with tarfile.open(path, "w") as tar:
        tar.add(nested / "b10", "train/b10")
        tar.add(nested / "b9", "train/b9")
    mine, their = (kind.ImageDataset(str(path)) for kind in (ours, theirs))
    assert len(mine) == len(their) == 4
    assert [target for _image, target in mine] == [target for _image, target in their]
    loader = ours.create_loader(mine, 24, 4, num_workers=0, device="cpu")
    assert "reader is a timm.data.readers.reader_image_in_tar" in loader.loader.plan()
    assert sum(len(labels) for _images, labels in loader) == 4
