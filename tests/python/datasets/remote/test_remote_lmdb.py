"""`LMDBDataset` from object stores: the file of `fastloader pack` comes whole."""

import gc
import os
import pickle

import numpy as np
import object_stores
import pytest
from faulty_proxy import FaultyProxy
from pictures import random_folder

from fastloader import FastLoader
from fastloader import transforms as T
from fastloader._core.machine import extension
from fastloader.cli.__main__ import main
from fastloader.datasets import ImageFolder, LMDBDataset, ShardCache
from fastloader.datasets._formats.lmdb_files import DamagedError
from fastloader.errors import Error

lmdb = pytest.importorskip("lmdb")


@pytest.fixture(scope="module", params=["https", "s3"])
def packed(request, tmp_path_factory):
    """(folder of pictures, the bytes of the same as a file, server, proxy)"""
    base = tmp_path_factory.mktemp("packed")
    server = object_stores.started(request.param, base)
    proxy = FaultyProxy(server.port)
    random_folder(base / "photos", seed=int.from_bytes(os.urandom(3), "big"))
    assert main(["pack", str(base / "photos"), str(base / "set.lmdb")]) == 0
    content = (base / "set.lmdb").read_bytes()
    server.put("set.lmdb", content)
    yield base / "photos", content, server, proxy
    proxy.close()
    server.close()


def test_the_samples_of_the_folder(packed, tmp_path):
    folder, content, server, proxy = packed
    cache = ShardCache(tmp_path / "cache", storage_options=server.options(proxy.port), timeout=6)
    proxy.faults.extend([("reset", len(content) // 3), ("cut", len(content) // 2)])
    chain = T.Resize((20, 30))
    dataset = LMDBDataset(server.url(proxy.port) + "/set.lmdb", chain, cache=cache)
    assert proxy.struck == ["reset", "cut"]
    proxy.struck.clear()
    assert cache.counts()["retries"] >= 2
    loader = FastLoader(dataset, 4, num_workers=1)
    expected = FastLoader(ImageFolder(folder, chain), 4, num_workers=1)
    if extension.load() is not None:
        assert loader.plan().startswith("native images: fastloader LMDBDataset (in the cache)")
    for (images, labels), (wanted, targets) in zip(loader, expected, strict=True):
        assert np.array_equal(images, wanted) and labels.tolist() == targets.tolist()
    assert loader.stats()["remote"] == cache.counts()
    copied = pickle.loads(pickle.dumps(dataset))
    assert copied.image_bytes(1) == dataset.image_bytes(1)


def test_a_file_that_is_read_stays(packed, tmp_path):
    _folder, content, server, _proxy = packed
    cache = ShardCache(
        tmp_path / "cache", len(content) + 100, storage_options=server.options(), timeout=0.2
    )
    dataset = LMDBDataset(server.url() + "/set.lmdb", cache=cache)
    server.put("other.lmdb", content)
    with pytest.raises(Error, match=r"has no room for \d+ bytes"):
        LMDBDataset(server.url() + "/other.lmdb", cache=cache)
    assert dataset.image_bytes(0)
    del dataset
    gc.collect()
    assert LMDBDataset(server.url() + "/other.lmdb", cache=cache).image_bytes(0)


def test_what_is_no_lmdb_file(packed, tmp_path):
    _folder, _content, server, _proxy = packed
    cache = ShardCache(tmp_path / "cache", storage_options=server.options())
    server.put("bad.lmdb", b"x" * 9000)
    with pytest.raises(DamagedError, match=r"^(https|s3)://.*/bad\.lmdb cannot be opened"):
        LMDBDataset(server.url() + "/bad.lmdb", cache=cache)
    with pytest.raises(FileNotFoundError, match=r"/none\.lmdb does not exist"):
        LMDBDataset(server.url() + "/none.lmdb", cache=cache)


@pytest.mark.parametrize(
    ("meta", "message"),
    [
        (b"{ no JSON", r"the key b'__fastloader__' is damaged"),
        (b'{"format": "fastloader-lmdb", "version": 99}', "is of version 99"),
    ],
)
def test_a_file_whose_contents_are_damaged(packed, tmp_path, meta, message):
    """The message names what the user knows, and the next dataset fetches the file anew."""
    _folder, content, server, _proxy = packed
    with lmdb.open(str(tmp_path / "own.lmdb"), subdir=False, lock=False) as made:
        with made.begin(write=True) as transaction:
            transaction.put(b"__fastloader__", meta)
    server.put("own.lmdb", (tmp_path / "own.lmdb").read_bytes())
    cache = ShardCache(tmp_path / "cache", storage_options=server.options())
    url = server.url() + "/own.lmdb"
    with pytest.raises(DamagedError, match=message) as caught:
        LMDBDataset(url, cache=cache)
    assert url in str(caught.value) and str(tmp_path) not in str(caught.value)
    assert not list((tmp_path / "cache").glob("*own.lmdb"))
    server.put("own.lmdb", content)
    assert len(LMDBDataset(url, cache=cache)) > 0


def test_a_legacy_file_names_its_url(packed, tmp_path):
    _folder, _content, server, _proxy = packed
    with lmdb.open(str(tmp_path / "own.lmdb"), subdir=False, lock=False) as made:
        with made.begin(write=True) as transaction:
            transaction.put(b"__len__", pickle.dumps("many"))
    server.put("old.lmdb", (tmp_path / "own.lmdb").read_bytes())
    cache = ShardCache(tmp_path / "cache", storage_options=server.options())
    with pytest.raises(ValueError, match=r"^(https|s3)://.*/old\.lmdb: __len__ is 'many'"):
        LMDBDataset(server.url() + "/old.lmdb", legacy=True, cache=cache)
    assert len(list((tmp_path / "cache").glob("*old.lmdb"))) == 1  # it is as it was uploaded
