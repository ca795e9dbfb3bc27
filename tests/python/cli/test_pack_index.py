"""``fastloader pack --index``: seek indices beside the pictures, and batches decoded with them."""

import dataclasses
import json
import random
from pathlib import Path

import numpy as np
import pytest
import torch
from pictures import plain_folder, save_jpeg

import fastloader.transforms as T
from fastloader import FastLoader
from fastloader._core.machine import extension
from fastloader.cli.__main__ import main
from fastloader.datasets import ImageFolder, LMDBDataset
from fastloader.datasets._formats.lmdb_files import (
    META,
    PLAIN,
    WITH_INDICES,
    decode_record,
    encode_record,
    key_of,
    read_meta,
)

lmdb = pytest.importorskip("lmdb")
pytestmark = pytest.mark.skipif(extension.load() is None, reason="needs the native module")

CROPS = T.Compose([T.RandomResizedCrop(32), T.RandomHorizontalFlip()])


def pack(*arguments):
    return main(["pack", *map(str, arguments)])


@pytest.fixture
def folder(tmp_path, request):
    root = tmp_path / "photos"
    plain_folder(root, count=12, size=(400, 300), seed=6)
    rng = random.Random(6)
    # The first three of class c0 have no index: it would be large beside them, or there is none.
    save_jpeg(rng, root / "c0" / "000.jpg", 40, 30)
    save_jpeg(rng, root / "c0" / "003.jpg", 400, 300, progressive=True)
    save_jpeg(rng, root / "c0" / "006.jpg", 400, 300, restart_marker_blocks=5)
    return root


WITHOUT = 3


def records_of(path):
    """Copies, which outlive the file's mapping."""
    dataset = LMDBDataset(path)
    records = [dataset.record(index) for index in range(len(dataset))]
    return [
        dataclasses.replace(record, image=bytes(record.image), seek_index=bytes(record.seek_index))
        for record in records
    ]


def epoch(dataset):
    loader = FastLoader(
        dataset, 4, shuffle=True, num_workers=2, generator=torch.Generator().manual_seed(1)
    )
    plan = loader.plan()
    assert plan.startswith("native images")
    assert (f"seek index ({dataset.indexed} pictures)" in plan) == (dataset.indexed > 0)
    batches = [images.clone() for images, _ in loader]
    return batches, loader.stats()["images"]["jpegs"]


def test_what_is_kept_beside_the_pictures(folder, tmp_path, capsys):
    path = tmp_path / "set.lmdb"
    assert pack(folder, path) == 0
    assert LMDBDataset(path).indexed == 12 - WITHOUT
    assert f"{12 - WITHOUT} of them have a seek index" in capsys.readouterr().out
    files = [Path(ImageFolder(folder).path(index)).read_bytes() for index in range(12)]
    native = extension.load()
    for number, (record, file) in enumerate(zip(records_of(path), files, strict=True)):
        assert record.image == file
        assert (record.seek_index or None) == native.jpeg_seek_index(file)
        assert bool(record.seek_index) == (number >= WITHOUT)
        assert len(record.seek_index) * 32 <= len(file)
    assert pack("--check", path) == 0
    assert "have a seek index, which is right" in capsys.readouterr().out


def test_batches_with_and_without_indices_are_the_same(folder, tmp_path):
    assert pack(folder, tmp_path / "with.lmdb") == 0
    assert pack(folder, tmp_path / "without.lmdb", "--no-index") == 0
    expected, found = epoch(LMDBDataset(tmp_path / "without.lmdb", CROPS))
    assert found["indexed"] == found["unfit_index"] == 0
    batches, found = epoch(LMDBDataset(tmp_path / "with.lmdb", CROPS))
    assert found["indexed"] > 3 and found["unfit_index"] == 0
    for batch, other in zip(batches, expected, strict=True):
        assert torch.equal(batch, other)


def test_a_file_without_indices_is_of_the_first_version(folder, tmp_path):
    path = tmp_path / "set.lmdb"
    assert pack(folder, path, "--no-index") == 0
    dataset = LMDBDataset(path)
    assert read_meta(dataset.environment)["version"] == PLAIN
    assert not any(record.seek_index for record in records_of(path))
    assert pack("--check", path) == 0


@pytest.mark.parametrize("option, other", [("--no-index", "--index"), ("--index", "--no-index")])
def test_going_on(folder, tmp_path, capsys, option, other):
    """Without the option, a file stays as it was begun: by an older fastloader without indices, say."""
    path = tmp_path / "set.lmdb"
    assert pack(folder, path, option) == 0
    assert pack(folder, path) == 0
    assert "all 12 samples are there already" in capsys.readouterr().out
    assert LMDBDataset(path).indexed == (12 - WITHOUT if option == "--index" else 0)
    assert pack(folder, path, other) == 1
    assert "was begun with other options" in capsys.readouterr().err


def test_going_on_with_an_older_file(folder, tmp_path, capsys):
    """Which has neither the option nor the count."""
    path = tmp_path / "set.lmdb"
    assert pack(folder, path, "--no-index") == 0
    with lmdb.open(str(path), subdir=False) as environment:
        with environment.begin(write=True) as transaction:
            meta = json.loads(transaction.get(META))
            del meta["indexed"]
            transaction.put(META, json.dumps({**meta, "complete": False, "count": 5}).encode())
            for index in range(5, 12):
                transaction.delete(key_of(index))
    assert pack(folder, path) == 0
    assert "goes on after 5 of 12 samples" in capsys.readouterr().out
    assert read_meta(LMDBDataset(path).environment)["version"] == PLAIN
    assert pack("--check", path) == 0


def test_going_on_without_the_native_module(folder, tmp_path, monkeypatch, capsys):
    path = tmp_path / "set.lmdb"
    assert pack(folder, path) == 0
    monkeypatch.setattr(extension, "load", lambda: None)
    assert pack(folder, path) == 1
    assert "--index is done by the native module" in capsys.readouterr().err
    assert pack("--check", path) == 0
    assert "not compared: no native module" in capsys.readouterr().out


def change(path, index, make):
    """Writes a record anew, with a right checksum."""
    with lmdb.open(str(path), subdir=False) as environment:
        with environment.begin(write=True) as transaction:
            key = key_of(index)
            record = decode_record(transaction.get(key), key, WITH_INDICES)
            transaction.put(key, make(record))


def test_an_index_that_is_wrong_changes_no_pixel_and_is_told(folder, tmp_path, capsys):
    path = tmp_path / "set.lmdb"
    assert pack(folder, path) == 0
    expected, _ = epoch(LMDBDataset(path, CROPS))

    other = records_of(path)[4].seek_index

    def of_another(record):
        return encode_record(record.image, record.label, record.name, other, WITH_INDICES)

    def flipped(record):
        index = bytearray(record.seek_index)
        index[30] ^= 4
        return encode_record(record.image, record.label, record.name, bytes(index), WITH_INDICES)

    def one_byte(record):
        return encode_record(record.image, record.label, record.name, b"\1", WITH_INDICES)

    made = [of_another, flipped, one_byte]
    for index in range(WITHOUT, 12):
        change(path, index, made[index % len(made)])
    batches, found = epoch(LMDBDataset(path, CROPS))
    assert found["indexed"] <= 1 and found["unfit_index"] > 3
    for batch, other in zip(batches, expected, strict=True):
        assert torch.equal(batch, other)
    assert pack("--check", path) == 1
    said = capsys.readouterr().err
    for index in range(WITHOUT, 12):
        if index != 4:
            assert f"the seek index of record {key_of(index)!r} is not that of its picture" in said


def test_damage_of_an_index_is_seen_by_the_checksum(folder, tmp_path, capsys):
    path = tmp_path / "set.lmdb"
    assert pack(folder, path) == 0
    index = bytes(records_of(path)[5].seek_index)
    data = bytearray(path.read_bytes())
    data[data.index(index) + 40] ^= 1
    path.write_bytes(data)
    assert pack("--check", path) == 1
    assert "its checksum does not match" in capsys.readouterr().err


def test_without_the_native_module(folder, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(extension, "load", lambda: None)
    assert pack(folder, tmp_path / "set.lmdb", "--index") == 1
    assert "--index is done by the native module" in capsys.readouterr().err
    assert pack(folder, tmp_path / "set.lmdb") == 0
    assert read_meta(LMDBDataset(tmp_path / "set.lmdb").environment)["version"] == PLAIN
    assert np.asarray(LMDBDataset(tmp_path / "set.lmdb")[0][0]).ndim == 3


def test_the_meta_data_name_the_option(folder, tmp_path):
    assert pack(folder, tmp_path / "set.lmdb") == 0
    with lmdb.open(str(tmp_path / "set.lmdb"), subdir=False, readonly=True, lock=False) as file:
        with file.begin() as transaction:
            assert b'"index": true' in transaction.get(META)
