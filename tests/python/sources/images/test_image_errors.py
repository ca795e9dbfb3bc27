"""Pictures that cannot be read: Pillow's own exception with index and path, in the batch's place, and
the rest of the epoch as if nothing had been."""

import io
import os
import random
import struct
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from pictures import any_picture, needs_libjpeg, picture, plain_folder, redo, script
from PIL import Image, ImageFile, UnidentifiedImageError
from torch.utils.data import DataLoader

import fastloader
from fastloader import FastLoader
from fastloader import transforms as T
from fastloader._core.machine import extension
from fastloader._core.pictures.images import make_policy
from fastloader.datasets import ImageFolder
from support import HANG

pytestmark = pytest.mark.covering

COUNT, BATCH, BAD = 12, 3, 4  # sample 4 is the bad one, in the second of four batches
CHAIN = T.Resize((24, 20))


@pytest.fixture
def root(tmp_path):
    return str(plain_folder(tmp_path / "pictures", COUNT, classes=1))


def cut(path, share):
    data = Path(path).read_bytes()
    with open(path, "wb") as file:
        file.write(data[: int(len(data) * share)])


def replaced_by(data):
    def spoil(path):
        with open(path, "wb") as file:
            file.write(data)

    return spoil


def to_directory(path):
    os.remove(path)
    os.mkdir(path)


def to_dangling_link(path):
    os.remove(path)
    os.symlink("/nowhere/at all", path)


def to_png(path, share):
    buffer = io.BytesIO()
    picture(random.Random(1), 60, 50).save(buffer, "PNG")
    replaced_by(buffer.getvalue()[: int(len(buffer.getvalue()) * share)])(path)


def bomb(path):
    """A JPEG of 60000 x 60000 pixels, says its header."""
    buffer = io.BytesIO()
    picture(random.Random(1), 60, 50).save(buffer, "JPEG")
    data = bytearray(buffer.getvalue())
    at = data.index(b"\xff\xc0")
    struct.pack_into(">HH", data, at + 5, 60000, 60000)
    replaced_by(bytes(data))(path)


SPOILED = {
    "truncated": lambda path: cut(path, 0.6),
    "cut in the header": lambda path: cut(path, 0.1),
    "two bytes": replaced_by(b"\xff\xd8"),
    "zero bytes": replaced_by(b""),
    "garbage": replaced_by(bytes(random.Random(3).randbytes(3000))),
    "text": replaced_by(b"<html>404</html>"),
    "truncated png": lambda path: to_png(path, 0.6),
    "directory": to_directory,
    "deleted": os.remove,
    "dangling link": to_dangling_link,
    "bomb": bomb,
}


def pillows_error(path):
    try:
        with open(path, "rb") as file:
            Image.open(file).convert("RGB")
    except Exception as error:
        return error
    raise AssertionError("Pillow reads it")


def batches_of(iterator):
    """[labels or exception] to the end."""
    seen = []
    for _ in range(100):
        try:
            images, _labels = next(iterator)
            seen.append(images.clone())
        except StopIteration:
            return seen
        except Exception as error:
            seen.append(error)
    raise AssertionError("it does not end")


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", SPOILED)
def test_pillows_exception_in_the_batchs_place(root, device, name):
    dataset = ImageFolder(root, CHAIN)
    good = [images.clone() for images, _ in FastLoader(dataset, BATCH)]
    path = dataset.path(BAD)
    SPOILED[name](path)
    wanted = pillows_error(path)
    loader = FastLoader(dataset, BATCH, num_workers=2, **device)
    assert loader.plan().startswith("native images")
    for _ in range(2):
        seen = batches_of(iter(loader))
        assert len(seen) == 4
        for number in (0, 2, 3):
            assert torch.equal(seen[number], good[number])
        error = seen[1]
        assert type(error) is type(wanted)
        # The address of a buffer is part of what Pillow says.
        said = str(error).removeprefix(f"{path}: ")
        assert said.split(" <")[0].split(" '")[0] == str(wanted).split(" <")[0].split(" '")[0]
        assert path in str(error)
        if sys.version_info >= (3, 11):
            notes = " ".join(error.__notes__)
            assert f"sample {BAD}" in notes and path in notes


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_unreadable(root, device):
    dataset = ImageFolder(root, CHAIN)
    os.chmod(dataset.path(BAD), 0)
    seen = batches_of(iter(FastLoader(dataset, BATCH, **device)))
    assert type(seen[1]) is PermissionError and len(seen) == 4


def test_replaced_between_index_and_read(root, device):
    """Nothing of a file is remembered: another picture of another size and format is what is there."""
    dataset = ImageFolder(root, CHAIN)
    loader = FastLoader(dataset, BATCH, **device)
    list(loader)
    picture(random.Random(4), 90, 11).save(dataset.path(0), "JPEG")
    to_png(dataset.path(1), 1)
    images = next(iter(loader))[0]
    for index in (0, 1):
        wanted = redo(dataset.path(index), loader.replay(index), exact=(24, 20))
        assert torch.equal(images[index], wanted)


def test_all_bad(root, device):
    dataset = ImageFolder(root, CHAIN)
    for index in range(COUNT):
        replaced_by(b"")(dataset.path(index))
    seen = batches_of(iter(FastLoader(dataset, BATCH, **device)))
    assert [type(error) for error in seen] == [UnidentifiedImageError] * 4


def test_first_bad_sample_of_a_batch_is_named(root):
    dataset = ImageFolder(root, CHAIN)
    for index in (1, 2):
        replaced_by(b"")(dataset.path(index))
    with pytest.raises(UnidentifiedImageError) as caught:
        next(iter(FastLoader(dataset, BATCH)))
    if sys.version_info >= (3, 11):
        assert "sample 1," in " ".join(caught.value.__notes__)


def test_bad_samples_are_counted(root):
    dataset = ImageFolder(root, CHAIN)
    replaced_by(b"")(dataset.path(BAD))
    loader = FastLoader(dataset, BATCH)
    batches_of(iter(loader))
    images = loader.stats()["images"]
    assert images["bad"] == 1 and images["seen"] == COUNT
    assert len(images["last_bad"]) == 1 and dataset.path(BAD) in images["last_bad"][0]


def test_too_thin_is_an_error_of_its_sample(root):
    """Resize makes an edge of 0 pixels of it: Pillow and torchvision say ValueError."""
    dataset = ImageFolder(root, T.Compose([T.Resize(2, max_size=3), T.CenterCrop(4)]))
    picture(random.Random(4), 900, 1).save(dataset.path(BAD), "JPEG")
    with pytest.raises(ValueError):
        dataset[BAD]
    seen = batches_of(iter(FastLoader(dataset, BATCH)))
    assert isinstance(seen[1], ValueError) and len(seen) == 4
    assert all(isinstance(each, torch.Tensor) for each in (seen[0], *seen[2:]))


# --- skip and replace ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["truncated", "zero bytes", "directory", "deleted"])
def test_skip(root, device, name):
    dataset = ImageFolder(root, CHAIN)
    good = [images.clone() for images, _ in FastLoader(dataset, BATCH)]
    SPOILED[name](dataset.path(BAD))
    dataset.targets = np.arange(COUNT)
    loader = FastLoader(dataset, BATCH, on_error="skip", **device)
    given = [(images.clone(), labels.tolist()) for images, labels in loader]
    assert [labels for _, labels in given] == [[0, 1, 2], [3, 5], [6, 7, 8], [9, 10, 11]]
    seen = [images for images, _ in given]
    assert torch.equal(seen[1], good[1][[0, 2]])
    assert all(torch.equal(seen[i], good[i]) for i in (0, 2, 3))
    assert loader.stats()["images"]["bad"] == 1


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("first", [0, BATCH, COUNT - BATCH])
def test_a_batch_of_bad_samples_is_left_out(root, device, first, workers):
    """Wherever it lies in the epoch; and a state counts its samples, which are not seen again."""
    dataset = ImageFolder(root, CHAIN)
    dataset.targets = np.arange(COUNT)
    options = {"on_error": "skip", "num_workers": workers, **device}
    good = [labels.tolist() for _, labels in FastLoader(dataset, BATCH)]
    for index in range(first, first + BATCH):
        replaced_by(b"")(dataset.path(index))
    loader = FastLoader(dataset, BATCH, **options)
    seen = []
    for images, labels in loader:
        assert len(images) == BATCH
        seen.append(labels.tolist())
        again = FastLoader(dataset, BATCH, **options)
        again.load_state_dict(loader.state_dict())
        rest = [labels.tolist() for _, labels in again]
        assert seen + rest == [each for each in good if each != good[first // BATCH]]
    assert len(seen) == len(good) - 1
    assert loader.stats()["images"]["bad"] == BATCH
    assert loader.stats()["batches"] == len(good) - 1 and loader.stats()["errors"] == 0


def test_batches_of_one_are_left_out_until_there_are_too_many(root, device):
    dataset = ImageFolder(root, CHAIN)
    for index in (2, 3, 7):
        replaced_by(b"")(dataset.path(index))
    options = {"on_error": "skip", **device}
    loader = FastLoader(dataset, 1, max_errors=3, **options)
    assert sum(1 for _ in loader) == COUNT - 3
    loader = FastLoader(dataset, 1, max_errors=2, **options)
    seen = batches_of(iter(loader))
    errors = [number for number, each in enumerate(seen) if isinstance(each, Exception)]
    assert errors == [7 - 2] and "max_errors=2" in str(seen[5])
    assert len(seen) == COUNT - 2


def test_replace(tmp_path, device):
    root = plain_folder(tmp_path / "p", COUNT, classes=COUNT)
    dataset = ImageFolder(root, CHAIN)
    replaced_by(b"")(dataset.path(BAD))

    def run(seed, workers):
        torch.manual_seed(seed)
        loader = FastLoader(dataset, BATCH, on_error="replace", num_workers=workers, **device)
        return [(images.clone(), labels.tolist()) for images, labels in loader]

    one = run(1, 1)
    assert [len(labels) for _, labels in one] == [BATCH] * 4
    (images, labels) = one[1]
    assert labels[0] == 3 and labels[2] == 5 and labels[1] != BAD
    index = labels[1]  # a class per picture
    assert torch.equal(images[1], dataset[index][0])
    again = run(1, 3)
    for (images, labels), (others, other_labels) in zip(one, again):
        assert torch.equal(images, others) and labels == other_labels
    # Which one it is follows the seed.
    assert len({run(seed, 1)[1][1][1] for seed in range(8)}) > 1


def test_replaced_by_pictures_that_only_pillow_reads(tmp_path, device):
    """With the crop that is drawn for the other picture, as with a JPEG."""
    (tmp_path / "p" / "a").mkdir(parents=True)
    rng = random.Random(3)
    for number in range(COUNT):
        picture(rng, 30 + number, 40).save(tmp_path / "p" / "a" / f"{number:02}.bmp")
    dataset = ImageFolder(tmp_path / "p", T.RandomResizedCrop((24, 20), (0.2, 0.9)))
    replaced_by(b"")(dataset.path(BAD))
    loader = FastLoader(dataset, BATCH, on_error="replace", **device)
    batches = [images.clone() for images, _ in loader]
    assert [len(images) for images in batches] == [BATCH] * 4
    got = batches[1][BAD - BATCH]
    others = [index for index in range(COUNT) if index != BAD]
    again = [redo(dataset.path(i), loader.replay(i), exact=(24, 20)) for i in others]
    assert any(torch.equal(got, each) for each in again)
    assert loader.stats()["images"]["bad"] == 1


@pytest.mark.parametrize("options", [{}, {"on_error": "skip", "max_errors": 0}])
def test_all_bad_samples_of_a_batch_are_counted(root, options):
    """Though only the first can be raised."""
    dataset = ImageFolder(root, CHAIN)
    for index in (3, 5):
        replaced_by(b"")(dataset.path(index))
    loader = FastLoader(dataset, BATCH, **options)
    assert isinstance(batches_of(iter(loader))[1], Exception)
    images = loader.stats()["images"]
    assert images["bad"] == 2
    assert [dataset.path(i) in said for i, said in zip((3, 5), images["last_bad"])] == [True, True]


def test_max_errors_is_a_number(root):
    with pytest.raises(ValueError, match="max_errors=nan"):
        FastLoader(ImageFolder(root, CHAIN), on_error="skip", max_errors=float("nan"))


@pytest.mark.parametrize("limit", [2, 0])
def test_max_errors(root, limit):
    dataset = ImageFolder(root, CHAIN)
    for index in (0, 4, 8):
        replaced_by(b"")(dataset.path(index))
    seen = batches_of(iter(FastLoader(dataset, BATCH, on_error="skip", max_errors=limit)))
    assert [isinstance(each, fastloader.Error) for each in seen] == [
        i >= limit for i in range(3)
    ] + [False]


# --- truncated ----------------------------------------------------------------------------------


@needs_libjpeg
@pytest.mark.parametrize("subsampling", ["4:4:4", "4:2:0"])
@pytest.mark.parametrize("share", [0.999, 0.9, 0.5, 0.1])
def test_padded_as_pillow_pads(tmp_path, monkeypatch, subsampling, share):
    """Baseline files: what is there counts, the rest is grey, as with LOAD_TRUNCATED_IMAGES."""
    folder = tmp_path / "p" / "a"
    folder.mkdir(parents=True)
    rng = random.Random(6)
    for number in range(4):
        path = folder / f"{number}.jpg"
        image = picture(rng, rng.randint(50, 120), rng.randint(50, 120))
        image.save(path, "JPEG", quality=80, subsampling=subsampling)
        data = path.read_bytes()
        scan = data.index(b"\xff\xda") + 14
        path.write_bytes(data[: scan + int((len(data) - scan) * share)])
    dataset = ImageFolder(tmp_path / "p", CHAIN)
    loader = FastLoader(dataset, 4, truncated="pad")
    images, _ = next(iter(loader))
    assert loader.stats()["images"]["bad"] == 0
    with pytest.raises(OSError):
        next(iter(FastLoader(dataset, 4)))
    monkeypatch.setattr(ImageFile, "LOAD_TRUNCATED_IMAGES", True)
    for index in range(4):
        wanted = redo(dataset.path(index), loader.replay(index), exact=(24, 20))
        assert torch.equal(images[index], wanted), (subsampling, share, index)


def test_only_the_end_marker_is_missing(root):
    """Pillow reads such a file, or not: so do we."""
    dataset = ImageFolder(root, CHAIN)
    path = dataset.path(BAD)
    data = Path(path).read_bytes()
    assert data.endswith(b"\xff\xd9")
    replaced_by(data[:-2])(path)
    try:
        wanted = pillows_error(path)
    except AssertionError:
        wanted = None
    seen = batches_of(iter(FastLoader(dataset, BATCH)))
    if wanted is None:
        assert torch.equal(seen[1][1], dataset[BAD][0])
    else:
        assert type(seen[1]) is type(wanted)
    if extension.lacks_libjpeg():
        with pytest.raises(ValueError, match=r"truncated='pad'.*this build has no libjpeg-turbo"):
            iter(FastLoader(dataset, BATCH, truncated="pad"))
    else:
        padded = batches_of(iter(FastLoader(dataset, BATCH, truncated="pad")))
        assert all(isinstance(each, torch.Tensor) for each in padded)


def test_pillows_switch_counts_on_the_native_path(root, monkeypatch):
    """LOAD_TRUNCATED_IMAGES, which many scripts set, needs no second switch."""
    dataset = ImageFolder(root, CHAIN)
    cut(dataset.path(BAD), 0.6)
    monkeypatch.setattr(ImageFile, "LOAD_TRUNCATED_IMAGES", True)
    images = [images.clone() for images, _ in FastLoader(dataset, BATCH)]
    for got, (wanted, _) in zip(images, DataLoader(dataset, BATCH)):
        assert torch.equal(got, wanted)


# --- what is no file, and what is too large ----------------------------------------------------


@pytest.mark.processes
def test_pipes_and_devices_are_bad_samples(root):
    """Reading a pipe that nobody writes to would never end; nor would /dev/zero."""
    done = script(
        """
        import os, sys
        from fastloader import FastLoader, transforms as T
        from fastloader.datasets import ImageFolder
        dataset = ImageFolder(sys.argv[1], T.Resize((24, 20)))
        os.remove(dataset.path(4)), os.mkfifo(dataset.path(4))
        os.remove(dataset.path(5)), os.symlink("/dev/zero", dataset.path(5))
        loader = FastLoader(dataset, 3, on_error="skip")
        print([len(images) for images, _ in loader], loader.stats()["images"]["bad"])
        for index in (4, 5):
            try:
                dataset[index]
            except OSError as error:
                print(dataset.path(index) in str(error))
        """,
        root,
        timeout=HANG,
    )
    assert done.stdout.split("\n")[:3] == ["[3, 1, 3, 3] 2", "True", "True"]


def test_a_file_larger_than_any_picture_is_not_read(root):
    """Sparse, so that it takes no place; into memory it would be read whole."""
    dataset = ImageFolder(root, CHAIN)
    with open(dataset.path(BAD), "wb") as file:
        file.truncate((1 << 30) + 1)
    loader = FastLoader(dataset, BATCH, on_error="skip")
    assert [len(images) for images, _ in loader] == [3, 2, 3, 3]
    assert loader.stats()["images"]["scratch_bytes"] < 1 << 30


# --- bombs, crashes -----------------------------------------------------------------------------


def test_bomb_is_refused_as_pillow_refuses(root):
    dataset = ImageFolder(root, CHAIN)
    bomb(dataset.path(BAD))
    seen = batches_of(iter(FastLoader(dataset, BATCH)))
    assert type(seen[1]) is Image.DecompressionBombError


@pytest.mark.parametrize("kind", ["jpeg", "png", "webp"])
def test_random_damage_does_as_pillow(tmp_path, kind):
    """Bytes changed at random: the same picture as Pillow's, or an error where it has one too."""
    seed = random.randrange(1 << 32)
    rng = random.Random(seed)
    folder = tmp_path / "p" / "a"
    folder.mkdir(parents=True)
    for number in range(60):
        buffer = io.BytesIO()
        image = picture(rng, rng.randint(20, 90), rng.randint(20, 90))
        image.save(buffer, kind.upper(), **({"progressive": number % 2} if kind == "jpeg" else {}))
        data = bytearray(buffer.getvalue())
        for _ in range(rng.randint(1, 5)):
            data[rng.randrange(3, len(data))] = rng.getrandbits(8)
        replaced_by(bytes(data))(str(folder / f"{number:02}.jpg"))
    dataset = ImageFolder(tmp_path / "p", CHAIN, is_valid_file=any_picture)
    seen = batches_of(iter(FastLoader(dataset, 1)))
    assert len(seen) == 60
    for index, got in enumerate(seen):
        try:
            wanted = dataset[index][0]
        except Exception as error:
            wanted = error
        if isinstance(wanted, Exception):
            assert type(got) is type(wanted), (seed, index, got, wanted)
        else:
            assert isinstance(got, torch.Tensor), (seed, index, got)
            assert torch.equal(got[0], wanted), (seed, index)


@pytest.mark.processes
def test_an_error_nobody_waits_for(root):
    """Bad pictures behind an early break, at the end of the process: no noise."""
    for name in os.listdir(os.path.join(root, "c0")):
        replaced_by(b"")(os.path.join(root, "c0", name))
    done = script(
        """
        import sys
        from fastloader import FastLoader, transforms as T
        from fastloader.datasets import ImageFolder
        loader = FastLoader(ImageFolder(sys.argv[1], T.Resize((24, 20))), 2, num_workers=2)
        it = iter(loader)
        """,
        root,
    )
    assert not done.stderr


@pytest.mark.parametrize(
    ("what", "error", "said"),
    [
        ("sample 5, /a/b.jpg", OSError("bad"), "sample 5, /a/b.jpg: OSError: bad"),
        ("sample 5, /a/b.jpg", OSError("/a/b.jpg: bad"), "sample 5: OSError: /a/b.jpg: bad"),
        ("sample 5", OSError("bytes (sample 5): bad"), "OSError: bytes (sample 5): bad"),
        ("sample 5", OSError("bytes (sample 56)"), "sample 5: OSError: bytes (sample 56)"),
    ],
)  # fmt: skip
def test_the_list_of_bad_samples_names_sample_and_picture_once(what, error, said):
    policy = make_policy("skip", None)
    policy.count(what, error)
    assert list(policy.last) == [said]
