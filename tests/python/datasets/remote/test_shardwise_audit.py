"""``audit`` of a `ShardwiseSampler`, whose ranks are threads over one store."""

import random

import pytest
from remote_shards import tar_of
from thread_ranks import ThreadRanks

import fastloader
from fastloader import Error, FastLoader
from fastloader.datasets import ShardwiseSampler, TarImages

pytestmark = pytest.mark.covering


@pytest.fixture
def ranks(monkeypatch):
    return ThreadRanks(monkeypatch)


@pytest.fixture
def dataset(tmp_path):
    """Shards of different numbers of samples, 43 in all."""
    begin = 0
    for shard, count in enumerate((3, 9, 1, 8, 7, 2, 6, 7)):
        (tmp_path / f"x-{shard:03}.tar").write_bytes(tar_of(range(begin, begin + count)))
        begin += count
    return TarImages(tmp_path / "x-*.tar")


def make(dataset, **options):
    sampler = ShardwiseSampler(dataset, buffer=2, seed=4, **options)
    return FastLoader(list(range(len(dataset))), 2, sampler=sampler, collate_fn=list)


def only(done):
    assert all(each == done[0] for each in done), done
    return done[0]


@pytest.mark.parametrize("policy", ["pad", "drop", "exact"])
def test_epochs_and_resumes_with_other_numbers_of_ranks(ranks, dataset, policy):
    rng = random.Random(seed := random.randrange(1 << 30))
    state, cut = None, 0
    for job in range(4):
        world = rng.randint(2, 5)
        cut = rng.randint(2, 3)

        def work(_rank, state=state, cut=cut):
            loader, said = make(dataset, policy=policy), []
            audit = fastloader.audit(loader)
            if state is not None:
                loader.load_state_dict(state)
            for _ in range(2):
                assert [len(each) for each in loader]
                said.append(audit.account())
            iterator = iter(loader)
            for _ in range(cut):
                next(iterator)
            return said, loader.state_dict()

        done = ranks.run(world, work)
        assert not [each for each in done if isinstance(each, Error)], (seed, done)
        accounts = only([each[0] for each in done])
        for number, account in enumerate(accounts):
            assert account.whole and account.identified, (seed, job, str(account))
            assert account.epoch == 2 * job + number
            if number:
                assert policy != "exact" or account.received == 43, str(account)
        state = done[0][1]


def test_a_rank_that_has_looked_is_an_epoch_ahead(ranks, dataset):
    def work(rank):
        loader = make(dataset)
        fastloader.audit(loader)
        if rank == 1:
            next(iter(loader))
        with pytest.raises(Error) as told:
            list(loader)
        return str(told.value)

    said = only(ranks.run(2, work))
    assert "; the epoch is 0 on rank 0 and 1 on rank 1" in said
