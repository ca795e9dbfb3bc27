"""URLs of object stores, the lists and requests that become of them, and a `ShardCache`'s options."""

import os
import random
import shutil
import sys
from urllib.parse import quote

import pytest
from remote_shards import EACH, check_batches, check_samples

import fastloader.transforms as T
from fastloader import FastLoader
from fastloader.datasets import ImageFolder, LMDBDataset, ShardCache, TarImages
from fastloader.datasets._remote import object_store
from fastloader.errors import Error


def test_a_shard_that_is_missing(store, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"/train/x-0005\.tar does not exist"):
        TarImages(store.url("/train/x-{0004..0005}.tar"), cache=store.cache(tmp_path / "cache"))


def test_a_pattern(store, tmp_path):
    """Of a web server. test_remote_lists.py has those of stores."""
    if store.kind != "https":
        pytest.skip("is of web servers")
    with pytest.raises(ValueError, match="web servers have no lists of files"):
        TarImages(store.url("/train/x-000[13].tar"), cache=store.cache(tmp_path / "cache"))


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "name", ["a b.tar", "a%20b.tar", "100%.tar", "ü#?&+;=.tar", "a%2541.tar", "[x]{y}^~|<>.tar"]
)
def test_names_that_a_url_quotes(store, tmp_path, name):
    """A web server's URL is quoted. The names of objects in other stores stand as they are."""
    if store.kind == "https":
        store.server.put(f"odd/{name}", store.shards[0])
        urls = [store.url(f"/odd/{quote(name)}")]
        if not set(name) & set("%#?[{"):
            urls.append(store.url(f"/odd/{name}"))
    else:
        name = name.translate(str.maketrans("?[]{}", "-----"))  # which a pattern would have
        store.server.put(f"odd/{name}", store.shards[0])
        urls = [store.url(f"/odd/{name}")]
    for number, url in enumerate(urls):
        for most in (None, store.room_for(1)):
            cache = store.cache(tmp_path / f"{number}{most}", most)
            dataset = TarImages([url, store.url("/train/x-0001.tar")], cache=cache)
            for path in (tmp_path / f"{number}{most}").glob("*.tar"):
                most and path.unlink()
            check_samples(dataset, store.files[: 2 * EACH])


def test_a_server_that_is_not_there(store, tmp_path):
    options = store.server.options(1)
    cache = ShardCache(tmp_path / "cache", storage_options=options, timeout=0.3)
    url = store.server.url(1) + "/own.tar"
    with pytest.raises(
        Error, match=r"own\.tar: gave up after 3 attempts: .*\(Connection refused\)"
    ):
        TarImages(url, cache=cache)
    assert cache.counts()["retries"] == 2


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("s3://user:secret@bucket/a.tar", r"^s3://bucket/a\.tar was given with user or password"),
        (
            "https://host/a.tar?X-Amz-Signature=secret",
            r"^https://host/a\.tar was given with a query",
        ),
        ("https://host?sig=secret", r"^https://host was given with a query"),
        ("https:///a.tar", "names no bucket and no host"),
        ("s3://b/a.tar?X-Amz-Signature=secret", r"^s3://b/a\.tar was given with a query"),
        ("s3://b/a.tar?versionId=1&x-amz-credential=secret", r"^s3://b/a\.tar was given with a q"),
        ("gs://b/a.tar?X-Goog-Signature=secret", r"^gs://b/a\.tar was given with a query"),
        ("az://b/a.tar?sv=1&sig=secret", r"^az://b/a\.tar was given with a query"),
        ("hf://b/a.tar?token=secret", r"^hf://b/a\.tar was given with a query"),
        ("s3://me:secret@b/a@b.tar?sig=secret", r"^s3://b/a@b\.tar was given with user"),
    ],
)
def test_urls_that_are_refused(tmp_path, url, message):
    cache = ShardCache(tmp_path)
    local = tmp_path / "local.tar"
    local.write_bytes(b"")
    for make in (
        lambda: TarImages(url, cache=cache),
        lambda: TarImages([local, url], cache=cache),
        lambda: LMDBDataset(url, cache=cache),
        lambda: ImageFolder(url, cache=cache),
    ):
        with pytest.raises(ValueError, match=message) as caught:
            make()
        assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_bytes": 0}, "max_bytes=0"),
        ({"timeout": 0}, "timeout=0"),
        ({"timeout": 1e9}, "timeout="),
    ],
)
def test_caches_that_are_refused(tmp_path, options, message):
    with pytest.raises(ValueError, match=message):
        ShardCache(tmp_path, **options)


def test_the_defaults_of_a_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("FASTLOADER_CACHE", str(tmp_path / "here"))
    free = shutil.disk_usage(tmp_path).free
    cache = ShardCache()
    assert cache.folder == str(tmp_path / "here")
    assert 0.3 * free < cache.max_bytes < 0.7 * free
    monkeypatch.delenv("FASTLOADER_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert ShardCache().folder == str(tmp_path / "xdg" / "fastloader")


def test_without_obstore(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "obstore.store", None)
    with pytest.raises(ImportError, match=r"object stores need obstore: pip install obstore"):
        TarImages("s3://bucket/a.tar", cache=ShardCache(tmp_path))


def test_requests_for_places():
    """Against what reads the places one by one, with random places."""
    rng = random.Random(os.urandom(8))
    for _ in range(200):
        content = rng.randbytes(5000)
        places = []
        for _ in range(rng.randrange(1, 12)):
            offset = rng.randrange(5000)
            places.append((offset, rng.randrange(0, 5001 - offset)))
        parts = object_store.coalesced(places)
        assert all(0 < end - begin <= object_store.PART for begin, end in parts)
        there = [begin for begin, _end in parts]
        assert there == sorted(there)
        for offset, size in places:
            read = b"".join(
                content[max(begin, offset) : min(end, offset + size)]
                for begin, end in parts
                if begin < offset + size and offset < end
            )
            assert read == content[offset : offset + size]


@pytest.fixture
def small_parts(monkeypatch):
    monkeypatch.setattr(object_store, "PART", 700)
    monkeypatch.setattr(object_store, "GAP", 100)


def test_requests_for_places_of_small_parts(small_parts):
    test_requests_for_places()
    assert object_store.coalesced([(0, 10), (110, 10)]) == [(0, 120)]
    assert object_store.coalesced([(0, 10), (111, 10)]) == [(0, 10), (111, 121)]
    assert object_store.coalesced([(0, 800)]) == [(0, 700), (700, 800)]
    assert object_store.coalesced([(5, 0)]) == []


@pytest.mark.exhaustive
def test_pictures_that_several_requests_bring(store, tmp_path, small_parts):
    cache = store.cache(tmp_path / "cache", store.room_for(1))
    dataset = TarImages(store.url(), T.Resize((24, 20)), cache=cache)
    for path in (tmp_path / "cache").glob("*.tar"):
        path.unlink()
    check_samples(dataset, store.files)
    loader = FastLoader(dataset, 9, shuffle=True, num_workers=2, worker_backend="thread")
    check_batches(loader, store.files)
