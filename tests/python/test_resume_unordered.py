"""in_order=False: what was received is not the beginning of the epoch, and comes once all the same."""

import itertools
import json
import os
import time

import pytest
import torch
from torch.utils.data import Dataset

from fastloader import FastLoader

COUNT = 40

pytestmark = pytest.mark.skipif(
    not hasattr(torch.utils.data.DataLoader(range(1)), "in_order"), reason="torch has no in_order"
)


class Held(Dataset):
    """Key 0 comes only when the gate is there, so that others overtake its batch."""

    def __init__(self, gate):
        self.gate = gate

    def __len__(self):
        return COUNT

    def __getitem__(self, index):
        while index == 0 and not os.path.exists(self.gate):
            time.sleep(0.005)
        return torch.zeros(3, 2, 2, dtype=torch.uint8), index


def keys(batches):
    return sorted(itertools.chain.from_iterable(batch[1].tolist() for batch in batches))


CASES = {
    "sequential": lambda: {"batch_size": 3},
    "generator": lambda: {
        "batch_size": 3,
        "shuffle": True,
        "generator": torch.Generator().manual_seed(4),
    },
    "batch_sampler": lambda: {
        "batch_sampler": [list(range(at, at + 4)) for at in range(0, COUNT, 4)]
    },
}


@pytest.mark.parametrize("into", ["unordered", "ordered", "no workers"])
@pytest.mark.parametrize("case", CASES)
def test_each_batch_comes_once(tmp_path, case, into):
    def make(options, gate):
        return FastLoader(Held(str(gate)), **CASES[case](), **options)

    after = {
        "unordered": {"num_workers": 2, "in_order": False},
        "ordered": {"num_workers": 2},
        "no workers": {},
    }[into]
    gate = tmp_path / "gate"
    loader = make({"num_workers": 2, "in_order": False}, gate)
    iterator = iter(loader)
    received = list(itertools.islice(iterator, 6))
    state = json.loads(json.dumps(loader.state_dict()))
    # What is in flight is named, the held batch among it unless it was not yet drawn.
    assert 0 < len(state["missing"]) <= 4
    gate.touch()
    assert keys([*received, *iterator]) == list(range(COUNT))
    fresh = make(after, gate)
    fresh.load_state_dict(state)
    rest = iter(fresh)
    some = list(itertools.islice(rest, 2))
    again = json.loads(json.dumps(fresh.state_dict()))
    assert keys([*received, *some, *rest]) == list(range(COUNT))
    # And from the middle of what was missing.
    last = make(after, gate)
    last.load_state_dict(again)
    assert keys([*received, *some, *last]) == list(range(COUNT))
    assert len(keys(last)) == COUNT  # the next epoch is a whole one


def test_iterables_and_shares_are_refused():
    sampler = torch.utils.data.DistributedSampler(range(COUNT), 2, 0)
    loader = FastLoader(range(COUNT), sampler=sampler, num_workers=1, in_order=False)
    next(iter(loader))
    with pytest.raises(ValueError, match="in_order=True"):
        loader.state_dict()
