"""``ImageFolder`` has torchvision's semantics without an object per sample."""

import os
import pickle
import tracemalloc

import numpy as np
import pytest
import torch
from pictures import import_torchvision, plain_folder
from PIL import Image
from torch.utils.data import DataLoader

from fastloader import FastLoader
from fastloader import transforms as T
from fastloader.datasets import ImageFolder, files

FILES = [
    "b/x.jpg",
    "b/deep/er/2.JPEG",
    "b/deep/1.png",
    "b/deeper/1.ppm",
    "b/Zebra.jpg",
    "b/no.txt",
    "a/10.jpg",
    "a/9.jpg",
    "a/.hidden.jpg",
    "a/jpg",
    "a/ä é.jpg",
    "a/日本.webp",
    "a-b/1.tif",
    "a-b/1.TIFF",
    "A/1.bmp",
    "A/1.pgm",
    "A/1.gif",
    "Ünïcode/1.jpg",
    "loose.jpg",
]


@pytest.fixture
def tree(tmp_path):
    for name in FILES:
        path = tmp_path / "tree" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (3, 2), (len(name), 7, 9)).save(path, "PNG")
    return tmp_path / "tree"


@pytest.fixture
def theirs():
    return import_torchvision().datasets.ImageFolder


def same_as(theirs, root, **options):
    ours, reference = ImageFolder(root, **options), theirs(root, **options)
    assert ours.classes == reference.classes
    assert ours.class_to_idx == reference.class_to_idx
    assert list(ours.samples) == reference.samples and list(ours.imgs) == reference.imgs
    assert ours.samples == reference.samples
    assert list(ours.targets) == reference.targets
    assert len(ours) == len(reference)
    for index in range(len(ours)):
        (image, target), (other, wanted) = ours[index], reference[index]
        assert (target, type(target), image.mode, image.size) == (
            wanted,
            int,
            other.mode,
            other.size,
        )
        assert np.array_equal(np.asarray(image), np.asarray(other))
    return ours


def test_what_it_finds(tree):
    folder = ImageFolder(tree)
    assert folder.classes == ["A", "a", "a-b", "b", "Ünïcode"]
    assert folder.class_to_idx == {name: i for i, name in enumerate(folder.classes)}
    found = [(os.path.relpath(path, tree), target) for path, target in folder.samples]
    assert found == [
        ("A/1.bmp", 0),
        ("A/1.pgm", 0),
        ("a/.hidden.jpg", 1),
        ("a/10.jpg", 1),
        ("a/9.jpg", 1),
        ("a/ä é.jpg", 1),
        ("a/日本.webp", 1),
        ("a-b/1.TIFF", 2),
        ("a-b/1.tif", 2),
        ("b/Zebra.jpg", 3),
        ("b/x.jpg", 3),
        ("b/deep/1.png", 3),
        ("b/deep/er/2.JPEG", 3),
        ("b/deeper/1.ppm", 3),
        ("Ünïcode/1.jpg", 4),
    ]
    assert folder.targets.tolist() == [target for _, target in found]
    assert repr(folder.imgs[3]) == repr(folder.samples[3])


def test_what_torchvision_finds(theirs, tree):
    same_as(theirs, str(tree))
    same_as(theirs, tree)
    same_as(theirs, str(tree) + "/")


def test_is_valid_file(theirs, tree):
    folder = same_as(theirs, str(tree), is_valid_file=lambda path: "1." in path, allow_empty=True)
    assert "a" in folder.classes
    assert any(path.endswith("1.gif") for path, _ in folder.samples)


def test_extensions(theirs, tree):
    same_as(theirs, tree)
    assert ImageFolder(tree).extensions == theirs(tree).extensions
    taken = {"is_valid_file": lambda path: path.endswith(".jpg"), "allow_empty": True}
    assert ImageFolder(tree, **taken).extensions is theirs(tree, **taken).extensions is None


def test_torchvisions_loader_is_not_taken_for_something_else(tree):
    """Its place is the fourth, where it would pass for is_valid_file and accept every file."""
    with pytest.raises(TypeError):
        ImageFolder(tree, None, None, Image.open)


def test_links_are_followed(theirs, tree, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    Image.new("RGB", (4, 4)).save(outside / "far.png")
    (tree / "b" / "link").symlink_to(outside)
    (tree / "linked class").symlink_to(outside)
    (tree / "a" / "link.jpg").symlink_to(outside / "far.png")
    (tree / "a" / "dangling.jpg").symlink_to(outside / "nothing")
    ours, reference = ImageFolder(str(tree)), theirs(str(tree))
    assert ours.samples == reference.samples and ours.classes == reference.classes


def test_relative_and_home(theirs, tree, monkeypatch):
    monkeypatch.chdir(tree.parent)
    same_as(theirs, "tree")
    monkeypatch.setenv("HOME", str(tree.parent))
    same_as(theirs, "~/tree")


def test_names_that_are_not_text(tmp_path, theirs):
    folder = os.fsencode(tmp_path) + b"/a"
    os.mkdir(folder)
    with open(folder + b"/\xff\xfe.jpg", "wb") as file:
        Image.new("RGB", (16, 16)).save(file, "JPEG")
    same_as(theirs, str(tmp_path))
    images, labels = next(iter(FastLoader(ImageFolder(tmp_path, T.CenterCrop(16)))))
    assert images.sum() == 0 and labels.tolist() == [0]


@pytest.mark.parametrize("options", [{}, {"is_valid_file": lambda path: path.endswith(".png")}])
def test_empty_classes(theirs, tree, options):
    for name in ("empty", "also empty"):
        (tree / name).mkdir()
    with pytest.raises(FileNotFoundError) as caught:
        theirs(str(tree), **options)
    with pytest.raises(FileNotFoundError) as ours:
        ImageFolder(str(tree), **options)
    assert str(ours.value) == str(caught.value)
    same_as(theirs, str(tree), allow_empty=True, **options)


def test_no_classes_or_no_folder(theirs, tmp_path):
    (tmp_path / "file").write_text("")
    for root in (tmp_path, tmp_path / "nowhere", tmp_path / "file"):
        with pytest.raises(OSError) as caught:
            theirs(str(root))
        with pytest.raises(type(caught.value)) as ours:
            ImageFolder(str(root))
        assert str(ours.value) == str(caught.value)


def test_transforms_are_applied(tree):
    folder = ImageFolder(tree, transform=lambda image: image.size, target_transform=lambda t: -t)
    assert folder[4] == ((3, 2), -1)


# --- as a sequence ------------------------------------------------------------------------------


def test_indices(tree):
    folder = ImageFolder(tree)
    count = len(folder)
    assert folder[-1][1] == 4 and folder.samples[-1] == folder.samples[count - 1]
    assert folder[np.int64(3)][1] == 1 and folder[torch.tensor(3)][1] == 1
    for bad in (count, -count - 1, 10**12):
        for where in (folder, folder.samples, folder.imgs):
            with pytest.raises(IndexError):
                where[bad]
    for bad in ("0", 1.5, None):
        with pytest.raises(TypeError):
            folder[bad]


def test_samples_are_a_list_to_the_eye(tree):
    folder = ImageFolder(tree)
    plain = list(folder.samples)
    assert folder.samples[2:9:3] == plain[2:9:3] and folder.samples[::-1] == plain[::-1]
    assert folder.samples[5:] == plain[5:] and folder.samples[90:] == []
    assert plain[3] in folder.samples and ("nowhere", 0) not in folder.samples
    assert folder.samples.index(plain[3]) == 3 and folder.samples.count(plain[3]) == 1
    assert list(reversed(folder.samples)) == plain[::-1]
    assert folder.samples == plain and folder.samples != plain[1:]
    assert (folder.samples == 3) is False


def test_iterates_to_its_end(tree):
    assert [target for _, target in ImageFolder(tree)] == ImageFolder(tree).targets.tolist()


def test_pickle(tree):
    folder = ImageFolder(tree, T.Compose([T.RandomResizedCrop(7), T.RandomHorizontalFlip()]))
    again = pickle.loads(pickle.dumps(folder))
    assert again.samples == folder.samples and again.classes == folder.classes
    assert again[3][0].shape == (3, 7, 7)
    assert pickle.loads(pickle.dumps(folder.samples)) == folder.samples


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_in_torchs_workers(tmp_path, method):
    folder = ImageFolder(plain_folder(tmp_path), T.Resize((6, 5)))
    loader = DataLoader(folder, 5, num_workers=1, multiprocessing_context=method)
    assert [labels.tolist() for _, labels in loader] == [[0] * 4 + [1], [1] * 3 + [2] * 2, [2, 2]]


def test_all_empty(tmp_path):
    (tmp_path / "a").mkdir()
    folder = ImageFolder(tmp_path, T.CenterCrop(4), allow_empty=True)
    assert len(folder) == 0 and list(folder.samples) == [] and folder.targets.tolist() == []
    assert list(FastLoader(folder, 2)) == list(DataLoader(folder, 2)) == []


# --- memory -------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [200_000])
def test_memory_per_file(tmp_path, monkeypatch, count):
    """Under 150 bytes a file beyond its path, at the peak too, and no object per sample."""
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    names = [f"{i:08}.jpg" for i in range(count // 2)]
    monkeypatch.setattr(
        files, "_files", lambda folder: (os.path.join(folder, name) for name in names)
    )
    path_bytes = len(os.path.join(str(tmp_path), "a", names[0]))
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        folder = ImageFolder(tmp_path, T.CenterCrop(4))
        after, peak = tracemalloc.get_traced_memory()
        snapshot = len(pickle.dumps(folder))
    finally:
        tracemalloc.stop()
    assert len(folder) == count
    assert (after - before) / count < path_bytes + 20
    assert (peak - before) / count < 2.5 * path_bytes + 150
    assert snapshot / count < path_bytes + 20
    assert folder.samples[count - 1] == (str(tmp_path / "b" / names[-1]), 1)


def test_memory_of_a_real_folder(tmp_path):
    count = 4000
    folder = tmp_path / "a"
    folder.mkdir()
    for i in range(count):
        (folder / f"{i:06}.jpg").touch()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        dataset = ImageFolder(tmp_path)
        used = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert used / count < len(dataset.samples[0][0]) + 150


def test_samples_may_be_assigned(tree):
    folder = ImageFolder(tree, T.CenterCrop(2))
    loader = FastLoader(folder, 2)
    before = list(folder.samples)
    assert sum(len(labels) for _, labels in loader) == len(before)
    folder.samples = [(path, 7) for path, _ in before[3:6]]
    assert folder.samples == folder.imgs == [(path, 7) for path, _ in before[3:6]]
    assert (len(folder), len(loader)) == (3, 2)
    assert [labels.tolist() for _, labels in loader] == [[7, 7], [7]]
    assert torch.equal(next(iter(loader))[0][0], folder[0][0])
    folder.imgs = before[:1]
    assert folder.samples == before[:1]


@pytest.mark.parametrize("target_transform", [None, abs])
def test_it_is_shown_as_torchvisions(tree, theirs, target_transform):
    chain = import_torchvision().transforms.Compose([T.CenterCrop(2), T.PILToTensor()])
    for transform in (None, chain):
        made = [
            kind(tree, transform, target_transform=target_transform)
            for kind in (ImageFolder, theirs)
        ]
        assert repr(made[0]) == repr(made[1])


def test_links_in_a_circle_are_named(tree, theirs):
    """The files are listed as torchvision lists them."""
    (tree / "a" / "again").symlink_to("..")
    (tree / "b" / "other").symlink_to("../a-b")  # this one ends
    with pytest.warns(RuntimeWarning, match="again is a link to a folder that it lies in") as heard:
        same_as(theirs, tree)
    assert sum("link" in str(each.message) for each in heard) == 1
