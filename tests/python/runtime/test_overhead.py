"""What fastloader does for a batch besides what DataLoader does, counted in calls and not in seconds,
which other programs change: `benchmarks/overhead.py` measures those."""

import os
import sys

import pytest
import torch
from torch.utils.data import DataLoader, Dataset, TensorDataset

from fastloader import FastLoader
from fastloader._core.batch.tree import flatten, unflatten
from fastloader.datasets.put_off import PutOff
from support import MEAN, STD


class Tiny(Dataset):
    def __init__(self, count=400):
        self.images = torch.randint(0, 256, (count, 3, 4, 4), dtype=torch.uint8)

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        return self.images[index], index


@pytest.fixture(autouse=True)
def without_the_compiler(monkeypatch):
    """A test before these may have imported it, and then it is asked to keep out of each batch."""
    monkeypatch.delitem(sys.modules, "torch._dynamo", raising=False)


def calls(function):
    """Of Python and C functions, on this thread."""
    counted = 0

    def note(_frame, event, _argument):
        nonlocal counted
        counted += event in ("call", "c_call")

    sys.setprofile(note)
    try:
        function()
    finally:
        sys.setprofile(None)
    return counted


def calls_of_a_batch(loader):
    """Of one in the middle of the second epoch, when what is made once has been made."""
    list(loader)
    iterator = iter(loader)
    next(iterator)
    return calls(lambda: [next(iterator) for _ in range(100)]) / 100


def test_arrays_cost_less_than_dataloader(enter_way):
    rows = TensorDataset(torch.rand(400, 3), torch.arange(400))
    assert calls_of_a_batch(FastLoader(rows, 2)) <= 0.6 * calls_of_a_batch(DataLoader(rows, 2))
    shuffled = {"batch_size": 2, "shuffle": True}
    theirs = calls_of_a_batch(DataLoader(rows, **shuffled))
    assert calls_of_a_batch(FastLoader(rows, **shuffled)) <= 0.6 * theirs


@pytest.mark.parametrize("any_made, more", [(False, 46), (True, 49)])
def test_normalising_on_the_cpu_costs_few_calls_more(enter_way, monkeypatch, any_made, more):
    """Once this process has made an encoded picture, every batch is looked at for them: three calls."""
    enter_way("cpu")
    monkeypatch.setattr(PutOff, "any_made", any_made)
    theirs = calls_of_a_batch(DataLoader(Tiny(), 2))  # 70 with torch 2.13
    assert calls_of_a_batch(FastLoader(Tiny(), 2, mean=MEAN, std=STD)) <= theirs + more


@pytest.mark.parametrize("count", [1, 256])
def test_strings_are_passed_over(count):
    texts = [str(number) for number in range(count)]
    tree = flatten(texts)
    assert calls(lambda: flatten(texts)) < 16
    assert calls(lambda: unflatten(tree.template, tree.leaves, lambda value: value)) < 16


def refuse(_environment, name):
    raise AssertionError(f"{name} was looked up")


def test_no_environment_is_looked_up_for_a_batch(way, monkeypatch):
    """Each look-up encodes and decodes a string; what it says is asked when an epoch begins."""
    rows = TensorDataset(torch.rand(400, 3), torch.arange(400))
    for loader in (FastLoader(rows, 2), FastLoader(Tiny(), 2, mean=MEAN, std=STD, **way.options)):
        iterator = iter(loader)
        next(iterator)
        with monkeypatch.context() as patch:
            patch.setattr(type(os.environ), "__getitem__", refuse)
            for _ in range(5):
                next(iterator)
