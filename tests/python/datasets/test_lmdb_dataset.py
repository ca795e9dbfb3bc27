"""LMDBDataset: what it reads, from which process, legacy files, and what it refuses."""

import gc
import io
import multiprocessing
import os
import pickle
import resource
import stat
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from pictures import random_folder
from PIL import Image
from torch.utils.data import DataLoader, default_collate

from fastloader import FastLoader
from fastloader import transforms as T
from fastloader.cli.__main__ import main
from fastloader.datasets import ImageFolder, LMDBDataset
from fastloader.datasets._formats.lmdb.file import META, WITH_INDICES, DamagedError, key_of
from support import HANG, same

lmdb = pytest.importorskip("lmdb")


@pytest.fixture(scope="module")
def packed(tmp_path_factory):
    """(folder, the same as a file)"""
    base = tmp_path_factory.mktemp("packed")
    random_folder(base / "photos", seed=11, others=True)
    assert main(["pack", str(base / "photos"), str(base / "set.lmdb")]) == 0
    return base / "photos", base / "set.lmdb"


def write(path, pairs):
    with lmdb.open(str(path), subdir=False, map_size=1 << 26) as environment:
        with environment.begin(write=True) as transaction:
            for key, value in pairs:
                transaction.put(key, value)
    return path


CHAIN = T.Compose([T.Resize(40), T.CenterCrop(32)])


def test_the_same_samples_as_the_folder(packed):
    folder, path = packed
    for transform in (None, CHAIN, T.Compose([T.Resize((20, 30)), T.ToTensor()])):
        files, records = ImageFolder(folder, transform), LMDBDataset(path, transform)
        assert len(records) == len(files)
        for index in range(len(files)):
            (image, label), (wanted, target) = records[index], files[index]
            assert label == target == records.targets[index]
            if transform is None:
                image, wanted = np.asarray(image), np.asarray(wanted)
                assert np.array_equal(image, wanted)
            else:
                assert torch.equal(image, wanted)
    assert records[-1][1] == records[len(records) - 1][1]
    for index in (len(records), -len(records) - 1):
        with pytest.raises(IndexError, match=f"sample {index} of"):
            records[index]


def test_target_transform(packed):
    records = LMDBDataset(packed[1], CHAIN, target_transform=lambda label: label + 100)
    assert records[0][1] == 100


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_in_workers(packed, method):
    records = LMDBDataset(packed[1], CHAIN)
    context = multiprocessing.get_context(method)
    loader = DataLoader(records, batch_size=4, num_workers=2, multiprocessing_context=context)
    same(list(loader), list(DataLoader(records, batch_size=4)))


def test_several_datasets_share_one_mapping(packed):
    one, other = LMDBDataset(packed[1], CHAIN), LMDBDataset(packed[1])
    assert one.environment is other.environment
    del one
    assert other.image_bytes(0)
    again = pickle.loads(pickle.dumps(other))
    assert again.environment is other.environment and len(again) == len(other)


def test_descriptors_come_back(packed):
    def descriptors():
        gc.collect()
        return len(os.listdir("/proc/self/fd"))

    before = descriptors()
    for _ in range(50):
        LMDBDataset(packed[1])[0]
    assert descriptors() <= before  # fewer where an earlier test's queues end meanwhile


def test_bytes_outlive_the_file(packed):
    dataset = LMDBDataset(packed[1])
    data = dataset.image_bytes(0)
    del dataset
    gc.collect()
    with Image.open(io.BytesIO(data)) as image:
        image.load()


def test_a_read_only_file_in_a_read_only_folder(packed, tmp_path):
    folder = tmp_path / "mounted"
    folder.mkdir()
    path = folder / "set.lmdb"
    path.write_bytes(packed[1].read_bytes())
    path.chmod(stat.S_IRUSR)
    folder.chmod(stat.S_IRUSR | stat.S_IXUSR)
    try:
        assert len(LMDBDataset(path)) == len(LMDBDataset(packed[1]))
        assert os.listdir(folder) == ["set.lmdb"]
    finally:
        folder.chmod(stat.S_IRWXU)


# --- what is refused ------------------------------------------------------------------------------


def test_not_there(tmp_path):
    with pytest.raises(FileNotFoundError, match="not there"):
        LMDBDataset(tmp_path / "missing.lmdb")
    with pytest.raises(FileNotFoundError, match=r"no data\.mdb"):
        LMDBDataset(tmp_path)


def test_no_lmdb_file(tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text("not LMDB" * 1000)
    with pytest.raises(ValueError, match="not an LMDB file"):
        LMDBDataset(path)
    path.write_bytes(b"")
    with pytest.raises(ValueError, match="is empty"):
        LMDBDataset(path)


def test_somebody_elses_lmdb_file(tmp_path):
    with pytest.raises(ValueError, match="not one of `fastloader pack`"):
        LMDBDataset(write(tmp_path / "x.lmdb", [(b"a", b"b")]))


@pytest.mark.parametrize(
    ("meta", "message"),
    [
        (b'{"format": "fastloader-lmdb", "version": %d}' % (WITH_INDICES + 1), "version 3, this"),
        (b'{"format": "fastloader-lmdb", "version": [1]}', r"version \[1\], this"),
        (b'{"format": "other", "version": 1}', "format 'other'"),
        (b"{", "damaged"),
        (b"[]", "damaged"),
    ],
)
def test_other_versions(tmp_path, meta, message):
    with pytest.raises(DamagedError, match=message):
        LMDBDataset(write(tmp_path / "x.lmdb", [(META, meta)]))


def test_a_missing_record(packed, tmp_path):
    path = tmp_path / "set.lmdb"
    path.write_bytes(packed[1].read_bytes())
    with lmdb.open(str(path), subdir=False, map_size=1 << 26) as environment:
        with environment.begin(write=True) as transaction:
            transaction.delete(key_of(3))
    dataset = LMDBDataset(path)
    dataset[2]
    with pytest.raises(ValueError, match="sample 3 is missing"):
        dataset[3]


def test_open_through_lmdb_itself(packed, tmp_path):
    path = tmp_path / "set.lmdb"
    path.write_bytes(packed[1].read_bytes())
    with lmdb.open(str(path), subdir=False, readonly=True, lock=False):
        with pytest.raises(RuntimeError, match="through lmdb itself"):
            LMDBDataset(path)
    assert len(LMDBDataset(path))


def test_without_lmdb(packed):
    program = (
        "import sys; sys.modules['lmdb'] = None\n"
        "from fastloader.datasets import ImageFolder, LMDBDataset\n"
        f"try: LMDBDataset({str(packed[1])!r})\n"
        "except ImportError as error: print(error)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=HANG, check=True
    )
    assert "pip install lmdb" in done.stdout


# --- legacy ---------------------------------------------------------------------------------------


def jpeg_bytes(seed):
    image = Image.fromarray(np.random.default_rng(seed).integers(0, 256, (12, 9, 3), np.uint8))
    out = io.BytesIO()
    image.save(out, "JPEG")
    return out.getvalue()


def opened(data):
    with Image.open(io.BytesIO(data)) as image:
        return np.asarray(image.convert("RGB"))


ARRAY = np.random.default_rng(5).integers(0, 256, (7, 5, 3), dtype=np.uint8)
LEGACY_VALUES = {
    "bytes and label": ((jpeg_bytes(1), 3), opened(jpeg_bytes(1)), 3),
    "file as array": ((np.frombuffer(jpeg_bytes(2), np.uint8), 4), opened(jpeg_bytes(2)), 4),
    "array and label": ((ARRAY, np.int64(5)), ARRAY, 5),
    "list": ([ARRAY, np.array([6])], ARRAY, 6),
    "array": (ARRAY, ARRAY, -1),
    "grey": (ARRAY[:, :, 0], np.repeat(ARRAY[:, :, :1], 3, axis=2), -1),
}


@pytest.mark.parametrize("protocol", range(2, 6))
@pytest.mark.parametrize("name", LEGACY_VALUES)
@pytest.mark.parametrize("form", ["file", "folder"])
def test_legacy_files(tmp_path, name, protocol, form):
    value, pixels, label = LEGACY_VALUES[name]
    path = tmp_path / "old"
    if form == "folder":
        path.mkdir()
    keys = [b"0", b"1"]
    with lmdb.open(str(path), subdir=form == "folder", map_size=1 << 26) as environment:
        with environment.begin(write=True) as transaction:
            for key in keys:
                transaction.put(key, pickle.dumps(value, protocol))
            transaction.put(b"__keys__", pickle.dumps(keys, protocol))
            transaction.put(b"__len__", pickle.dumps(len(keys), protocol))
    with pytest.raises(ValueError, match=r"legacy=True"):
        LMDBDataset(path)
    records = LMDBDataset(path, legacy=True)
    assert len(records) == 2
    image, target = records[1]
    assert np.array_equal(np.asarray(image), pixels) and target == label
    batch, targets = next(
        iter(DataLoader(LMDBDataset(path, T.PILToTensor(), legacy=True), 2, num_workers=1))
    )
    assert batch.shape == (2, 3, *pixels.shape[:2]) and targets.tolist() == [label] * 2


@pytest.mark.parametrize("keys", [["0", "1"], [0, 1], None])
def test_legacy_keys(tmp_path, keys):
    pairs = [(b"0", pickle.dumps((ARRAY, 0))), (b"1", pickle.dumps((ARRAY, 1)))]
    pairs.append((b"__len__", pickle.dumps(2)))
    if keys is not None:
        pairs.append((b"__keys__", pickle.dumps(keys)))
    records = LMDBDataset(write(tmp_path / "old", pairs), legacy=True)
    assert [records[i][1] for i in range(2)] == [0, 1]


FLOATS = np.random.default_rng(6).normal(size=(3, 7, 5)).astype(np.float32)
STORED = {
    "float array": FLOATS,
    "two arrays": (FLOATS, FLOATS[:, ::2] * 2),
    "a dict": {"ldr": ARRAY, "name": "sample", "exposures": [1.5, np.float64(2.5)]},
    "bytes that are no picture": b"\xff\xd8 is short",
}


@pytest.mark.parametrize("protocol", range(2, 6))
@pytest.mark.parametrize("name", STORED)
def test_what_was_stored(tmp_path, name, protocol):
    pairs = [(b"0", pickle.dumps(STORED[name], protocol)), (b"__len__", pickle.dumps(1, protocol))]
    found = LMDBDataset(write(tmp_path / "old", pairs), legacy=True, samples="as stored")
    batch = next(iter(FastLoader(found, 1, num_workers=1)))
    same(batch, default_collate([STORED[name]]))


@pytest.mark.parametrize("form", ["bytes", "array", "in a dict"])
def test_pictures_among_what_was_stored(tmp_path, form):
    file = jpeg_bytes(3)
    value = np.frombuffer(file, np.uint8) if form == "array" else file
    value = {"picture": value, "number": 7} if form == "in a dict" else (value, 7)
    pairs = [(b"0", pickle.dumps(value)), (b"__len__", pickle.dumps(1))]
    path = write(tmp_path / "old", pairs)
    found = LMDBDataset(path, T.CenterCrop(8), legacy=True, samples="as stored")
    batch = next(iter(FastLoader(found, 1, num_workers=1)))
    picture, number = batch.values() if form == "in a dict" else batch
    expected = T.CenterCrop(8)(Image.open(io.BytesIO(file)))
    assert np.array_equal(picture[0].permute(1, 2, 0).numpy(), np.asarray(expected))
    assert number.tolist() == [7]


def test_stored_samples_of_other_files(tmp_path):
    pairs = [(b"0", pickle.dumps(FLOATS)), (b"__len__", pickle.dumps(1))]
    path = write(tmp_path / "old", pairs)
    for options in ({"samples": "all"}, {"target_transform": int, "samples": "as stored"}):
        with pytest.raises(ValueError, match="samples='"):
            LMDBDataset(path, legacy=True, **options)
    with pytest.raises(ValueError, match="is for legacy=True"):
        LMDBDataset(path, samples="as stored")


class Malicious:
    def __reduce__(self):
        return os.mkdir, ("pwned",)


@pytest.mark.parametrize("place", ["key", "value"])
def test_legacy_pickles_run_nothing(tmp_path, place, monkeypatch):
    monkeypatch.chdir(tmp_path)
    evil = pickle.dumps(Malicious())
    pairs = [(b"0", evil), (b"__keys__", evil if place == "key" else pickle.dumps([b"0"]))]
    path = write(tmp_path / "old", pairs)
    with pytest.raises(ValueError, match=r"mkdir.*not among the types"):
        LMDBDataset(path, legacy=True)[0]
    assert not os.path.exists("pwned")


class Calls:
    """Pickled as a call of ``function``, and then given ``state``."""

    def __init__(self, function, arguments, state=None):
        self.reduced = (function, arguments, *(() if state is None else (state,)))

    def __reduce__(self):
        return self.reduced


# One field, said to be an object, in eight bytes, which would be its address.
POINTERS = Calls(
    np.dtype,
    ("V8", False, True),
    (3, "|", None, ("a",), {"a": (np.dtype("O"), 0)}, 8, 1, 0),
)
RECONSTRUCT = np.array([1]).__reduce__()[0]
SCALAR = np.int64(1).__reduce__()[0]
ADDRESS = b"A" * 8


def crafted(dtype):
    """An array as numpy pickles it, of that dtype."""
    return Calls(RECONSTRUCT, (np.ndarray, (0,), b"b"), (1, (1,), dtype, False, ADDRESS))


@pytest.mark.parametrize(
    "label",
    [
        crafted(POINTERS),
        Calls(SCALAR, (POINTERS, ADDRESS)),
        crafted(Calls(np.dtype, ("u8", False, True), (3, "|", None, ("a",), {}, 8, 1, 0))),
        crafted(Calls(np.dtype, ("O8", False, True))),
        Calls(np.ndarray, ((1,), "O")),
        np.array([None]),
        np.zeros(1, [("a", "u1")]),
    ],
    ids=["array", "scalar", "fields", "object", "call", "objects", "record"],
)
def test_legacy_pickles_cannot_forge_memory(tmp_path, label):
    pairs = [(b"0", pickle.dumps((ARRAY, label))), (b"__len__", pickle.dumps(1))]
    path = write(tmp_path / "old", pairs)
    program = (
        "from fastloader.datasets import LMDBDataset\n"
        f"try: LMDBDataset({str(path)!r}, legacy=True)[0]\n"
        "except ValueError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0 and "the value of key b'0'" in done.stdout, done


@pytest.mark.parametrize("protocol", range(2, 6))
@pytest.mark.parametrize(
    "label",
    [
        np.arange(6, dtype=">i4").reshape(2, 3).T,
        np.array([0.5, 1.5], np.float32),
        np.array([True, False]),
        np.array(["cat", "a dog"]),
        np.array([b"cat", b"dog"]),
        {"boxes": [np.eye(4)[::2]], "id": np.int64(7)},
        np.float16(0.5),
        np.bool_(True),
    ],
    ids=repr,
)
def test_legacy_labels_of_every_kind(tmp_path, label, protocol):
    pairs = [(b"0", pickle.dumps((ARRAY, label), protocol)), (b"__len__", pickle.dumps(1))]
    _image, read = LMDBDataset(write(tmp_path / "old", pairs), legacy=True)[0]
    if isinstance(label, np.ndarray):
        loaded = pickle.loads(pickle.dumps(label, protocol))  # may have this machine's byte order
        assert type(read) is np.ndarray and read.dtype == loaded.dtype
        assert np.array_equal(read, label)
    elif isinstance(label, dict):
        assert type(read["boxes"][0]) is np.ndarray and read["id"] == 7
        assert np.array_equal(read["boxes"][0], label["boxes"][0])
    else:
        assert read == label.item()


# A pickle of a list of two, that of a list of two, and so on: what it stands for doubles with each.
NESTED = b"\x80\x02]" + b"q\x00]h\x00ah\x00a" * 60 + b"."
# The same of tuples, as the key of a dict: it would have to be hashed.
HASHED = b"\x80\x02}K\x01" + b"q\x00h\x00\x86" * 60 + b"Nsq\x01."
REMEMBERED = b"\x80\x02Nr\xff\xff\xff\x7f."  # as number 2147483647


@pytest.mark.parametrize("value", [NESTED, HASHED], ids=["lists", "keys"])
@pytest.mark.parametrize("place", [b"__keys__", b"__len__", b"0"])
def test_legacy_pickles_of_a_few_bytes_take_no_time(tmp_path, place, value):
    pairs = {b"0": pickle.dumps((ARRAY, 1)), b"__len__": pickle.dumps(1), place: value}
    path = write(tmp_path / "old", sorted(pairs.items()))
    program = (
        "import resource\n"
        "resource.setrlimit(resource.RLIMIT_CPU, (60, 60))\n"
        "from fastloader.datasets import LMDBDataset\n"
        f"try: LMDBDataset({str(path)!r}, legacy=True)[0]\n"
        "except ValueError as error: print(error)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0 and f"the value of key {place!r}" in done.stdout, done


def test_legacy_pickles_of_a_few_bytes_take_no_memory(tmp_path):
    pairs = [(b"0", REMEMBERED), (b"__len__", pickle.dumps(1))]
    records = LMDBDataset(write(tmp_path / "old", pairs), legacy=True)
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (1 << 36, hard))
    try:
        with pytest.raises(ValueError, match="NoneType is neither bytes nor an array"):
            records[0]
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


LONG = struct.pack("<I", 200_000)
DTYPE = b"cnumpy\ndtype\n(X%c\0\0\0%b\x89\x88tR"
SWAPPED = DTYPE % (2, b"u8") + b"(K\3U\1>NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\0tb"
# Each remembers 200 kB and makes something of them 20000 times.
MULTIPLIED = {
    "encode": b"c_codecs\nencode\nq\0X" + LONG + b"a" * 200_000 + b"q\1X\6\0\0\0latin1q\2]("
    b"" + b"h\0h\1h\2\x86R" * 20_000 + b"e.",
    "scalar": b"cnumpy.core.multiarray\nscalar\nq\0" + DTYPE % (6, b"U50000") + b"q\1B" + LONG
    + b"\x61\3\0\0" * 50_000 + b"q\2](" + b"h\0h\1h\2\x86R" * 20_000 + b"e.",
    "array": b"cnumpy.core.multiarray\n_reconstruct\nq\0" + SWAPPED + b"q\1(K\1J\xa8\x61\0\0\x85h\1\x89B"
    + LONG + bytes(200_000) + b"tq\2cnumpy\nndarray\nK\0\x85U\1b\x87q\3](" + b"h\0h\3Rh\2b" * 20_000
    + b"e.",
}  # fmt: skip


@pytest.mark.parametrize("kind", MULTIPLIED)
def test_legacy_pickles_make_no_more_than_they_hold(tmp_path, kind):
    value = b"\x80\2" + MULTIPLIED[kind]
    pairs = [(b"0", value), (b"__len__", pickle.dumps(1))]
    records = LMDBDataset(write(tmp_path / "old", pairs), legacy=True)
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + (1 << 29), hard))
    try:
        with pytest.raises(ValueError, match=r"makes more than \d+ bytes of its") as raised:
            records[0]
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
    assert "the value of key b'0'" in str(raised.value)


@pytest.mark.parametrize("protocol", range(2, 6))
def test_legacy_pickles_that_share_are_read(tmp_path, protocol):
    """A pickle remembers a byte that several numbers have in common."""
    label = [np.uint8(1)] * 50 + [np.uint8(1) for _ in range(500)] + [b"\xff" * 50] * 500
    pairs = [(b"0", pickle.dumps((ARRAY, label), protocol)), (b"__len__", pickle.dumps(1))]
    assert LMDBDataset(write(tmp_path / "old", pairs), legacy=True)[0][1] == label


@pytest.mark.parametrize("count", [10**10, 3, -1, "2", None, 1.5, True])
def test_legacy_count_of_records_that_are_not_there(tmp_path, count):
    pairs = [(b"0", pickle.dumps((ARRAY, 0))), (b"__len__", pickle.dumps(count))]
    with pytest.raises(ValueError, match=r"__len__ is "):
        LMDBDataset(write(tmp_path / "old", pairs), legacy=True)


def test_legacy_of_what_is_not(tmp_path, packed):
    with pytest.raises(ValueError, match="neither __keys__ nor __len__"):
        LMDBDataset(write(tmp_path / "x", [(b"a", b"b")]), legacy=True)
    bad = write(tmp_path / "y", [(b"__len__", pickle.dumps(1)), (b"0", pickle.dumps(("text", 1)))])
    with pytest.raises(ValueError, match=r"key b'0': a str is neither"):
        LMDBDataset(bad, legacy=True)[0]
    records = LMDBDataset(bad, legacy=True)
    with pytest.raises(ValueError, match="pickles"):
        records.image_bytes(0)


def test_legacy_can_be_packed_anew(tmp_path, monkeypatch):
    pairs = [(str(i).encode(), pickle.dumps((jpeg_bytes(i), i))) for i in range(3)]
    write(tmp_path / "old", [*pairs, (b"__len__", pickle.dumps(3))])
    monkeypatch.setattr(sys, "path", list(sys.path))
    expression = "fastloader.datasets:LMDBDataset('old', legacy=True)"
    monkeypatch.chdir(tmp_path)
    assert main(["pack", expression, "new.lmdb"]) == 0
    new = LMDBDataset("new.lmdb")
    assert new.targets.tolist() == [0, 1, 2]
    for index in range(3):
        assert np.array_equal(np.asarray(new[index][0]), opened(jpeg_bytes(index)))


def test_packing_and_reading_leave_nothing(packed):
    assert sorted(os.listdir(packed[1].parent)) == ["photos", "set.lmdb"]
