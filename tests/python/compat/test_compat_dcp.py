"""OneKeyState: a loader's state through torch.distributed.checkpoint, alone and between ranks."""

import itertools
import warnings

import pytest
import torch
from side_by_side import since_2_6
from torch.distributed import checkpoint as dcp
from torch.utils.data import DistributedSampler, RandomSampler
from torchrun import torchrun

from fastloader import FastLoader
from fastloader.compat.dcp import OneKeyState
from support import MEAN, STD, Pictures, Stream, generator, labels

pytestmark = pytest.mark.covering


@pytest.fixture(autouse=True)
def _quiet():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # no process group: DCP says that it saves alone
        yield


def make(kind="shuffled"):
    if kind == "iterable":
        return FastLoader(Stream(11), 3, num_workers=2)
    if kind == "arrival":
        return FastLoader(Pictures(11), 3, num_workers=2, in_order=False)
    options = {"mean": MEAN, "std": STD, "device": "cpu"} if kind == "delivered" else {}
    return FastLoader(Pictures(11), 3, shuffle=True, generator=generator(4), **options)


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "kind", ["shuffled", "delivered", "iterable", *(["arrival"] if since_2_6 else [])]
)
@pytest.mark.parametrize("stop", [0, 2, 4])
@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_state_comes_back(tmp_path, kind, stop, asynchronous):
    loader = make(kind)
    straight = sorted(itertools.chain(*labels(loader), *labels(loader)))
    loader = make(kind)
    got = [batch[1].tolist() for batch in itertools.islice(loader, stop)]
    state = {"loader": OneKeyState(loader), "weights": torch.arange(3)}
    if asynchronous:
        dcp.async_save(state, checkpoint_id=tmp_path / "state", process_group=None).result()
    else:
        dcp.save(state, checkpoint_id=tmp_path / "state")
    again = make(kind)
    dcp.load(
        {"loader": OneKeyState(again), "weights": torch.zeros(3)}, checkpoint_id=tmp_path / "state"
    )
    assert again.state_dict() == loader.state_dict()
    got += labels(again)
    if len(got) < 8:
        got += labels(again)
    assert sorted(itertools.chain(*got)) == straight
    if kind in ("shuffled", "delivered"):
        whole = make(kind)
        assert got == labels(whole) + labels(whole)


def test_the_loader_itself_is_refused_by_name(tmp_path):
    """DCP would drop what a fresh loader's state does not have."""
    loader = make()
    next(iter(loader))
    dcp.save({"loader": loader}, checkpoint_id=tmp_path / "state")
    with pytest.raises(ValueError, match=r"lacks how many 'batches' .*OneKeyState\(loader\)"):
        dcp.load({"loader": make()}, checkpoint_id=tmp_path / "state")


def test_only_loaders():
    with pytest.raises(TypeError, match="takes a FastLoader, got DataLoader"):
        OneKeyState(torch.utils.data.DataLoader(Pictures(3)))


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_another_number_of_ranks_loads_the_checkpoint(tmp_path, ranks):
    """Rank after rank in this process, by their samplers. Two have saved after three batches each."""

    def share(rank, of):
        sampler = DistributedSampler(range(24), of, rank, seed=5)
        return FastLoader(Pictures(24), 2, sampler=sampler)

    got = []
    for rank in range(2):
        loader = share(rank, 2)
        got += [batch[1].tolist() for batch in itertools.islice(loader, 3)]
    dcp.save({"loader": OneKeyState(loader)}, checkpoint_id=tmp_path / "state")
    for rank in range(ranks):
        loader = share(rank, ranks)
        dcp.load({"loader": OneKeyState(loader)}, checkpoint_id=tmp_path / "state")
        got += labels(loader)
    assert sorted(itertools.chain(*got)) == list(range(24))


RANKS = """
    from fastloader.compat.dcp import OneKeyState
    STOP, STATE = ARGUMENT
    loader = FastLoader(Pictures(24), 2, shuffle=True, distributed="exact")
    if STATE:
        OneKeyState(loader).load_state_dict(STATE)
    got = keys(itertools.islice(loader, STOP))
    report([got, OneKeyState(loader).state_dict()])
"""


@pytest.mark.processes
def test_ranks_that_share_have_one_key(tmp_path):
    """With ``distributed=``, the state of either rank is that of both, for any number of them."""
    before = torchrun(tmp_path, 2, RANKS, [3, None])
    assert before[0][1] == before[1][1] and list(before[0][1]) == ["every rank"]
    after = torchrun(tmp_path, 3, RANKS, [9, before[1][1]])
    got = [key for rank in before + after for batch in rank[0] for key in batch]
    assert sorted(got) == list(range(24))
    assert all(len(rank[0]) == 2 for rank in after)


def test_ranks_that_do_not_share_have_keys_of_their_own(monkeypatch):
    loader = FastLoader(Pictures(4), sampler=RandomSampler(range(4)))
    assert list(OneKeyState(loader).state_dict()) == ["rank 0 of 1"]
    state = OneKeyState(loader).state_dict()
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setenv("FASTLOADER_AUDIT", "0")  # there is no other rank
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda group=None: 2)
    monkeypatch.setattr(torch.distributed, "get_rank", lambda group=None: 1)
    assert list(OneKeyState(loader).state_dict()) == ["rank 1 of 2"]
    with pytest.raises(ValueError, match=r"\['rank 0 of 1'\] and not 'rank 1 of 2'"):
        OneKeyState(loader).load_state_dict(state)
