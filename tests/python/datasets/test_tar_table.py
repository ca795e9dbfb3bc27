"""The index of large sets of tar shards: a file that the processes of a machine share."""

import io
import json
import logging
import os
import pickle
import random
import tarfile
import threading
import zlib

import numpy as np
import pytest
from PIL import Image
from torch.utils.data import DataLoader

from fastloader import FastLoader
from fastloader import transforms as T
from fastloader.datasets import TarImages
from fastloader.datasets._remote import tar_table
from fastloader.datasets.pictures import Pictures

OF_TABLE = ("offsets", "sizes", "targets", "_numbers", "_places")


@pytest.fixture
def rng():
    return random.Random(os.urandom(8))


@pytest.fixture
def shards(tmp_path, rng):
    """Shards some of whose samples lack a label, a caption or a picture."""
    for shard in range(4):
        with tarfile.open(tmp_path / f"x-{shard}.tar", "w") as tar:
            for number in range(rng.randrange(2, 9)):
                picture = io.BytesIO()
                Image.new("RGB", (16, 16), (number, shard, 9)).save(picture, "PNG")
                files = {"PNG": picture.getvalue(), "cls": b"%d" % number, "txt": b"%d" % shard}
                for name in rng.sample(sorted(files), rng.randrange(3)) if number else ():
                    del files[name]
                for name, content in files.items():
                    member = tarfile.TarInfo(f"{shard}-{number}.{name}")
                    member.size = len(content)
                    tar.addfile(member, io.BytesIO(content))
    return tmp_path / "x-*.tar"


@pytest.fixture
def large(monkeypatch, tmp_path):
    """Makes all sets of shards large ones, and returns the folder of their tables."""
    monkeypatch.setattr(tar_table, "LARGE", 0)
    monkeypatch.setenv("FASTLOADER_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "tables"


def table_in(folder):
    (found,) = [each for each in folder.iterdir() if each.name.endswith("-table")]
    return found


def same_arrays(some, other):
    for name in OF_TABLE:
        np.testing.assert_array_equal(getattr(some, name), getattr(other, name))
        assert getattr(some, name).dtype == getattr(other, name).dtype
    assert some.spans.starts == other.spans.starts


def no_walk(*_arguments):
    raise AssertionError("the shards are looked through")


def test_a_large_set_is_what_a_small_one_is(shards, monkeypatch, tmp_path):
    small = TarImages(shards, columns=["txt"])
    monkeypatch.setattr(tar_table, "LARGE", 0)
    monkeypatch.setenv("FASTLOADER_CACHE", str(tmp_path / "cache"))
    large = TarImages(shards, columns=["txt"])
    assert large._shared and not small._shared
    same_arrays(large, small)
    for index in range(len(small)):
        assert large.name(index) == small.name(index)
        assert large.image_bytes(index) == small.image_bytes(index)
        try:
            rest = small._rest([index])
        except ValueError as error:
            with pytest.raises(ValueError, match=r"has no \.txt") as found:
                large._rest([index])
            assert str(found.value) == str(error)
        else:
            assert large._rest([index]) == rest


def test_the_epochs_of_a_large_set(shards, large):
    dataset = TarImages(shards, T.Resize((8, 8)))
    ours = list(FastLoader(dataset, 3))
    for (pictures, labels), (others, their_labels) in zip(
        ours, DataLoader(dataset, 3), strict=True
    ):
        assert pictures.equal(others) and labels.equal(their_labels)


def test_the_next_dataset_maps_what_the_first_has_found(shards, large, monkeypatch):
    first = TarImages(shards)
    monkeypatch.setattr(tar_table, "make_table", no_walk)
    monkeypatch.setattr("fastloader.datasets._formats.tar_shards.index_of", no_walk)
    second = TarImages(shards)
    same_arrays(second, first)
    addresses, sizes, _owner = Pictures.places(second)
    assert np.shares_memory(sizes, second.sizes)  # 8 bytes a sample are this process's own
    assert not np.shares_memory(addresses, second.offsets)
    second.targets[0] = 77  # a process's labels are its own, as they are without a file
    assert TarImages(shards).targets[0] == first.targets[0] != 77


@pytest.mark.parametrize("changed", ["columns", "image", "shard", "more", "fewer"])
def test_a_table_of_something_else(shards, large, changed, monkeypatch):
    if changed == "fewer":
        TarImages(shards)
    paths = sorted(shards.parent.glob("x-?.tar"))
    options = {"shards": paths[:3]}
    TarImages(**options)
    made = []
    whole = tar_table.make_table
    monkeypatch.setattr(tar_table, "make_table", lambda *each: made.append(1) or whole(*each))
    if changed == "columns":
        options["columns"] = ["txt"]
    elif changed == "image":
        options["image"] = "png"
    elif changed == "more":
        options["shards"] = paths
    elif changed == "fewer":
        options["shards"] = paths[:2]
    else:  # of the same size and time, as copying keeps them
        status = os.stat(paths[0])
        content = bytearray(paths[0].read_bytes())
        place = content.index(b"0-0.cls") + 512
        content[place : place + 1] = b"9"
        paths[0].write_bytes(content)
        os.utime(paths[0], ns=(status.st_atime_ns, status.st_mtime_ns))
    found = TarImages(**options)
    assert made
    if changed == "shard":
        assert found.targets[0] == 9
    monkeypatch.setattr(tar_table, "LARGE", 1 << 30)
    same_arrays(found, TarImages(**options))


def test_a_damaged_table_is_made_anew(shards, large, rng):
    first = TarImages(shards, columns=["txt"])
    expected = {name: np.array(getattr(first, name)) for name in OF_TABLE}
    table = table_in(large)
    whole = table.read_bytes()
    kinds = ["cut", "longer", "bit", "empty", "zeros"]
    for damage in [rng.choice(kinds) for _ in range(40)] + kinds:
        content = bytearray(whole)
        if damage == "cut":
            del content[rng.randrange(len(content)) :]
        elif damage == "longer":
            content += b"\0"
        elif damage == "bit":
            place = rng.randrange(len(content))
            content[place] ^= 1 << rng.randrange(8)
        else:
            content = bytearray(len(content) if damage == "zeros" else 0)
        table.unlink()
        table.write_bytes(content)
        again = TarImages(shards, columns=["txt"])
        for name in OF_TABLE:
            np.testing.assert_array_equal(getattr(again, name), expected[name])
        assert table.read_bytes() == whole or damage == "bit"  # of the gaps between the arrays


@pytest.mark.parametrize("number", [1 << 62, 1 << 200, -1, 0, 7, "9", None, 1.5, [9], True])
@pytest.mark.parametrize("place", range(3))
def test_a_table_that_was_forged(shards, large, place, number):
    first = TarImages(shards)
    expected = np.array(first.offsets)
    table = table_in(large)
    head = tar_table._HEAD
    content = table.read_bytes()
    magic, version, length, _sum, checksum, _size = head.unpack_from(content)
    described = json.loads(content[head.size : head.size + length])
    described["shape"][place] = number
    text = json.dumps(described).encode()
    rest = content[head.size + length :]
    size = head.size + len(text) + len(rest)
    table.write_bytes(
        head.pack(magic, version, len(text), zlib.crc32(text), checksum, size) + text + rest
    )
    np.testing.assert_array_equal(TarImages(shards).offsets, expected)


@pytest.mark.parametrize("what", ["offsets", "sizes", "places", "counts"])
def test_a_table_with_places_outside_of_the_shards(shards, large, what):
    dataset = TarImages(shards, columns=["txt"])
    paths, pick = dataset._shards, dataset._pick
    whose = tar_table._identity(paths, pick)
    table = tar_table.make_table(paths, pick)
    wrong = getattr(table, what).copy()
    wrong.reshape(-1)[0] = (1 << 63) - 1
    tar_table._save(table._replace(**{what: wrong}), str(table_in(large)), whose)
    assert tar_table.load_table(str(table_in(large)), paths, whose) is None
    same_arrays(TarImages(shards, columns=["txt"]), dataset)


def test_a_pickled_dataset_has_nothing_of_its_samples(shards, large):
    dataset = TarImages(shards)
    small = len(pickle.dumps(dataset))
    again = pickle.loads(pickle.dumps(dataset))
    same_arrays(again, dataset)
    assert again._shared and again.image_bytes(1) == dataset.image_bytes(1)
    dataset.targets = np.arange(len(dataset)) + 5
    again = pickle.loads(pickle.dumps(dataset))
    assert again.targets.tolist() == dataset.targets.tolist()
    for each in (again, dataset):
        assert b"offsets" not in pickle.dumps(each.__getstate__()["_shards"])
    table_in(large).unlink()  # as on another machine
    same_arrays(pickle.loads(pickle.dumps(dataset)), dataset)
    assert small < 4096 + 512 * len(dataset.shards)


class Waiting(logging.Handler):
    """Tells when a message says that somebody waits."""

    def __init__(self):
        super().__init__()
        self.begun = threading.Event()

    def emit(self, record):
        if "waiting for it" in record.getMessage():
            self.begun.set()


@pytest.fixture
def waiting(caplog):
    handler, log = Waiting(), logging.getLogger("fastloader")
    caplog.set_level(logging.INFO, "fastloader")
    log.addHandler(handler)
    yield handler.begun
    log.removeHandler(handler)


def in_thread(call):
    found = []
    thread = threading.Thread(target=lambda: found.append(call()))
    thread.start()
    return thread, found


def test_one_makes_the_table_and_the_others_wait(shards, large, waiting, monkeypatch):
    made, whole, begun = [], tar_table.make_table, threading.Event()

    def make(*arguments):
        made.append(arguments)
        begun.set()
        assert waiting.wait(60)
        return whole(*arguments)

    monkeypatch.setattr(tar_table, "make_table", make)
    first, one = in_thread(lambda: TarImages(shards))
    assert begun.wait(60)
    second, other = in_thread(lambda: TarImages(shards))
    first.join()
    second.join()
    assert len(made) == 1
    same_arrays(one[0], other[0])


def test_the_next_one_makes_the_table_if_the_first_one_dies(shards, large, waiting):
    first = TarImages(shards)
    table = table_in(large)
    table.unlink()
    (large / "half.part").write_bytes(b"half")
    descriptor = os.open(f"{table}.lock", os.O_RDONLY)
    tar_table.lock(descriptor, tar_table.ALONE, "")
    second, found = in_thread(lambda: TarImages(shards))
    assert waiting.wait(60)
    os.close(descriptor)  # as the kernel does it for a process that is killed
    second.join()
    same_arrays(found[0], first)
    assert table.exists()


def test_where_nothing_can_be_kept(shards, large, caplog, tmp_path):
    (tmp_path / "cache").write_bytes(b"")
    dataset = TarImages(shards)
    assert not dataset._shared and len(dataset)
    assert "cannot be shared by the processes of this machine" in caplog.text
    same_arrays(pickle.loads(pickle.dumps(dataset)), dataset)


def test_the_folder_that_is_named(shards, large, tmp_path):
    dataset = TarImages(shards, index_dir=tmp_path / "indices")
    assert dataset._shared and table_in(tmp_path / "indices").exists() and not large.exists()


def test_small_sets_write_no_table(shards, tmp_path, monkeypatch):
    monkeypatch.setenv("FASTLOADER_CACHE", str(tmp_path / "cache"))
    assert not TarImages(shards)._shared
    assert not (tmp_path / "cache").exists()
