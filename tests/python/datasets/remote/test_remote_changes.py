"""Shards of object stores that change, are damaged, or do not fit their index."""

import http.server
import io
import os
import random
import tarfile
import threading

import numpy as np
import pytest
from remote_shards import EACH, check_samples, make_shard

from fastloader.datasets import ShardCache, TarImages
from fastloader.datasets._formats.tar_shards import DamagedTar
from fastloader.datasets._remote.object_store import ChangedObject, Refused
from fastloader.errors import Error


@pytest.mark.exhaustive
def test_bytes_that_change_on_the_way(store, tmp_path):
    """TLS notices by itself. Without it the MD5 does, which S3 has as a shard's ETag."""
    if store.kind == "az":
        pytest.skip("Azure's ETags are no MD5, and its emulator speaks without TLS here")
    cache = store.cache(tmp_path / "cache")
    size = len(store.shards[0])
    for _ in range(4):
        store.proxy.faults.append(("corrupt", store.rng.randrange(size // 2, size)))
    check_samples(TarImages(store.url(), cache=cache), store.files)
    assert store.proxy.struck
    counts = cache.counts()
    assert counts["retries"] + counts["mismatches"] >= 1


def test_what_a_disk_has_lost_is_fetched_again(store, tmp_path):
    folder = tmp_path / "cache"
    TarImages(store.url(), cache=store.cache(folder))
    lost = sorted(folder.glob("*.tar"))[2]
    os.truncate(lost, 5000)
    cache = store.cache(folder)
    check_samples(TarImages(store.url(), cache=cache), store.files)
    assert cache.counts()["fetched"] == 1


@pytest.fixture
def changing(store, tmp_path):
    """A shard of its own, which a test may change: (the URL, a function that puts the shard there)."""
    folder = tmp_path.name  # another one for each test

    def put(content, name="own.tar"):
        store.server.put(f"{folder}/{name}", content)

    put(store.shards[0])
    return store.url(f"/{folder}/own.tar"), put


def test_a_shard_that_changes_is_another_one(store, changing, tmp_path):
    url, put = changing
    cache = store.cache(tmp_path / "cache")
    old = TarImages(url, cache=cache)
    put(store.shards[1])
    new = TarImages(url, cache=cache)
    check_samples(old, store.files[:EACH])
    check_samples(new, store.files[EACH : 2 * EACH])


def test_a_shard_that_changes_while_it_is_read_by_ranges(store, changing, tmp_path):
    url, put = changing
    cache = store.cache(tmp_path / "cache", len(store.shards[0]) // 2)
    with pytest.raises(Error, match=r"own\.tar has \d+ bytes, more than the \d+ of the cache"):
        TarImages(url, cache=cache)
    cache = store.cache(tmp_path / "cache", store.room_for(1))
    dataset = TarImages([url, store.url("/train/x-0001.tar")], cache=cache)
    for path in (tmp_path / "cache").glob("*.tar"):
        path.unlink()
    put(store.shards[1])
    with pytest.raises(ChangedObject, match=r"own\.tar has changed since its dataset was made"):
        dataset.image_bytes(0)
    assert dataset.image_bytes(EACH) == store.files[EACH][0]


# --- indices -------------------------------------------------------------------------------------------

BESIDE = "own.tar.fastloader-tar"


def index_of(content, folder):
    """What `TarImages` keeps beside a local shard."""
    path = folder / "local.tar"
    path.write_bytes(content)
    TarImages(path)
    return (folder / "local.tar.fastloader-tar").read_bytes()


def changed(index, **arrays):
    """An index of somebody's making."""
    with np.load(io.BytesIO(index)) as file:
        there = {name: file[name] for name in file.files}
    out = io.BytesIO()
    np.savez(out, **{**there, **arrays})
    return out.getvalue()


def sizes_of(index, change):
    with np.load(io.BytesIO(index)) as file:
        return file["sizes"] + np.uint64(change)


@pytest.fixture
def urls(store, changing):
    """The shard that may be changed, and another one: the cache of `small` has room for one."""
    return [changing[0], store.url("/train/x-0001.tar")]


def small(store, folder):
    return store.cache(folder, store.room_for(1))


def test_an_index_beside_the_shard_in_the_store(store, changing, urls, tmp_path):
    _url, put = changing
    put(index_of(store.shards[0], tmp_path), BESIDE)
    cache = small(store, tmp_path / "cache")
    dataset = TarImages(urls, cache=cache)
    assert cache.counts()["fetched"] == 1  # the shard without one
    check_samples(dataset, store.files[: 2 * EACH])
    put(b"PK\x03\x04 no index", BESIDE)
    with pytest.raises(
        DamagedTar, match=r"/own\.tar\.fastloader-tar is damaged, or the index of an"
    ):
        TarImages(urls, cache=small(store, tmp_path / "another"))


def test_an_index_of_a_shard_of_other_labels(store, changing, urls, tmp_path):
    """Which has the same size, and was uploaded before the index."""
    _url, put = changing
    size = len(store.shards[0])
    index = index_of(store.shards[0], tmp_path)
    content, files = make_shard(store.rng, tmp_path, 0, pictures=store.files[:EACH], first=1)
    assert len(content) == size
    put(content)
    put(index, BESIDE)
    with pytest.raises(
        DamagedTar, match=r"own\.tar\.fastloader-tar is damaged, or the index of an"
    ):
        TarImages(urls, cache=small(store, tmp_path / "cache"))
    put(index_of(content, tmp_path), BESIDE)
    dataset = TarImages(urls, cache=small(store, tmp_path / "cache"))
    check_samples(dataset, files + store.files[EACH : 2 * EACH])


def test_a_page_in_the_place_of_an_index(store, changing, urls, tmp_path):
    """Some web servers have one for all names. A store of objects has what was put there."""
    _url, put = changing
    put(b"<html>There is no such file.</html>", BESIDE)
    cache = small(store, tmp_path / "cache")
    if store.kind == "https":
        check_samples(TarImages(urls, cache=cache), store.files[: 2 * EACH])
        return
    with pytest.raises(
        DamagedTar, match=r"own\.tar\.fastloader-tar is damaged, or the index of an"
    ):
        TarImages(urls, cache=cache)


class NoLength(http.server.BaseHTTPRequestHandler):
    """Says of each name that there is such a page, and not how long it is."""

    protocol_version = "HTTP/1.1"

    def do_HEAD(self):
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()

    def log_message(self, *_args):
        pass


def test_a_page_of_no_length(tmp_path):
    """It is no file, and that is known at once. What asks for an index does without."""
    pytest.importorskip("obstore")
    cache = ShardCache(tmp_path, timeout=1000)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), NoLength) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with pytest.raises(
            Refused, match=r"/a\.tar: GenericError: .*Content-Length Header missing"
        ):
            cache.connection.head(f"http://127.0.0.1:{server.server_port}/a.tar")
        server.shutdown()
    assert cache.counts()["retries"] == 0


def test_an_index_that_is_wrong_can_be_repaired(store, changing, urls, tmp_path):
    """As the message says: the one that was kept from last time does not stand in its way."""
    _url, put = changing
    right = index_of(store.shards[0], tmp_path)
    put(changed(right, sizes=sizes_of(right, 1)), BESIDE)
    dataset = TarImages(urls, cache=small(store, tmp_path / "cache"))
    for path in (tmp_path / "cache").glob("*.tar"):
        path.unlink()
    with pytest.raises(
        DamagedTar, match=r"no file of the size .*: make the dataset anew\. If that"
    ):
        dataset.image_bytes(0)
    put(right, BESIDE)
    dataset = TarImages(urls, cache=small(store, tmp_path / "cache"))
    check_samples(dataset, store.files[: 2 * EACH])


def test_a_shard_that_the_disk_has_changed(store, urls, tmp_path):
    cache = small(store, tmp_path / "cache")
    dataset = TarImages(urls, cache=cache)
    cache.fetch(dataset.shard_numbers()[1][0].object).close()
    (kept,) = (tmp_path / "cache").glob("*own.tar")
    before = kept.stat()
    with open(kept, "r+b") as file:
        file.write(b"?" * 2048)
    os.utime(kept, ns=(before.st_atime_ns, before.st_mtime_ns))
    with pytest.raises(DamagedTar, match="What the cache had of both is removed"):
        dataset.image_bytes(0)
    assert not kept.exists()
    check_samples(dataset, store.files[: 2 * EACH])
    check_samples(TarImages(urls, cache=cache), store.files[: 2 * EACH])


def test_an_index_of_a_shard_without_samples(store, changing, urls, tmp_path):
    """It is an index as any other: nothing is asked for beside the shards' versions."""
    _url, put = changing
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w"):
        pass
    put(out.getvalue())
    urls.append(store.url("/train/x-0002.tar"))
    TarImages(urls, cache=small(store, tmp_path / "cache"))
    for path in (tmp_path / "cache").glob("*.tar"):
        path.unlink()
    cache = small(store, tmp_path / "cache")
    dataset = TarImages(urls, cache=cache)
    assert len(dataset) == 2 * EACH
    assert cache.counts() == {**dict.fromkeys(cache.counts(), 0), "requests": 3}


@pytest.mark.parametrize(
    "whose",
    [
        np.zeros(0, np.int64),
        np.ones(1, np.int64),
        np.int64(1),
        "short",
        "long",
        "float",
        "text",
    ],
    ids=str,
)
def test_an_index_of_anybodys_making(tmp_path, whose):
    rng = random.Random(os.urandom(8))
    content, files = make_shard(rng, tmp_path, 0)
    index = index_of(content, tmp_path)
    with np.load(io.BytesIO(index)) as file:
        said = file["whose"]
    others = {
        "short": said[:2],
        "long": np.append(said, 0),
        "float": said.astype(float),
        "text": said.astype(str),
    }
    kept = tmp_path / "local.tar.fastloader-tar"
    labels = np.full(EACH, 77)
    made = others[whose] if isinstance(whose, str) else whose
    kept.write_bytes(changed(index, whose=made, labels=labels))
    check_samples(TarImages(tmp_path / "local.tar"), files)
    # The same with the right mark is believed.
    kept.write_bytes(changed(index, labels=labels))
    assert TarImages(tmp_path / "local.tar").targets.tolist() == labels.tolist()


def test_an_index_that_is_compressed(tmp_path):
    """A few bytes of it could stand for gigabytes."""
    rng = random.Random(os.urandom(8))
    content, files = make_shard(rng, tmp_path, 0)
    with np.load(io.BytesIO(index_of(content, tmp_path))) as file:
        arrays = {**{name: file[name] for name in file.files}, "labels": np.full(EACH, 77)}
    np.savez_compressed(tmp_path / "index.npz", **arrays)
    (tmp_path / "index.npz").replace(tmp_path / "local.tar.fastloader-tar")
    check_samples(TarImages(tmp_path / "local.tar"), files)


def test_what_is_no_tar(store, changing, tmp_path):
    url, put = changing
    put(b"x" * 3000)
    with pytest.raises(DamagedTar, match=r"^(https|s3|az)://.*own\.tar"):
        TarImages(url, cache=store.cache(tmp_path / "cache"))
    put(store.shards[0][:5000])
    with pytest.raises(DamagedTar, match=r"^(https|s3|az)://.*own\.tar"):
        TarImages(url, cache=store.cache(tmp_path / "cache"))
    # Nothing stays in the cache that may have been harmed on the way.
    assert not list((tmp_path / "cache").glob("*own.tar"))


def test_fsspec_where_obstore_has_no_driver(tmp_path):
    fsspec = pytest.importorskip("fsspec")
    rng = random.Random(os.urandom(8))
    content, files = make_shard(rng, tmp_path, 0)
    other, more = make_shard(rng, tmp_path, 1)
    files += more
    memory = fsspec.filesystem("memory")
    memory.pipe({"/own/x-0.tar": content, "/own/x-1.tar": other})
    try:
        room = int(max(len(content), len(other)) * 1.5)
        for number, most in enumerate((None, room)):
            dataset = TarImages(
                "memory://own/x-*.tar", cache=ShardCache(tmp_path / f"{number}", most)
            )
            assert dataset.mapped == (most is None)
            check_samples(dataset, files)
        for path in (tmp_path / "1").glob("*.tar"):
            path.unlink()
        memory.pipe({"/own/x-0.tar": content + b"more"})
        with pytest.raises(ChangedObject, match=r"memory://own/x-0\.tar has changed"):
            dataset.image_bytes(0)
        with pytest.raises(FileNotFoundError, match=r"memory://own/y\.tar does not exist"):
            TarImages("memory://own/y.tar", cache=ShardCache(tmp_path))
    finally:
        memory.rm("/own", recursive=True)


@pytest.fixture
def in_memory(tmp_path):
    """(fsspec's file system, its class, a cache with room for one shard, the shards' files)"""
    fsspec = pytest.importorskip("fsspec")
    rng = random.Random(os.urandom(8))
    (content, files), (other, more) = (make_shard(rng, tmp_path, shard) for shard in range(2))
    memory = fsspec.filesystem("memory")
    memory.pipe({"/own/x-0.tar": content, "/own/x-1.tar": other})
    most = int(max(len(content), len(other)) * 1.5)
    yield memory, type(memory), ShardCache(tmp_path / "cache", most), files + more
    memory.rm("/own", recursive=True)


def test_a_shard_that_changes_while_fsspec_reads_it(in_memory, monkeypatch):
    memory, kind, cache, files = in_memory
    dataset = TarImages("memory://own/x-*.tar", cache=cache)
    check_samples(dataset, files)
    for path in os.scandir(cache.folder):
        if path.name.endswith(".tar"):
            os.unlink(path)
    read = kind.cat_file

    def changes_behind(self, path, **options):
        found = read(self, path, **options)
        memory.pipe(path, bytes(5000))
        return found

    monkeypatch.setattr(kind, "cat_file", changes_behind)
    with pytest.raises(ChangedObject, match=r"memory://own/x-0\.tar has changed"):
        dataset.image_bytes(0)


def test_a_file_system_that_remembers_versions(in_memory, monkeypatch):
    """Until it is told to forget."""
    memory, kind, cache, files = in_memory
    asked, known = kind.info, {}
    monkeypatch.setattr(kind, "info", lambda self, path: known.setdefault(path, asked(self, path)))
    monkeypatch.setattr(kind, "invalidate_cache", lambda self, path=None: known.clear())
    dataset = TarImages("memory://own/x-{0,1}.tar", cache=cache)
    check_samples(dataset, files)
    for path in os.scandir(cache.folder):
        if path.name.endswith(".tar"):
            os.unlink(path)
    memory.pipe("/own/x-0.tar", bytes(5000))
    with pytest.raises(ChangedObject, match=r"memory://own/x-0\.tar has changed"):
        dataset.image_bytes(0)
