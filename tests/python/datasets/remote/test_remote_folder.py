"""`ImageFolder` from object stores: a list of objects, each read by a request of its own."""

import gc
import os

import numpy as np
import object_stores
import pytest
from faulty_proxy import FaultyProxy
from pictures import random_folder
from torch.utils.data import DataLoader

from fastloader import FastLoader
from fastloader import transforms as T
from fastloader._core.machine import extension
from fastloader.datasets import ImageFolder, ShardCache
from fastloader.datasets._remote import object_store
from fastloader.errors import Error

CHAIN = T.Resize((20, 30))


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    """(the local folder, the server, the proxy)"""
    base = tmp_path_factory.mktemp("s3")
    server = object_stores.started("s3", base)
    proxy = FaultyProxy(server.port)
    folder = base / "photos"
    random_folder(folder, seed=int.from_bytes(os.urandom(3), "big"))
    deeper = sorted(path for path in folder.rglob("*") if path.is_file())[0]
    (deeper.parent / "A.b" / "c").mkdir(parents=True)
    (deeper.parent / "A").mkdir()
    for name in ("A.b/c/1.jpg", "A/2.jpg", "a b ü.jpg", "none.txt"):
        (deeper.parent / name).write_bytes(deeper.read_bytes())
    for path in folder.rglob("*"):
        if path.is_file():
            server.put(f"some/photos/{path.relative_to(folder)}", path.read_bytes())
    yield folder, server, proxy
    proxy.close()
    server.close()


@pytest.fixture
def cache(pictures, tmp_path):
    _folder, server, proxy = pictures
    yield ShardCache(tmp_path, storage_options=server.options(proxy.port), timeout=6)
    proxy.faults.clear()
    proxy.struck.clear()


def test_the_samples_are_those_of_the_folder(pictures, cache):
    folder, server, proxy = pictures
    local = ImageFolder(folder, CHAIN)
    remote = ImageFolder(f"{server.url()}/some/photos", CHAIN, cache=cache)
    assert remote.classes == local.classes and len(remote) == len(local)
    assert remote.targets.tolist() == local.targets.tolist()
    paths = [path.removeprefix(f"{folder}/") for path, _ in local.samples]
    assert [
        path.removeprefix(f"{server.url()}/some/photos/") for path, _ in remote.samples
    ] == paths
    kinds = ["reset", "cut", "stall", "cut"]
    proxy.faults.extend((kind, 2000) for kind in kinds)
    loader = FastLoader(remote, 4, num_workers=2, worker_backend="thread")
    if extension.load() is not None:
        assert loader.plan().startswith("Python path: the pictures are objects in a store")
    for (images, labels), (wanted, targets) in zip(loader, DataLoader(local, 4), strict=True):
        assert np.array_equal(images, wanted) and labels.tolist() == targets.tolist()
    assert proxy.struck
    assert loader.stats()["remote"]["retries"] >= len(proxy.struck)
    image, target = remote[1]
    assert np.array_equal(image, local[1][0]) and target == local[1][1]
    assert not list(gc.get_objects() and os.scandir(cache.folder))


def test_a_class_without_a_picture(pictures, cache):
    _folder, server, _proxy = pictures
    server.put("empty/one/1.txt", b"x")
    with pytest.raises(FileNotFoundError, match="no valid file for the classes one"):
        ImageFolder(f"{server.url()}/empty/", cache=cache)
    assert len(ImageFolder(f"{server.url()}/empty/", allow_empty=True, cache=cache)) == 0
    with pytest.raises(FileNotFoundError, match="find any class folder in s3://"):
        ImageFolder(f"{server.url()}/nothing", cache=cache)


def test_what_is_refused(pictures, cache):
    _folder, server, _proxy = pictures
    with pytest.raises(ValueError, match="web servers have no lists of files"):
        ImageFolder("https://127.0.0.1/photos", cache=cache)
    with pytest.raises(ValueError, match="have no seek indices"):
        ImageFolder(f"{server.url()}/some/photos", index="x", cache=cache)


def test_an_object_that_is_too_large_for_a_picture(pictures, cache, monkeypatch):
    _folder, server, _proxy = pictures
    dataset = ImageFolder(f"{server.url()}/some/photos", CHAIN, cache=cache)
    monkeypatch.setattr(object_store, "MOST_PICTURE", 10)
    with pytest.raises(
        Error, match=r"s3://.*\d+ bytes are no picture: at most 10 are read at once"
    ):
        dataset[0]
