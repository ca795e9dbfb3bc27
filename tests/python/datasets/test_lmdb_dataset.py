"""LMDBDataset: what it reads, from which process, and what it refuses."""

import gc
import io
import multiprocessing
import os
import pickle
import stat
import subprocess
import sys

import numpy as np
import pytest
import torch
from lmdb_files import write
from pictures import random_folder
from PIL import Image
from torch.utils.data import DataLoader

from fastloader import transforms as T
from fastloader.cli.__main__ import main
from fastloader.datasets import ImageFolder, LMDBDataset
from fastloader.datasets._formats.lmdb_files import META, WITH_INDICES, DamagedError, key_of
from support import HANG, same

lmdb = pytest.importorskip("lmdb")


@pytest.fixture(scope="module")
def packed(tmp_path_factory):
    """(folder, the same as a file)"""
    base = tmp_path_factory.mktemp("packed")
    random_folder(base / "photos", seed=11, others=True)
    assert main(["pack", str(base / "photos"), str(base / "set.lmdb")]) == 0
    return base / "photos", base / "set.lmdb"


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


@pytest.mark.processes
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


def test_packing_and_reading_leave_nothing(packed):
    assert sorted(os.listdir(packed[1].parent)) == ["photos", "set.lmdb"]
