"""`ShardwiseSampler` of shards in a store: they come before they are wanted, and stay while they are."""

import threading
import warnings

import object_stores
import pytest
import torch
from remote_shards import tar_of
from torch.utils.data import DataLoader

from fastloader._core.machine import limits
from fastloader.datasets import ShardCache, ShardwiseSampler, TarImages
from fastloader.datasets._remote.cache_folder import CacheFolder, CacheFull
from fastloader.datasets._remote.object_store import ChangedObject
from fastloader.datasets.shardwise import FetchAhead
from support import eventually

SHARDS, EACH = 12, 5


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    work = tmp_path_factory.mktemp("s3")
    server = object_stores.started("s3", work)
    for shard in range(SHARDS):
        numbers = range(shard * EACH, (shard + 1) * EACH)
        server.put(f"x-{shard:04}.tar", tar_of(numbers))
    yield server
    server.close()


def remote(server, folder, shards):
    size = len(tar_of(range(EACH)))
    room = int(size * (shards + 0.5)) + 100_000  # which is for the indices
    cache = ShardCache(folder, room, storage_options=server.options(), timeout=5)
    urls = [f"{server.url()}/x-{shard:04}.tar" for shard in range(SHARDS)]
    return TarImages(urls, cache=cache)


def names(folder):
    return {path.name[-8:-4] for path in folder.glob("*.tar")}


def test_each_shard_is_fetched_once_and_before_it_is_wanted(server, tmp_path):
    dataset = remote(server, tmp_path / "cache", 6)
    before = dataset.cache.counts()
    for path in (tmp_path / "cache").glob("*.tar"):
        path.unlink()
    numbers, _shards = dataset.shard_numbers()
    seen = []
    for index in ShardwiseSampler(dataset, buffer=2):
        assert f"{numbers[index]:04}" in names(tmp_path / "cache")
        assert dataset.image_bytes(index) == b"%d" % index
        seen.append(index)
    assert sorted(seen) == list(range(SHARDS * EACH))
    counts = dataset.cache.counts()
    assert counts["fetched"] - before["fetched"] == SHARDS
    assert counts["requests"] - before["requests"] == SHARDS


def test_what_comes_ahead(server, tmp_path):
    """The shards of the next group come while this one is read, and no others."""
    dataset = remote(server, tmp_path / "cache", 6)
    for path in (tmp_path / "cache").glob("*.tar"):
        path.unlink()
    numbers, _shards = dataset.shard_numbers()
    sampler = ShardwiseSampler(dataset, buffer=2)
    shards = [f"{shard:04}" for shard in dict.fromkeys(numbers[sampler.order(0)])]
    indices = iter(sampler)
    next(indices)
    eventually(
        lambda: names(tmp_path / "cache") == set(shards[:4]), lambda: "two groups in the cache"
    )
    assert list((tmp_path / "cache").glob("*.part")) == []
    for _ in range(2 * EACH):
        next(indices)
    eventually(
        lambda: names(tmp_path / "cache") == set(shards[:6]), lambda: "three groups in the cache"
    )
    indices.close()


def test_the_shards_in_use_stay(server, tmp_path):
    """Those of the group before, which workers may still read, of this one and of the next one. What
    needs their room does not get it."""
    dataset = remote(server, tmp_path / "cache", 6)
    for path in (tmp_path / "cache").glob("*.tar"):
        path.unlink()
    indices = iter(ShardwiseSampler(dataset, buffer=2))
    for _ in range(2 * EACH + 1):
        next(indices)
    eventually(lambda: len(names(tmp_path / "cache")) == 6, lambda: "three groups in the cache")
    size = len(tar_of(range(EACH)))
    other = CacheFolder(str(tmp_path / "cache"), 6 * size)
    with pytest.raises(CacheFull, match="has no room"):
        make(other, f"{1:024x}-other", size)
    assert len(names(tmp_path / "cache")) == 6
    indices.close()
    make(other, f"{1:024x}-other", size)


def make(folder, name, size):
    folder.make(name, size, 0, lambda _descriptor: None, threading.Event())[0].close()


def test_forked_workers_read_what_was_fetched(server, tmp_path):
    dataset = remote(server, tmp_path / "cache", 6)
    sampler = ShardwiseSampler(dataset, buffer=2)
    loader = DataLoader(
        Contents(dataset), 2, sampler=sampler, num_workers=1, multiprocessing_context="fork"
    )
    for _epoch in range(2):
        found = [int(each) for batch in loader for each in batch]
        assert sorted(found) == list(range(SHARDS * EACH))


class Contents(torch.utils.data.Dataset):
    """What each file of a dataset has in it, which is its number."""

    def __init__(self, dataset):
        self.dataset = dataset

    def __len__(self):
        return len(self.dataset)

    def __getitem__(self, index):
        return int(self.dataset.image_bytes(index))


def test_an_error_of_fetching_is_raised_where_the_index_is_drawn(server, tmp_path):
    dataset = remote(server, tmp_path / "cache", 6)
    for path in (tmp_path / "cache").glob("*.tar"):
        path.unlink()
    server.put("x-0003.tar", tar_of(range(100, 100 + EACH)))
    try:
        sampler = ShardwiseSampler(dataset, shuffle=False, buffer=2)
        seen = []
        with pytest.raises(ChangedObject, match=r"x-0003\.tar has changed"):
            for index in sampler:
                seen.append(index)
        assert seen == list(range(2 * EACH))
    finally:
        server.put("x-0003.tar", tar_of(range(3 * EACH, 4 * EACH)))


def test_a_cache_that_is_too_small_for_the_buffer(server, tmp_path):
    dataset = remote(server, tmp_path / "cache", 6)
    with pytest.raises(
        ValueError, match=r"buffer=8: 3 times .* 1 ranks .* Take buffer=\d+, or give"
    ):
        ShardwiseSampler(dataset)


def test_room_that_others_use_is_not_the_buffers(server, tmp_path):
    dataset = remote(server, tmp_path / "cache", 6)
    size = len(tar_of(range(EACH)))
    room = dataset.cache.max_bytes
    ShardwiseSampler(dataset, buffer=2)
    files = dataset.cache._files
    other, _ = files.make(f"{1:024x}-other", room - 5 * size, 0, lambda _: None, threading.Event())
    with pytest.raises(
        ValueError, match=rf"has {5 * size} of its {room} for them: .* Take buffer=1, or give"
    ):
        ShardwiseSampler(dataset, buffer=2)
    # Its own shards are in use of another rank, and there for this one as well.
    kept = [dataset.cache.fetch(shard.object) for shard in dataset.shard_numbers()[1][:4]]
    ShardwiseSampler(dataset, buffer=1)
    other.close()
    ShardwiseSampler(dataset, buffer=2)
    assert len(kept) == 4


@pytest.mark.parametrize(
    ("variables", "found"),
    [
        ({}, 4),
        ({"LOCAL_WORLD_SIZE": "2"}, 2),
        ({"SLURM_NTASKS": "4", "SLURM_STEP_TASKS_PER_NODE": "1,2(x2)"}, 2),
        ({"SLURM_NTASKS": "4", "SLURM_TASKS_PER_NODE": "1(x4)"}, 1),
        ({"SLURM_NTASKS": "4"}, 4),
        # One task, which starts the ranks itself.
        ({"SLURM_NTASKS": "1", "SLURM_TASKS_PER_NODE": "1"}, 4),
        ({"SLURM_NTASKS": "4", "SLURM_TASKS_PER_NODE": "1(x4)", "LOCAL_WORLD_SIZE": "3"}, 3),
    ],
)
def test_how_many_ranks_need_room_here(server, tmp_path, monkeypatch, variables, found):
    monkeypatch.setattr(limits, "_ranks_here", None)
    for name in ("LOCAL_WORLD_SIZE", "SLURM_NTASKS"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    dataset = remote(server, tmp_path / "cache", 6)
    needed = 3 * found * len(tar_of(range(EACH)))
    dataset.cache._files.most = needed
    ShardwiseSampler(dataset, 4, 0, buffer=1)
    dataset.cache._files.most = needed - 1
    with pytest.raises(ValueError, match=rf"buffer=1: 3 times .* each of {found} ranks"):
        ShardwiseSampler(dataset, 4, 0, buffer=1)


def test_fewer_groups_than_ranks(server, tmp_path, monkeypatch):
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "1")
    dataset = remote(server, tmp_path / "cache", 6)
    dataset.cache._files.most = 10**9
    with pytest.warns(RuntimeWarning, match=r"12 shards are 4 groups, fewer .* 5 ranks.*buffer=2"):
        ShardwiseSampler(dataset, 5, 0, buffer=3)
    with pytest.warns(
        RuntimeWarning, match=r"12 groups, fewer than the 13 ranks.*Write more shards"
    ):
        ShardwiseSampler(dataset, 13, 0, buffer=1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ShardwiseSampler(dataset, 4, 0, buffer=3)
        ShardwiseSampler(dataset, 6, 0, buffer=2)


def test_the_last_shards_of_an_epoch_stay_until_the_next_one(server, tmp_path):
    """Workers may still read them when all indices are drawn."""
    dataset = remote(server, tmp_path / "cache", 6)
    for path in (tmp_path / "cache").glob("*.tar"):
        path.unlink()
    sampler = ShardwiseSampler(dataset, buffer=2)
    list(sampler)
    cache = dataset.cache
    size = len(tar_of(range(EACH)))
    assert cache.room_for([]) == cache.max_bytes - 4 * size
    held = {f"{shard:04}" for shard in dataset.shard_numbers()[0][sampler.order(0)[-4 * EACH :]]}
    taken = CacheFolder(str(tmp_path / "cache"), 6 * size)
    make(taken, f"{1:024x}-other", 2 * size)
    assert held <= names(tmp_path / "cache")
    indices = iter(sampler)
    next(indices)
    wanted = {f"{shard:04}" for shard in dataset.shard_numbers()[0][sampler.order(1)[: 4 * EACH]]}
    eventually(lambda: wanted <= names(tmp_path / "cache"), lambda: "two groups in the cache")
    indices.close()
    eventually(lambda: cache.room_for([]) == cache.max_bytes, lambda: "nothing in use")


def test_nothing_comes_ahead_of_the_first_shards(server, tmp_path, monkeypatch):
    """It could take their room, and they would wait for what waits for them."""
    dataset = remote(server, tmp_path / "cache", 6)
    for path in (tmp_path / "cache").glob("*.tar"):
        path.unlink()
    there = []
    begin = FetchAhead.begin

    def watched(self, numbers):
        there.append((set(numbers), names(tmp_path / "cache")))
        begin(self, numbers)

    monkeypatch.setattr(FetchAhead, "begin", watched)
    indices = iter(ShardwiseSampler(dataset, shuffle=False, buffer=2))
    next(indices)
    assert there[0] == ({0, 1}, set())
    ahead = [found for numbers, found in there if numbers == {2, 3}]
    assert ahead and all(found >= {"0000", "0001"} for found in ahead)
    indices.close()


def test_two_epochs_at_a_time(server, tmp_path):
    """The one that ends first takes nothing from the other."""
    dataset = remote(server, tmp_path / "cache", 6)
    dataset.cache._files.most = 10**9
    sampler = ShardwiseSampler(dataset, buffer=2)
    first, second = iter(sampler), iter(sampler)
    begun = [next(first), next(second)]
    assert begun[1:] + list(second) == sampler.order(1)
    assert begun[:1] + list(first) == sampler.order(0)


def test_all_that_is_fetched_ahead_ends_with_the_epoch(server, tmp_path):
    """A thread that waits for room gives up when the epoch is left."""
    dataset = remote(server, tmp_path / "cache", 6)
    for path in (tmp_path / "cache").glob("*.tar"):
        path.unlink()
    files = dataset.cache._files
    sampler = ShardwiseSampler(dataset, buffer=2)
    files.patience, files.most = 10_000, files.used() + int(2.5 * len(tar_of(range(EACH))))
    indices = iter(sampler)
    next(indices)
    eventually(
        lambda: list((tmp_path / "cache").glob("*.part")), lambda: "a shard that waits for room"
    )
    found = [dataset.cache.find(shard.object) for shard in dataset.shard_numbers()[1]]
    assert any(found) and list((tmp_path / "cache").glob("*.part"))  # and no room comes for it
    indices.close()
    eventually(
        lambda: not any("fastloader-ahead" in thread.name for thread in threading.enumerate()),
        lambda: "the threads gone",
    )
    assert not list((tmp_path / "cache").glob("*.part"))
