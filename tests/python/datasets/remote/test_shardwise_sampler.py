"""`ShardwiseSampler`: its order, and ranks that come and go."""

import copy
import os
import pickle
import random

import numpy as np
import pytest
import torch
from remote_shards import tar_of
from side_by_side import since_2_6
from torch.utils.data import ConcatDataset, Subset, TensorDataset

from fastloader import FastLoader
from fastloader._core.order.position import is_elastic
from fastloader.datasets import ShardwiseSampler, TarImages


@pytest.fixture
def local(tmp_path):
    """Shards of different numbers of samples."""
    rng = random.Random(os.urandom(8))
    begin = 0
    for shard in range(rng.randrange(5, 12)):
        end = begin + rng.randrange(1, 9)
        (tmp_path / f"x-{shard:03}.tar").write_bytes(tar_of(range(begin, end)))
        begin = end
    return TarImages(tmp_path / "x-*.tar")


def samplers(dataset, world, **options):
    return [ShardwiseSampler(dataset, world, rank, **options) for rank in range(world)]


def test_an_epoch_has_each_sample_once_and_few_shards_at_a_time(local):
    sampler = ShardwiseSampler(local, seed=5, buffer=3)
    numbers, shards = local.shard_numbers()
    first, second = list(sampler), list(sampler)
    assert first == sampler.order(0) and second == sampler.order(1)
    assert first != second
    assert sorted(first) == sorted(second) == list(range(len(local)))
    groups = []
    for shard in numbers[first]:
        if not groups or (shard not in groups[-1] and len(groups[-1]) == 3):
            groups.append(set())
        groups[-1].add(shard)
    assert sum(map(len, groups)) == len(shards)  # no shard comes again in a later group


def test_all_samples_of_a_group_are_mixed(tmp_path):
    """Each order of two shards of three samples is as likely as any other."""
    for shard in range(2):
        path = tmp_path / f"x-{shard}.tar"
        path.write_bytes(tar_of(range(3 * shard, 3 * shard + 3)))
    dataset = TarImages(tmp_path / "x-*.tar")
    mixed = ShardwiseSampler(dataset, buffer=2)
    places = np.zeros((6, 6))
    for epoch in range(3000):
        places[np.arange(6), mixed.order(epoch)] += 1
    assert abs(places - 500).max() < 6 * (500 * 5 / 6) ** 0.5
    apart = ShardwiseSampler(dataset, buffer=1)
    firsts = {tuple(sorted(apart.order(epoch)[:3])) for epoch in range(40)}
    assert firsts == {(0, 1, 2), (3, 4, 5)}


def test_in_order(local):
    sampler = ShardwiseSampler(local, shuffle=False, buffer=2)
    assert list(sampler) == list(sampler) == list(range(len(local)))


@pytest.mark.parametrize("world", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("policy", ["pad", "drop", "exact"])
def test_ranks(local, world, policy):
    ranks = samplers(local, world, policy=policy, buffer=2)
    given = [list(each) for each in ranks]
    assert [len(each) for each in given] == [len(each) for each in ranks]
    every = [index for each in given for index in each]
    if policy == "exact":
        assert sorted(every) == list(range(len(local)))
    if policy == "drop":
        assert len(set(every)) == len(every) == len(local) // world * world
    if policy == "pad":
        assert set(every) == set(range(len(local)))
        assert len(every) == -(-len(local) // world) * world
    if policy != "exact":
        assert len({len(each) for each in given}) == 1


@pytest.mark.parametrize("policy", ["pad", "exact", "drop"])
def test_an_epoch_goes_on_with_other_numbers_of_ranks(local, policy):
    rng = random.Random(os.urandom(8))
    for _ in range(30):
        seen, state, left, takes = [], None, len(local), []
        worlds = [rng.randrange(1, 6) for _ in range(4)]
        for number, world in enumerate(worlds):
            ranks = samplers(local, world, policy=policy, buffer=3, seed=9)
            for each in ranks:
                each.set_epoch(4)
                if state is not None:
                    each.load_state_dict(state)
                    each.set_epoch(4)  # as trainers call it
            last = number == len(worlds) - 1
            received = 10**9 if last else rng.randrange(0, left // world + 1)
            takes.append(received)
            states = []
            for each in ranks:
                taken = iter(each)
                given = [index for _, index in zip(range(received), taken)]
                states.append(each.state_dict())
                seen += given
            state = states[0]
            if not last:
                if policy == "drop" and received and received == left // world:
                    left = 0  # it is at its end, and the rest was left out
                left -= min(left, received * world)
                assert all(each == state for each in states)
        if policy == "drop":
            assert len(set(seen)) == len(seen) == len(local) - dropped(local, worlds, takes)
            continue
        extra = len(seen) - len(local)
        assert set(seen) == set(range(len(local)))
        assert extra == 0 if policy == "exact" else extra < worlds[-1]


def dropped(local, worlds, takes):
    """How many samples "drop" leaves out when ranks stop after so many."""
    left = len(local)
    for world, received in zip(worlds, takes):
        each = left // world
        if received and received >= each:
            return left - min(received, each) * world
        left -= received * world
    raise AssertionError("the last one goes to the end")


@pytest.mark.parametrize("count", [1003, 3, 8])
def test_the_end_of_an_epoch_is_that_for_any_number_of_ranks(tmp_path, count):
    (tmp_path / "x.tar").write_bytes(tar_of(range(count)))
    dataset = TarImages(tmp_path / "x.tar")
    for policy in ("pad", "drop", "exact"):
        ranks = samplers(dataset, 4, policy=policy, seed=3)
        given = [list(each) for each in ranks]
        states = [each.state_dict() for each in ranks]
        assert all(each == states[0] for each in states)
        other = samplers(dataset, 2, policy=policy, seed=3)
        for each in other:
            each.load_state_dict(states[0])
        assert [list(each) for each in other] == [[], []]
        following = samplers(dataset, 2, policy=policy, seed=3)
        for each in following:
            each.set_epoch(1)
        assert [list(each) for each in other] == [list(each) for each in following]
        assert policy == "exact" or len({len(each) for each in given}) == 1


def test_the_epoch_after_one_that_went_on(local):
    sampler = ShardwiseSampler(local, seed=2)
    taken = iter(sampler)
    head = [next(taken) for _ in range(3)]
    again = ShardwiseSampler(local, seed=2)
    again.load_state_dict(sampler.state_dict())
    assert head + list(again) == sampler.order(0)
    ended = again.state_dict()
    assert list(again) == sampler.order(1)
    again.load_state_dict(ended)
    assert list(again) == []
    assert list(again) == sampler.order(1)


def test_a_state_of_another_order(local):
    state = ShardwiseSampler(local, seed=2).state_dict()
    with pytest.raises(ValueError, match=r"of another order: its seed is 2, here it is 3"):
        ShardwiseSampler(local, seed=3).load_state_dict(state)
    with pytest.raises(ValueError, match=r"its buffer is 8, here it is 4"):
        ShardwiseSampler(local, seed=2, buffer=4).load_state_dict(state)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_loader_goes_on_in_the_middle(local, workers):
    def make():
        sampler = ShardwiseSampler(local, seed=7, buffer=2)
        options = {"num_workers": workers, "worker_backend": "thread"} if workers else {}
        return FastLoader(Numbers(local), 3, sampler=sampler, **options)

    loader = make()
    first, second = ([batch.tolist() for batch in loader] for _epoch in range(2))
    assert first != second
    for stop in range(len(loader) + 1):
        stopped = make()
        batches = iter(stopped)
        head = [next(batches).tolist() for _ in range(stop)]
        resumed = make()
        resumed.load_state_dict(stopped.state_dict())
        assert head + [batch.tolist() for batch in resumed] == first
        assert [batch.tolist() for batch in resumed] == second
    between = make()
    between.load_state_dict(loader.state_dict())
    third = [batch.tolist() for batch in loader]
    assert [batch.tolist() for batch in between] == third


class Numbers(torch.utils.data.Dataset):
    """The indices of a dataset."""

    def __init__(self, dataset):
        self.count = len(dataset)

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return index


def test_a_loaders_state_serves_other_numbers_of_ranks(local):
    def make(world, rank):
        sampler = ShardwiseSampler(local, world, rank, seed=1, buffer=2, policy="exact")
        return FastLoader(Numbers(local), 2, sampler=sampler)

    seen, states = [], []
    for rank in range(2):
        loader = make(2, rank)
        batches = iter(loader)
        seen += next(batches).tolist()
        states.append(loader.state_dict())
    for rank in range(3):
        loader = make(3, rank)
        loader.load_state_dict(states[0])
        seen += [index for batch in loader for index in batch.tolist()]
    assert sorted(seen) == list(range(len(local)))


@pytest.mark.skipif(not since_2_6, reason="torch has no in_order")
def test_batches_out_of_order_have_no_state_that_serves_all_ranks(local):
    """Each rank would name what it has not received itself, and what the others have not."""
    sampler = ShardwiseSampler(local, 2, 0, buffer=2)
    loader = FastLoader(Numbers(local), 2, sampler=sampler, num_workers=2, in_order=False)
    loader.state_dict()
    batches = iter(loader)
    next(batches)
    with pytest.raises(ValueError, match=r"in_order=False .* without a distributed sampler"):
        loader.state_dict()
    for _ in batches:
        pass
    loader.state_dict()


class Own(ShardwiseSampler):
    """It may give any order."""


def test_a_subclass_is_not_taken_for_one_of_ours(local):
    assert is_elastic(ShardwiseSampler(local))
    assert not is_elastic(Own(local))
    assert not is_elastic(torch.utils.data.SequentialSampler(local))


def test_a_sampler_may_be_copied(local):
    sampler = ShardwiseSampler(local, seed=4, buffer=2)
    list(sampler)
    for copied in (pickle.loads(pickle.dumps(sampler)), copy.deepcopy(sampler)):
        assert list(copied) == sampler.order(1)


def test_subsets_and_concatenations(local, tmp_path):
    picked = torch.randperm(len(local)).tolist()[: len(local) // 2]
    both = ConcatDataset([Subset(local, picked), local])
    given = list(ShardwiseSampler(both, buffer=1))
    assert sorted(given) == list(range(len(both)))
    numbers = local.shard_numbers()[0]
    shards = np.concatenate([numbers[picked], numbers + len(local.shards)])[given]
    changes = 1 + np.count_nonzero(np.diff(shards))
    assert changes == len(set(shards.tolist()))  # one shard after the other


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"buffer": 0}, ValueError, "buffer=0: at least one shard"),
        ({"policy": "even"}, ValueError, "policy='even'"),
        ({"num_replicas": 2, "rank": 2}, ValueError, "rank"),
    ],
)
def test_arguments(local, arguments, error, message):
    with pytest.raises(error, match=message):
        ShardwiseSampler(local, **arguments)


def test_other_datasets():
    with pytest.raises(TypeError, match=r"of TarImages, .* not of a .*TensorDataset"):
        ShardwiseSampler(TensorDataset(torch.arange(3)))


def test_ranks_that_torch_does_not_know_of_yet(local, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(
        ValueError, match=r"WORLD_SIZE is 2, but torch\.distributed is not initialised"
    ):
        ShardwiseSampler(local)
