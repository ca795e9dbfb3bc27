"""Shards of object stores in a cache that several processes share, and that has no room for all."""

import errno
import gc
import json
import os
import pickle
import subprocess
import sys
import time

import pytest
from remote_shards import EACH, SHARDS, check_samples, sha

from fastloader.datasets import ShardCache, TarImages
from fastloader.datasets._remote import remote_tar
from fastloader.errors import Error
from support import HANG, PACKAGE_ROOT, eventually

READER = """
import hashlib, json, sys
from fastloader.datasets import ShardCache, TarImages
if __name__ == "__main__":
    given = json.load(sys.stdin)
    cache = ShardCache(given["folder"], given["most"], storage_options=given["options"])
    print("begun", flush=True)
    dataset = TarImages(given["url"], cache=cache)
    found = [hashlib.sha256(dataset.image_bytes(i)).hexdigest() for i in range(len(dataset))]
    print(json.dumps({"found": found, "counts": cache.counts()}))
"""


class Reader:
    """A process of its own that reads all samples."""

    def __init__(self, store, folder, most=None):
        script = folder.parent / "reader.py"
        script.write_text(READER)
        self.process = subprocess.Popen(
            [sys.executable, str(script)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(PACKAGE_ROOT)},
        )
        given = {"folder": str(folder), "most": most, "url": store.url()}
        given["options"] = store.server.options(store.proxy.port)
        self.process.stdin.write(json.dumps(given))
        self.process.stdin.close()
        assert self.process.stdout.readline() == "begun\n"

    def result(self):
        out = self.process.stdout.read()
        assert self.process.wait(HANG) == 0
        return json.loads(out)


@pytest.mark.processes
def test_several_processes_fetch_each_shard_once(store, tmp_path):
    store.proxy.delay = 0.005
    readers = [Reader(store, tmp_path / "cache") for _ in range(3)]
    results = [reader.result() for reader in readers]
    for result in results:
        assert result["found"] == [sha(file) for file, *_ in store.files]
    assert sum(result["counts"]["fetched"] for result in results) == SHARDS


@pytest.mark.processes
def test_several_processes_in_a_cache_that_is_too_small(store, tmp_path):
    most = store.room_for(2)
    readers = [Reader(store, tmp_path / "cache", most) for _ in range(3)]
    for reader in readers:
        assert reader.result()["found"] == [sha(file) for file, *_ in store.files]
    assert sum(path.stat().st_size for path in (tmp_path / "cache").iterdir()) <= most


@pytest.mark.processes
def test_a_process_that_is_killed_while_it_fetches(store, tmp_path):
    """The proxy holds its answers up, so that it is killed in the middle of a shard."""
    store.proxy.faults.extend([("stall", len(store.shards[0]) * 2)] + [("stall", 1)] * 20)
    reader = Reader(store, tmp_path / "cache")
    eventually(lambda: store.proxy.struck, lambda: "a shard in the middle")
    eventually(
        lambda: list((tmp_path / "cache").glob("*.tar.part")), lambda: "a file that is not whole"
    )
    reader.process.kill()
    reader.process.wait()
    reader.process.stdout.close()
    store.proxy.faults.clear()
    left = list((tmp_path / "cache").glob("*.tar.part"))
    assert left
    cache = store.cache(tmp_path / "cache")
    check_samples(TarImages(store.url(), cache=cache), store.files)
    assert not list((tmp_path / "cache").glob("*.tar.part"))
    assert cache.counts()["fetched"] >= len(left)


@pytest.mark.exhaustive
def test_pickle_finds_the_shards_again(store, tmp_path):
    folder = tmp_path / "cache"
    dataset = TarImages(store.url(), cache=store.cache(folder))
    copied = pickle.loads(pickle.dumps(dataset))
    del dataset
    for path in folder.glob("*.tar"):
        path.unlink()  # as another process may that needs the room
    check_samples(copied, store.files)


def test_a_cache_whose_shards_are_in_use(store, tmp_path):
    cache = store.cache(tmp_path / "cache", store.room_for(2), timeout=0.3)
    first = TarImages(store.url("/train/x-{0000..0001}.tar"), cache=cache)
    other = store.cache(tmp_path / "cache", store.room_for(2), timeout=0.3)
    with pytest.raises(Error, match=r"has no room for \d+ bytes: \d+ of at most \d+ are in use"):
        TarImages(store.url("/train/x-{0002..0003}.tar"), cache=other)
    check_samples(first, store.files[: 2 * EACH])
    del first
    gc.collect()
    dataset = TarImages(store.url("/train/x-{0002..0003}.tar"), cache=other)
    check_samples(dataset, store.files[2 * EACH : 4 * EACH])


def test_shards_that_do_not_fit_beside_those_in_use(store, tmp_path, monkeypatch):
    """They are read by ranges, without a wait for room that does not come."""
    cache = store.cache(tmp_path / "cache", store.room_for(3))
    first = TarImages(store.url("/train/x-{0000..0001}.tar"), cache=cache)
    both = store.url("/train/x-{0002..0003}.tar")
    with monkeypatch.context() as patched:
        patched.setattr(remote_tar, "_fetched", lambda *_: pytest.fail("has room for none"))
        second = TarImages(both, cache=store.cache(tmp_path / "cache", store.room_for(3)))
    assert first.mapped and not second.mapped
    check_samples(second, store.files[2 * EACH : 4 * EACH])
    # The same ones are one and the same file, whoever holds it.
    assert TarImages(store.url("/train/x-{0000..0002}.tar"), cache=cache).mapped
    del first
    gc.collect()
    assert TarImages(both, cache=cache).mapped


def test_room_that_goes_while_shards_are_fetched(store, tmp_path, monkeypatch):
    cache = store.cache(tmp_path / "cache", store.room_for(3), timeout=0.3)
    first = TarImages(store.url("/train/x-{0000..0001}.tar"), cache=cache)
    monkeypatch.setattr(ShardCache, "room_for", lambda *_: 10**9)  # as it was a moment ago
    second = TarImages(store.url("/train/x-{0002..0003}.tar"), cache=cache)
    assert not second.mapped
    monkeypatch.undo()
    check_samples(second, store.files[2 * EACH : 4 * EACH])
    assert cache.room_for([]) == cache.max_bytes - sum(map(len, store.shards[:2]))
    check_samples(first, store.files[: 2 * EACH])


def test_a_cache_that_another_user_has_filled(store, tmp_path, monkeypatch):
    """Nothing in it can be changed, not even the time at which a shard was used."""
    TarImages(store.url(), cache=store.cache(tmp_path / "cache"))
    gc.collect()

    def denied(*_args, **_options):
        raise PermissionError(errno.EPERM, "Operation not permitted")

    for name in ("utime", "unlink", "rename", "replace"):
        monkeypatch.setattr(os, name, denied)
    dataset = TarImages(store.url(), cache=store.cache(tmp_path / "cache"))
    assert dataset.mapped
    check_samples(dataset, store.files)


def test_the_least_recently_used_shard_goes_first(store, tmp_path):
    folder = tmp_path / "cache"
    names = {}
    for shard in range(3):
        url = store.url(f"/train/x-000{shard}.tar")
        TarImages(url, cache=store.cache(folder))
        names[shard] = next(folder.glob(f"*x-000{shard}.tar")).name
        # Within a day, and later than it was written: the system leaves such a time as it is.
        os.utime(folder / names[shard], (time.time() - 1000 + shard, 1000))
    gc.collect()
    TarImages(store.url("/train/x-0000.tar"), cache=store.cache(folder))  # used again
    gc.collect()
    TarImages(store.url("/train/x-0003.tar"), cache=store.cache(folder, store.room_for(3)))
    left = {path.name for path in folder.glob("*.tar")}
    assert names[1] not in left
    assert {names[0], names[2]} < left
