"""`TarImages` from object stores: real servers over a socket, and what lies between that does harm."""

import contextlib

import pytest
from remote_shards import EACH, SHARDS, check_batches, check_samples
from torch.utils.data import DataLoader, Subset

import fastloader.transforms as T
from fastloader import FastLoader
from fastloader._core.machine import extension
from fastloader._core.machine.messages import Progress
from fastloader.datasets import TarImages
from fastloader.datasets._remote import object_store, remote_tar, shard_cache
from fastloader.errors import Error

pytestmark = pytest.mark.covering


@pytest.mark.exhaustive
def test_all_shards_in_the_cache(store, tmp_path):
    cache = store.cache(tmp_path / "cache")
    dataset = TarImages(store.url(), T.Resize((24, 20)), cache=cache)
    assert dataset.mapped
    assert cache.counts()["bytes"] == sum(map(len, store.shards))
    check_samples(dataset, store.files)
    loader = FastLoader(dataset, 6, shuffle=True, num_workers=2)
    if extension.load() is not None:
        assert loader.plan().startswith(
            "native images: fastloader TarImages (all shards in the cache)"
        )
    order = check_batches(loader, store.files)
    assert order != sorted(order)
    assert loader.stats()["remote"] == cache.counts()
    again = store.cache(tmp_path / "cache")
    check_samples(TarImages(store.url(), cache=again), store.files)
    assert again.counts()["bytes"] == again.counts()["fetched"] == 0


def test_fetching_shows_how_far_it_is(store, tmp_path, monkeypatch):
    """Of the shards that are in the cache already, no time is told."""
    shown = []

    class Noted(Progress):
        def step(self, count=1, anew=True):
            shown[-1][anew] += count
            super().step(count, anew)

    @contextlib.contextmanager
    def noted(what, total, unit, after):
        shown.append({True: 0, False: 0})
        assert (what, total, unit) == ("fetching shards", sum(map(len, store.shards)), "bytes")
        yield Noted(what, total, unit, after, 0)

    monkeypatch.setattr(remote_tar, "progress", noted)
    for _ in range(2):
        TarImages(store.url(), cache=store.cache(tmp_path / "cache"))
    whole = sum(map(len, store.shards))
    assert shown == [{True: whole, False: 0}, {True: 0, False: whole}]


@pytest.mark.parametrize("backend", ["thread", "loop"])
def test_shards_that_are_more_than_the_cache_holds(store, tmp_path, backend):
    cache = store.cache(tmp_path / "cache", store.room_for(2))
    dataset = TarImages(store.url(), T.Resize((24, 20)), cache=cache)
    assert not dataset.mapped
    check_samples(dataset, store.files)
    workers = {"num_workers": 2, "worker_backend": "thread"} if backend == "thread" else {}
    loader = FastLoader(dataset, 6, shuffle=True, **workers)
    if extension.load() is not None:
        assert "more than their cache has room for" in loader.plan()
    check_batches(loader, store.files)
    held = sum(path.stat().st_size for path in (tmp_path / "cache").iterdir())
    assert held <= cache.max_bytes
    assert loader.stats()["remote"]["evicted"] >= SHARDS - 2


def test_in_a_plain_dataloader(store, tmp_path):
    cache = store.cache(tmp_path / "cache", store.room_for(2))
    dataset = TarImages(store.url(), T.Resize((24, 20)), cache=cache)
    check_batches(DataLoader(Subset(dataset, range(len(dataset))), 7), store.files)


def test_columns(store, tmp_path):
    for most in (None, store.room_for(1)):
        cache = store.cache(tmp_path / f"{most}", most)
        dataset = TarImages(
            store.url(), T.Resize((24, 20)), columns=["txt"], as_dict=True, cache=cache
        )
        seen = {}
        for batch in FastLoader(dataset, 6, num_workers=2, worker_backend="thread"):
            seen.update(zip(batch["labels"].tolist(), batch["txt"], strict=True))
        assert seen == {label: text for _, label, text in store.files}


@pytest.mark.exhaustive
@pytest.mark.parametrize("context", ["fork", "forkserver"])
def test_worker_processes(store, tmp_path, context):
    """obstore's threads do not live on in a forked child: it reads what is in the cache, and no more."""
    whole = TarImages(store.url(), T.Resize((24, 20)), cache=store.cache(tmp_path / "all"))
    loader = DataLoader(whole, 6, num_workers=2, multiprocessing_context=context)
    check_batches(loader, store.files)
    cache = store.cache(tmp_path / "some", store.room_for(2))
    part = TarImages(store.url(), T.Resize((24, 20)), cache=cache)
    loader = FastLoader(part, 6, num_workers=2, multiprocessing_context=context)
    if context == "forkserver":
        check_batches(loader, store.files)
        return
    with pytest.raises(Error, match=r'a forked process cannot read .* worker_backend="thread"'):
        list(loader)


def test_neighbours_share_a_request(store, tmp_path):
    cache = store.cache(tmp_path / "cache", store.room_for(1))
    dataset = TarImages(store.url(), cache=cache)
    for path in (tmp_path / "cache").glob("*.tar"):
        path.unlink()
    before = cache.counts()
    samples = dataset.__getitems__(list(range(EACH)))
    assert [label for _, label in samples] == list(range(EACH))
    after = cache.counts()
    assert after["requests"] - before["requests"] == 1
    assert after["bytes"] - before["bytes"] < len(store.shards[0])


# --- harm on the way -----------------------------------------------------------------------------------

KINDS = ["cut", "reset", "stall", "reset", "cut", "cut"]


@pytest.mark.exhaustive
@pytest.mark.parametrize("room", ["all", "one"])
def test_harm_on_the_way(store, tmp_path, room, monkeypatch):
    monkeypatch.setattr(shard_cache, "PART", 20_000)
    # All may strike one request. With the pauses as they are, it gives up at the last one.
    monkeypatch.setattr(object_store, "_FIRST_PAUSE", 0.01)
    cache = store.cache(tmp_path / "cache", None if room == "all" else store.room_for(1), timeout=6)
    size = len(store.shards[0])
    store.proxy.delay = 0.002
    store.proxy.faults.extend((kind, store.rng.randrange(1, size)) for kind in KINDS)
    dataset = TarImages(store.url(), T.Resize((24, 20)), cache=cache)
    check_samples(dataset, store.files)
    for kind in KINDS:
        store.proxy.faults.append((kind, store.rng.randrange(1, 5000)))
    if room == "one":
        check_batches(FastLoader(dataset, 6, num_workers=2, worker_backend="thread"), store.files)
        assert len(store.proxy.struck) > len(KINDS)
    assert store.proxy.struck[: len(KINDS)] == KINDS
    assert cache.counts()["retries"] >= len(store.proxy.struck) - 1
    store.proxy.faults.clear()
    assert not list((tmp_path / "cache").glob("*.part"))


@pytest.mark.exhaustive
def test_harm_of_one_request(store, tmp_path, monkeypatch):
    """All that strikes anywhere above strikes the first request of a shard here."""
    monkeypatch.setattr(object_store, "_FIRST_PAUSE", 0.01)
    store.proxy.faults.extend((kind, 1) for kind in KINDS)
    cache = store.cache(tmp_path / "cache", timeout=6)
    dataset = TarImages(store.url("/train/x-0001.tar"), cache=cache)
    assert store.proxy.struck == KINDS
    assert cache.counts()["retries"] >= len(KINDS) - 1
    check_samples(dataset, store.files[EACH : 2 * EACH])
