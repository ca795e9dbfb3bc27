"""LMDBDataset on the native path: decoded from the mapped pages, to the bit as from the folder."""

import gc
import multiprocessing
import os
import shutil
import struct

import pytest
import torch
from pictures import plain_folder, random_folder
from torch.utils.data import ConcatDataset, DataLoader, Subset

from fastloader import FastLoader
from fastloader import transforms as T
from fastloader._core.pictures.store import LmdbStore
from fastloader.cli.__main__ import main
from fastloader.datasets import ImageFolder, LMDBDataset
from fastloader.datasets._formats.lmdb_files import (
    EXTENTS,
    Environment,
    decode_record,
    key_of,
    read_meta,
)
from support import MEAN, STD, same

lmdb = pytest.importorskip("lmdb")

CROPS = T.Compose([T.RandomResizedCrop(24), T.RandomHorizontalFlip()])
NORMALISED = {"mean": MEAN, "std": STD}


@pytest.fixture(scope="module")
def packed(tmp_path_factory):
    base = tmp_path_factory.mktemp("packed")
    random_folder(base / "photos", seed=12, others=True)
    assert main(["pack", str(base / "photos"), str(base / "set.lmdb")]) == 0
    return base / "photos", base / "set.lmdb"


def batches(dataset, **options):
    options = {"batch_size": 4, "shuffle": True, "num_workers": 2, **options}
    loader = FastLoader(dataset, generator=torch.Generator().manual_seed(4), **options)
    assert loader.plan().startswith("native images"), loader.plan()
    return [list(loader) for _epoch in range(2)]


def test_the_same_batches_as_the_folder(packed, way):
    folder, path = packed
    if way.name == "pure":
        loader = FastLoader(LMDBDataset(path, CROPS), batch_size=4)
        assert loader.plan().startswith("Python path")
        assert len(list(loader)) == len(loader)
        return
    options = {**NORMALISED, **way.options}
    same(
        batches(LMDBDataset(path, CROPS), **options), batches(ImageFolder(folder, CROPS), **options)
    )


def test_bytes_and_labels(packed):
    folder, path = packed
    same(batches(LMDBDataset(path, CROPS)), batches(ImageFolder(folder, CROPS)))


def test_subsets_and_concatenations(packed):
    folder, path = packed

    def both(make, kind, source):
        return make(kind(source, CROPS), kind(source, CROPS))

    def compose(one, other):
        return ConcatDataset([Subset(one, [5, 3, 8, 1, 0, 7]), other])

    got = batches(both(compose, LMDBDataset, path))
    same(got, batches(both(compose, ImageFolder, folder)))
    mixed = ConcatDataset([ImageFolder(folder, CROPS), LMDBDataset(path, CROPS)])
    loader = FastLoader(mixed, batch_size=4)
    assert "folders and LMDB files" in loader.plan()
    assert len(list(loader)) == len(loader)


def test_two_loaders_over_one_concatenation(packed, monkeypatch):
    """Neither takes the addresses that the other has looked up: nothing falls back to Pillow."""
    plain = packed[0].parent / "plain"
    if not plain.exists():
        plain_folder(plain, count=12)
        assert main(["pack", str(plain), str(plain) + ".lmdb"]) == 0

    def refuse(_self, index):
        raise AssertionError(f"record {index} went through Pillow")

    monkeypatch.setattr(LmdbStore, "open_rgb", refuse)
    joined = ConcatDataset([LMDBDataset(str(plain) + ".lmdb", CHAIN) for _ in range(2)])
    train = iter(FastLoader(Subset(joined, range(0, 20)), batch_size=4))
    next(train)
    assert len(list(FastLoader(Subset(joined, range(4, 24)), batch_size=4))) == 5
    assert len(list(train)) == 4


def test_what_the_native_path_leaves_to_python(packed):
    path = packed[1]
    for dataset, reason in [
        (LMDBDataset(path), "no transform"),
        (LMDBDataset(path, CROPS, target_transform=int), "target_transform"),
    ]:
        assert reason in FastLoader(dataset).plan()


def test_replay(packed):
    loader = FastLoader(LMDBDataset(packed[1], CROPS), batch_size=4)
    list(loader)
    assert set(loader.replay(3)) >= {"box", "hflip", "vflip"}


def damaged(tmp_path, number):
    """A packed folder in which one record's header is damaged and another's picture."""
    # Large enough for pages of their own: small ones are copied from page to page while packing.
    plain_folder(tmp_path / "photos", count=8, size=(160, 120), seed=number)
    path = tmp_path / "set.lmdb"
    assert main(["pack", str(tmp_path / "photos"), str(path)]) == 0
    files = ImageFolder(tmp_path / "photos")
    data = bytearray(path.read_bytes())
    for index, offset in ((2, -24 + 17), (5, 0)):
        with open(files.path(index), "rb") as file:
            data[data.index(file.read()) + offset] ^= 0xFF
    path.write_bytes(data)
    return path


def test_damaged_records_meet_the_error_policy(tmp_path):
    path = damaged(tmp_path, 1)
    dataset = LMDBDataset(path, CROPS)
    loader = FastLoader(dataset, batch_size=2)
    iterator = iter(loader)
    next(iterator)
    with pytest.raises(ValueError, match=r"record .* is damaged: its header"):
        next(iterator)
    with pytest.raises(OSError, match="cannot identify image file"):
        next(iterator)
    assert len(next(iterator)[1]) == 2
    for policy, sizes in (("skip", [2, 1, 1, 2]), ("replace", [2, 2, 2, 2])):
        loader = FastLoader(dataset, batch_size=2, on_error=policy)
        assert [len(labels) for _, labels in loader] == sizes
        counted = loader.stats()["images"]
        assert counted["bad"] == 2 and str(path) in counted["last_bad"][0]


def test_the_mapping_lives_as_long_as_anybody_decodes_from_it(packed):
    for _ in range(20):
        iterator = iter(FastLoader(LMDBDataset(packed[1], CROPS), batch_size=4, num_workers=2))
        next(iterator)
        gc.collect()
        same(next(iterator)[1].shape, torch.Size([4]))
        del iterator


def _sum(path, queue):
    total = sum(images.sum().item() for images, _ in FastLoader(LMDBDataset(path, CHAIN), 4))
    queue.put(total)


CHAIN = T.Compose([T.Resize(20), T.CenterCrop(16)])


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_in_another_process(packed, method):
    context = multiprocessing.get_context(method)
    queue = context.Queue()
    mine = LMDBDataset(packed[1], CHAIN)  # open here, too
    total = sum(images.sum().item() for images, _ in FastLoader(mine, 4))
    child = context.Process(target=_sum, args=(str(packed[1]), queue))
    child.start()
    assert queue.get(timeout=60) == total
    child.join(60)
    assert child.exitcode == 0


def test_a_loader_that_was_forked_with_its_dataset_open(packed):
    loader = FastLoader(LMDBDataset(packed[1], CHAIN), batch_size=4)
    expected = [labels.tolist() for _, labels in loader]
    pid = os.fork()
    if pid == 0:
        got = [labels.tolist() for _, labels in loader]
        os._exit(0 if got == expected else 3)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_equals_the_python_path_on_an_evaluation_chain(packed):
    dataset = LMDBDataset(packed[1], CHAIN)
    same(list(FastLoader(dataset, batch_size=4)), list(DataLoader(dataset, batch_size=4)))


@pytest.mark.skipif(not hasattr(os, "posix_fadvise"), reason="the system takes no advice")
def test_the_records_of_a_batch_are_asked_for_before_one_is_touched(packed, monkeypatch):
    events = []
    get, keys = Environment.get, [key_of(index) for index in range(4)]

    def advised(_descriptor, offset, size, advice):
        assert advice == os.POSIX_FADV_WILLNEED
        events.append((offset, size))

    def touched(self, key):
        if key in keys:
            events.append(key)
        return get(self, key)

    monkeypatch.setattr(os, "posix_fadvise", advised)
    monkeypatch.setattr(Environment, "get", touched)
    records = LMDBDataset(packed[1], CROPS)
    next(iter(FastLoader(records, batch_size=4, num_workers=2)))
    file = packed[1].read_bytes()
    version = read_meta(records.environment)["version"]
    for index, (offset, size) in enumerate(events[:4]):
        key = key_of(index)
        found = decode_record(file[offset : offset + size], key, version, check=True)
        assert found == decode_record(records.environment.get(key), key, version)
    assert events[4:8] == keys


@pytest.mark.parametrize(
    "extents",
    [None, b"", b"123", struct.pack("<2Q", 0, 16), "far", "shifted"],
    ids=["missing", "empty", "odd", "too few", "outside the file", "stale"],
)
def test_nothing_depends_on_the_extents(packed, tmp_path, extents):
    path = tmp_path / "set.lmdb"
    shutil.copy(packed[1], path)
    with lmdb.open(str(path), subdir=False, map_size=1 << 26, lock=False) as environment:
        with environment.begin(write=True) as transaction:
            stored = transaction.get(EXTENTS)
            assert len(stored) == 16 * len(LMDBDataset(packed[1]))
            if extents == "far":
                extents = struct.pack("<2Q", 2**64 - 1, 2**63) + stored[16:]
            elif extents == "shifted":
                extents = stored[16:] + stored[:16]
            transaction.delete(EXTENTS)
            if extents is not None:
                transaction.put(EXTENTS, extents)
    same(batches(LMDBDataset(path, CROPS)), batches(LMDBDataset(packed[1], CROPS)))
    assert len(LMDBDataset(path)[0]) == 2  # through Pillow, too
