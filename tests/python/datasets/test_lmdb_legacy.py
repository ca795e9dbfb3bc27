"""LMDBDataset(legacy=True): what the older layout held, and pickles of strangers."""

import io
import os
import pickle
import resource
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from lmdb_files import write
from PIL import Image
from torch.utils.data import DataLoader, default_collate

from fastloader import FastLoader
from fastloader import transforms as T
from fastloader.cli.__main__ import main
from fastloader.datasets import LMDBDataset
from support import same

lmdb = pytest.importorskip("lmdb")


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


@pytest.mark.exhaustive
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


@pytest.mark.exhaustive
@pytest.mark.processes
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


@pytest.mark.exhaustive
@pytest.mark.processes
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


def test_legacy_of_what_is_not(tmp_path):
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
