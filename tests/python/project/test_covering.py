"""Of the cases of a test marked ``covering``, some run: every value of every parameter is in one."""

import itertools
import types

import covering
import pytest

WAYS, WORKERS, NAMES = ["cpu", "twin", "pure"], [0, 2], list("abcdefgh")


def cases(test="test_a", marked=True, slow=False):
    for values in itertools.product(WAYS, WORKERS, NAMES):
        yield types.SimpleNamespace(
            nodeid=f"{test}[{values}]",
            get_closest_marker={"covering": marked, "slow": slow}.get,
            callspec=types.SimpleNamespace(
                params=dict(zip(("way", "workers", "name"), values, strict=True))
            ),
        )


def kept(items):
    leave = [item.nodeid for item in covering.left_out(items)]
    return [item for item in items if item.nodeid not in leave]


@pytest.fixture(autouse=True)
def sample(monkeypatch):
    monkeypatch.setattr(covering, "LONG", False)


def test_every_value_is_in_a_case_and_most_cases_are_left_out():
    of = {"test_a": [], "test_b": []}
    for item in kept([*cases("test_a"), *cases("test_b")]):
        of[item.nodeid.partition("[")[0]].append(item.callspec.params)
    for params in of.values():
        for name, values in (("way", WAYS), ("workers", WORKERS), ("name", NAMES)):
            assert {each[name] for each in params} == set(values)
        assert len(NAMES) <= len(params) <= len(NAMES) + len(WAYS) + len(WORKERS)


def test_the_seed_chooses_and_the_same_seed_the_same(monkeypatch):
    chosen = {}
    for seed in (1, 2, 1):
        monkeypatch.setattr(covering, "SEED", seed)
        names = [item.nodeid for item in kept(list(cases()))]
        assert chosen.setdefault(seed, names) == names
    assert chosen[1] != chosen[2]


def test_the_whole_and_what_is_not_marked_run_in_every_case(monkeypatch):
    items = list(cases(marked=False))
    assert kept(items) == items
    assert len(kept(list(cases(marked=False, slow=True)))) == 1
    monkeypatch.setattr(covering, "LONG", True)
    items = list(cases(slow=True))
    assert kept(items) == items
