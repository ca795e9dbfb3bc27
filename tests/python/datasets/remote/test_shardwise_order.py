"""The orders of a `ShardwiseSampler`: those of earlier versions, and those of datasets without end."""

import os
import random
import tracemalloc

import numpy as np
import pytest
import torch
from torch.utils.data import ConcatDataset, Subset

from fastloader.datasets import FileSpans, ShardwiseSampler, TarImages, _shard_order


@pytest.fixture
def rng():
    return random.Random(os.urandom(8))


class Local:
    """A shard that lies on this machine."""


def tars_of(counts):
    """TarImages with so many samples in each shard, and no file."""
    dataset = TarImages.__new__(TarImages)
    dataset._shards = [Local()] * len(counts)
    dataset.spans = FileSpans(dataset._shards, [0, *np.cumsum(counts).tolist()], None, None)
    dataset.offsets = range(sum(counts))
    return dataset


class Earlier:
    """The order as version 0.2.0 made it, with arrays of all samples."""

    def __init__(self, shard_of, shards, shuffle=True, seed=0, buffer=8, policy="pad"):
        self.shard_of, self.shards, self.shuffle = shard_of, shards, shuffle
        self.seed, self.buffer, self.policy = seed, buffer, policy

    def given(self, epoch, history, world, rank):
        order, left = self.ordered(epoch), np.arange(len(self.shard_of))
        for ranks, received in history:
            if self.policy == "drop" and received >= len(left) // ranks:
                left = left[:0]
            there = np.ones(len(left), bool)
            for each in range(ranks):
                there[self.places(len(left), ranks, each)[:received]] = False
            left = left[there]
        return order[left[self.places(len(left), world, rank)]].tolist()

    def ordered(self, epoch):
        generator = torch.Generator().manual_seed(self.seed + epoch)
        count = len(self.shard_of)
        if self.shuffle:
            shards = torch.randperm(self.shards, generator=generator).numpy()
            within = torch.randperm(count, generator=generator).numpy()
        else:
            shards, within = np.arange(self.shards), np.arange(count)
        group_of = np.empty(self.shards, np.int64)
        group_of[shards] = np.arange(self.shards) // self.buffer
        return np.lexsort((within, group_of[self.shard_of]))

    def places(self, count, world, rank):
        run = np.arange(count * rank // world, count * (rank + 1) // world)
        if self.policy == "drop":
            return run[: count // world]
        if self.policy == "pad" and len(run) < -(-count // world):
            return np.append(run, run[0] if len(run) else 0)
        return run


def shard_numbers(counts):
    return np.repeat(np.arange(len(counts)), counts)


def test_the_order_is_that_of_earlier_versions():
    order = ShardwiseSampler(tars_of([3, 1, 4, 1, 5, 2]), 1, 0, seed=5, buffer=2).order(1)
    assert order == GOLDEN


GOLDEN = [5, 1, 2, 4, 0, 7, 6, 3, 14, 15, 8, 9, 12, 11, 13, 10]  # of version 0.2.0


@pytest.mark.parametrize("policy", ["pad", "drop", "exact"])
@pytest.mark.parametrize("shuffle", [True, False])
def test_every_rank_gets_what_it_got_in_earlier_versions(rng, policy, shuffle):
    for _ in range(60):
        counts = [rng.randrange(6) for _ in range(rng.randrange(1, 9))]
        counts[0] += 1
        options = {"shuffle": shuffle, "seed": rng.randrange(9), "policy": policy}
        options["buffer"] = rng.randrange(1, 5)
        earlier = Earlier(shard_numbers(counts), len(counts), **options)
        epoch, history, left = rng.randrange(3), [], sum(counts)
        for _resumed in range(rng.randrange(4)):
            world = rng.randrange(1, 5)
            history.append([world, rng.randrange(left // world + 2)])
            left = max(0, left - world * history[-1][1])
        world = rng.randrange(1, 6)
        for rank in range(world):
            sampler = ShardwiseSampler(tars_of(counts), world, rank, **options)
            state = {**sampler.state_dict(), "epoch": epoch, "history": history}
            del state["order"]  # which earlier versions did not say
            sampler.load_state_dict(state)
            assert list(sampler) == earlier.given(epoch, history, world, rank)
            assert len(sampler) == len(earlier.places(sum(counts), world, rank))
            assert list(sampler) == earlier.given(epoch + 1, [], world, rank)


def test_subsets_and_concatenations_have_the_order_of_earlier_versions(rng):
    for _ in range(60):
        counts = [rng.randrange(6) for _ in range(rng.randrange(1, 9))]
        counts[0] += 1
        whole, numbers = tars_of(counts), shard_numbers(counts)
        picked = [rng.randrange(-len(numbers), len(numbers)) for _ in range(rng.randrange(9))]
        run = range(rng.randrange(len(numbers)), len(numbers))
        parts = [Subset(whole, picked), whole, Subset(whole, run)]
        shards_of = [numbers[np.array(picked, int)], numbers, numbers[run.start :]]
        again = range(rng.randrange(len(picked) + 1), len(picked) + 1 + len(run))
        both = Subset(ConcatDataset(parts), again)
        shard_of = np.concatenate(
            [each + number * len(counts) for number, each in enumerate(shards_of)]
        )[again.start : again.stop]
        options = {"seed": rng.randrange(9), "buffer": rng.randrange(1, 5)}
        earlier = Earlier(shard_of, 3 * len(counts), **options)
        assert ShardwiseSampler(both, 1, 0, **options).order(2) == earlier.ordered(2).tolist()


def test_a_subset_with_an_index_of_no_sample():
    with pytest.raises(IndexError, match="the Subset has the index 4, of 4 samples"):
        ShardwiseSampler(Subset(tars_of([3, 1]), [0, 4]), 1, 0)


# ---- Datasets that are too large for a permutation of all samples.


@pytest.fixture
def large(monkeypatch):
    """Makes datasets of more than 50 samples large ones."""
    monkeypatch.setattr(_shard_order, "_MOST_OF_ALL", 50)


@pytest.mark.parametrize("world", [1, 3, 7])
@pytest.mark.parametrize("policy", ["pad", "drop", "exact"])
def test_the_order_of_large_datasets(large, rng, world, policy):
    counts = [rng.randrange(1, 9) for _ in range(30)]
    dataset = tars_of([60, *counts])
    samplers = [
        ShardwiseSampler(dataset, world, rank, buffer=3, policy=policy) for rank in range(world)
    ]
    first, second = ([list(each) for each in samplers] for _epoch in range(2))
    assert first != second
    for given in (first, second):
        assert [len(each) for each in given] == [len(each) for each in samplers]
        seen = [index for each in given for index in each]
        count = len(dataset)
        if policy == "drop":
            assert len(set(seen)) == len(seen) == count // world * world
        else:
            assert set(seen) == set(range(count))
            assert len(seen) == (count if policy == "exact" else -(-count // world) * world)
    order = samplers[0].order(0)
    assert order != samplers[0].order(1) and sorted(order) == list(range(len(dataset)))
    shards = shard_numbers([60, *counts])[order]
    groups = [set()]
    for shard in shards.tolist():
        if shard not in groups[-1] and len(groups[-1]) == 3:
            groups.append(set())
        groups[-1].add(shard)
    assert sum(map(len, groups)) == len({*shards.tolist()})


def test_each_order_of_a_large_group_is_as_likely_as_any_other(large):
    sampler = ShardwiseSampler(tars_of([3, 3, 50]), 1, 0, buffer=2)
    places = np.zeros((6, 6))
    epochs = 0
    for epoch in range(6000):
        order = sampler.order(epoch)
        if {*order[:6]} == {*range(6)}:
            places[np.arange(6), order[:6]] += 1
            epochs += 1
    assert epochs > 500
    assert abs(places - epochs / 6).max() < 6 * (epochs / 6 * 5 / 6) ** 0.5


def test_groups_of_one_size_have_orders_of_their_own(large):
    order = ShardwiseSampler(tars_of([20] * 6), 1, 0, buffer=1).order(0)
    within = {
        tuple(index % 20 for index in order[begin : begin + 20]) for begin in range(0, 120, 20)
    }
    assert len(within) == 6


def test_a_large_dataset_goes_on_in_the_order_in_which_its_epoch_began(large):
    counts = [20] * 6
    earlier = Earlier(shard_numbers(counts), 6, seed=3, buffer=2)
    sampler = ShardwiseSampler(tars_of(counts), 2, 1, seed=3, buffer=2)
    state = {**sampler.state_dict(), "epoch": 4, "history": [[3, 5]]}
    assert state["order"] == 2
    sampler.load_state_dict(state)
    taken = iter(sampler)
    new = [next(taken) for _ in range(3)]
    assert sampler.state_dict() == {**state, "history": [[3, 5], [2, 3]]}
    new += list(taken)
    del state["order"]  # as version 0.2.0 saved it
    sampler.load_state_dict(state)
    taken = iter(sampler)
    old = [next(taken) for _ in range(3)]
    assert sampler.state_dict() == {**state, "order": 1, "history": [[3, 5], [2, 3]]}
    old += list(taken)
    assert old == earlier.given(4, [[3, 5]], 2, 1) != new
    following = list(sampler)
    assert following == sampler.order(5)[60:]
    sampler.load_state_dict(state)
    sampler.set_epoch(5)
    assert list(sampler) == following


def test_an_order_of_a_later_version():
    sampler = ShardwiseSampler(tars_of([4, 4]), 1, 0)
    with pytest.raises(
        ValueError, match=r"the state is of order 3, and this version .* knows 1 and 2"
    ):
        sampler.load_state_dict({**sampler.state_dict(), "order": 3})


@pytest.mark.parametrize("counts", [[1000] * 100_000, [100_000] * 1000], ids=["small", "large"])
def test_nothing_is_kept_for_each_of_a_hundred_million_samples(counts):
    dataset = tars_of(counts)
    tracemalloc.start()
    try:
        sampler = ShardwiseSampler(dataset, 64, 40, seed=1)
        state = {**sampler.state_dict(), "epoch": 2, "history": [[64, 500_000], [48, 300_000]]}
        sampler.load_state_dict(state)
        indices = iter(sampler)
        first = [next(indices) for _ in range(5000)]
        _now, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(set(first)) == 5000
    assert most < 100 << 20
