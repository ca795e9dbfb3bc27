"""Lists of objects: what is asked for, and a list that breaks off."""

import os
import random

import pytest
from remote_shards import EACH, check_samples

from fastloader.datasets import ShardCache, TarImages
from fastloader.datasets._remote import object_store
from fastloader.datasets._remote.object_store import ObstoreBucket, RemoteObject
from fastloader.errors import Error


@pytest.fixture
def listing(store):
    if store.kind == "https":
        pytest.skip("web servers have no lists")
    return store


@pytest.mark.exhaustive
def test_a_pattern(listing, tmp_path):
    url = listing.url("/train/x-000[13].tar")
    cache = listing.cache(tmp_path / "cache")
    odd = listing.files[EACH : 2 * EACH] + listing.files[3 * EACH : 4 * EACH]
    check_samples(TarImages(url, cache=cache), odd)
    scheme, rest = url.split("://")
    check_samples(TarImages(f"{scheme.upper()}://{rest}", cache=cache), odd)
    with pytest.raises(FileNotFoundError, match=r"x-9\*\.tar: no object matches"):
        TarImages(listing.url("/train/x-9*.tar"), cache=cache)


@pytest.mark.parametrize(
    ("pattern", "deep"),
    [("/lists/x-*.tar", False), ("/lists/*/x-1*.tar", True), ("/l?sts/in/*-1.tar", True)],
)
def test_what_is_listed_for_a_pattern(listing, tmp_path, monkeypatch, pattern, deep):
    """One folder, where the pattern has no further one, however much lies below that."""
    for name in ("x-0.tar", "x-1.tar", "in/x-1.tar", "in/x-2.tar", "in/deep/x-1.tar"):
        listing.server.put(f"lists/{name}", listing.shards[0])
    below, asked = ObstoreBucket.below, []
    pages = []

    def watched(self, path, after, deep):
        asked.append(deep)
        for page in below(self, path, after, deep):
            pages.extend(page)
            yield page

    monkeypatch.setattr(ObstoreBucket, "below", watched)
    cache = listing.cache(tmp_path / "cache")
    found = [each.url for each in cache.objects([listing.url(pattern)])]
    wanted = ["x-0.tar", "x-1.tar"] if not deep else ["in/x-1.tar"]
    assert found == [listing.url(f"/lists/{name}") for name in wanted]
    assert asked == [deep]
    assert deep or len(pages) == 2


@pytest.mark.parametrize("url", ["s3://buck*/a.tar", "gs://b[ab]/a-*.tar", "https://ho?t/a.tar"])
def test_a_pattern_in_the_name_of_a_bucket(tmp_path, url):
    with pytest.raises(ValueError, match=r"a pattern in the name of its bucket|given with a query"):
        TarImages(url, cache=ShardCache(tmp_path))


class Pages:
    """A bucket with a list in pages, of which some requests fail."""

    def __init__(self, names, size, failures):
        self.names, self.size, self.failures = names, size, failures
        self.listed = 0

    def below(self, path, after, deep):
        names = [each for each in self.names if after is None or each > after]
        for begin in range(0, len(names), self.size):
            if self.failures and self.failures.pop(0):
                raise ConnectionError("gone")
            page = names[begin : begin + self.size]
            self.listed += len(page)
            yield [RemoteObject(f"s3://b/{each}", 1, None, 0) for each in page]


@pytest.mark.parametrize("ordered", [True, False])
def test_a_list_goes_on_where_a_page_failed(tmp_path, monkeypatch, ordered):
    rng = random.Random(os.urandom(8))
    monkeypatch.setattr(object_store.time, "sleep", lambda _seconds: None)
    for _ in range(20):
        names = sorted({f"x/{rng.randrange(10**6)}" for _ in range(200)})
        if not ordered:
            rng.shuffle(names)
        failures = [rng.random() < 0.3 for _ in range(60)]
        pages = Pages(names, rng.randrange(5, 40), list(failures))
        monkeypatch.setattr(object_store, "open_bucket", lambda *_, pages=pages: pages)
        cache = ShardCache(tmp_path, timeout=1000)
        odd = [name for name in names if int(name[2:]) % 2]
        found = cache.connection.below("s3://b/x", lambda each: int(each.path[2:]) % 2 == 1)
        assert [each.path for each in found] == odd
        assert pages.listed == len(names) or not ordered
        assert cache.counts()["retries"] == sum(failures) - sum(pages.failures)


def test_each_page_has_attempts_of_its_own(tmp_path, monkeypatch):
    """Here each page fails twice, which is more than a request may in all."""
    now = [0.0]
    monkeypatch.setattr(object_store.time, "sleep", lambda seconds: None)
    monkeypatch.setattr(
        object_store.time, "monotonic", lambda: now.__setitem__(0, now[0] + 1) or now[0]
    )
    names = [f"x/{number:03}" for number in range(50)]
    pages = Pages(names, 5, [True, True, False] * 20)
    monkeypatch.setattr(object_store, "open_bucket", lambda *_: pages)
    cache = ShardCache(tmp_path, timeout=0.1)
    assert [each.path for each in cache.connection.below("s3://b/x")] == names
    pages = Pages(names, 5, [False, True, True, True])
    cache = ShardCache(tmp_path, timeout=0.1)
    with pytest.raises(Error, match=r"s3://b/x: gave up after 3 attempts"):
        cache.connection.below("s3://b/x")
