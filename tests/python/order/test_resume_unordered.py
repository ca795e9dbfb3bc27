"""in_order=False: what was received is not the beginning of the epoch, and comes once all the same."""

import enum
import io
import itertools
import json
import os
import time

import numpy as np
import pytest
import torch
from side_by_side import since_2_6
from torch.utils.data import Dataset, Sampler

from fastloader import FastLoader

COUNT = 40

pytestmark = [
    pytest.mark.covering,
    pytest.mark.skipif(not since_2_6, reason="torch has no in_order"),
]


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


@pytest.mark.exhaustive
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


# --- keys of any kind -----------------------------------------------------------------------------


class Part(enum.IntEnum):
    LEFT = 0
    RIGHT = 1


class Named(str, enum.Enum):
    ODD = "odd"


TABLE = torch.arange(1 << 16)
KEYS = {
    "numbers": (lambda n: n, True),
    "texts": (str, True),
    "none, real, true": (lambda n: None if n == 0 else [n / 2, n % 4 < 2][n % 2], True),
    "tensors": (lambda n: TABLE[n], True),
    "tensors of several": (lambda n: TABLE[n : n + 3], True),
    "tuples": (lambda n: (n, "left", (TABLE[n], None)), True),
    "dicts": (lambda n: {"file": "a", "at": n}, True),
    "numpy": (lambda n: np.int32(n), False),
    "numpy arrays": (lambda n: np.arange(n, n + 2, dtype=np.uint8), False),
    "enums": (lambda n: [Part.RIGHT, Named.ODD][n % 2] if n else Part.LEFT, False),
}
# How a sampler may group them.
GROUPS = {
    "list": list,
    "tuple": tuple,
    "tensor": lambda keys: torch.stack(list(keys)),
    "array": np.array,
    "one": None,
}


def shown(key):
    """Value and type, of what it contains as well."""
    if isinstance(key, torch.Tensor | np.ndarray | np.generic):
        return type(key), str(key.dtype), key.tolist()
    if isinstance(key, list | tuple):
        return type(key), [shown(each) for each in key]
    if isinstance(key, dict):
        return type(key), [(name, shown(each)) for name, each in key.items()]
    return type(key), key


class Shown(Dataset):
    """What it was asked for; the batch that begins with the first key waits for the gate."""

    def __init__(self, gate, first):
        self.gate, self.first = gate, first

    def __getitem__(self, key):
        until = time.monotonic() + 30
        while shown(key) == self.first and not os.path.exists(self.gate):
            assert time.monotonic() < until
            time.sleep(0.005)
        return shown(key)


class Given(Sampler):
    def __init__(self, batches):
        self.batches = batches

    def __iter__(self):
        return iter(self.batches)

    def __len__(self):
        return len(self.batches)


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("kind", "group"),
    [
        *[(kind, group) for kind in KEYS for group in ("list", "one")],
        ("texts", "tuple"),
        ("tensors", "tensor"),
        ("numpy", "array"),
    ],
)
def test_keys_come_back_as_they_were_given(kind, group, tmp_path):
    make_key, trusted = KEYS[kind]
    keys = [make_key(n) for n in range(24)]
    if group == "one":
        batches, options = keys, lambda: {"sampler": Given(keys), "batch_size": None}
        first = shown(keys[0])
    else:
        batches = [GROUPS[group](keys[at : at + 2]) for at in range(0, len(keys), 2)]
        options = lambda: {"batch_sampler": Given(batches)}  # noqa: E731
        first = shown(next(iter(batches[0])))

    def make(gate, **workers):
        dataset = Shown(str(gate), first)
        return FastLoader(dataset, collate_fn=list, **options(), **workers)

    def asked(loader):
        return sorted(map(repr, loader))

    (tmp_path / "open").touch()
    straight = asked(make(tmp_path / "open"))
    loader = make(tmp_path / "gate", num_workers=2, in_order=False)
    iterator = iter(loader)
    received = list(itertools.islice(iterator, 4))
    file = io.BytesIO()
    torch.save(loader.state_dict(), file)
    assert len(file.getvalue()) < 8192  # of tensors, the key and not the table that it is a part of
    file.seek(0)
    state = torch.load(file, weights_only=trusted)
    assert state["missing"] and {repr(shown(each)) for each in state["missing"]} <= {
        repr(shown(each)) for each in batches
    }
    (tmp_path / "gate").touch()
    assert sorted(map(repr, [*received, *iterator])) == straight
    for workers in ({}, {"num_workers": 2, "in_order": False}):
        fresh = make(tmp_path / "gate", **workers)
        fresh.load_state_dict(state)
        assert sorted([*map(repr, received), *asked(fresh)]) == straight


def test_a_state_is_of_its_moment(tmp_path):
    """Whatever is done to it, or to the keys that the sampler gave."""
    batches = [[n, n + 1] for n in range(0, 16, 2)]
    loader = FastLoader(
        Held(str(tmp_path / "gate")), batch_sampler=Given(batches), num_workers=2, in_order=False
    )
    iterator = iter(loader)
    next(iterator)
    first = loader.state_dict()
    wanted = json.dumps(first)
    first["missing"][0].clear()
    second = loader.state_dict()
    assert json.dumps(second) == wanted
    for batch in batches:
        batch[:] = [9]
    assert json.dumps(second) == wanted == json.dumps(loader.state_dict())
    (tmp_path / "gate").touch()
    assert len(list(iterator)) == 7


# --- a sampler that fails -------------------------------------------------------------------------


class Failing(Given):
    """Raises in the place of the batches named, and goes on behind them; or ends there."""

    def __init__(self, batches, fails=(), ends=False):
        super().__init__(batches)
        self.fails, self.ends = fails, ends

    def __iter__(self):
        def draw(number):
            if number in self.fails:
                raise OSError(f"batch {number}")
            return self.batches[number]

        numbers = range(len(self.batches))
        return (draw(number) for number in numbers) if self.ends else map(draw, numbers)


@pytest.mark.parametrize("ends", [True, False])
@pytest.mark.parametrize("stateful", [True, False])
def test_a_sampler_that_fails_when_it_goes_on(ends, stateful, tmp_path):
    """The batches that were missing come first, then its error, then what it still gives."""
    batches = [[n, n + 1] for n in range(0, COUNT, 2)]

    class Remembering(Failing):
        at = 0

        def __iter__(self):
            for batch in itertools.islice(super().__iter__(), self.at, None):
                self.at += 1
                yield batch

        def state_dict(self):
            return {"at": self.at}

        def load_state_dict(self, state):
            self.at = state["at"]

    kind = Remembering if stateful else Failing
    gate = tmp_path / "gate"
    loader = FastLoader(Held(str(gate)), batch_sampler=kind(batches), num_workers=2, in_order=False)
    iterator = iter(loader)
    received = list(itertools.islice(iterator, 4))
    state = json.loads(json.dumps(loader.state_dict()))
    gate.touch()
    list(iterator)
    drawn = len(received) + len(state["missing"])
    # By then the first that is drawn after the state cannot be.
    fresh = FastLoader(Held(str(gate)), batch_sampler=kind(batches, fails=[drawn], ends=ends))
    fresh.load_state_dict(state)
    rest = iter(fresh)
    missing = [next(rest)[1].tolist() for _ in state["missing"]]
    assert missing == state["missing"]
    # As long as the error has not come, a state is one of before it.
    assert fresh.state_dict()["batches"] == drawn and "missing" not in fresh.state_dict()
    with pytest.raises(OSError, match=f"batch {drawn}"):
        next(rest)
    behind = [] if ends or stateful else batches[drawn + 1 :]
    assert [batch[1].tolist() for batch in rest] == behind
