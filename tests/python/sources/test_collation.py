"""A collate_fn is known by what it is, and what a user put into torch's map of functions counts."""

import functools

import numpy as np
import pytest
import torch
from pictures import plain_folder
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data._utils import collate

from fastloader import FastLoader
from fastloader import transforms as T
from fastloader._core.machine import extension
from fastloader.compat.timm import fast_collate
from fastloader.datasets import ImageFolder
from support import same

pytestmark = pytest.mark.skipif(extension.load() is None, reason="needs the native module")
MAP = collate.default_collate_fn_map


def as_floats(batch, *, collate_fn_map=None):
    return torch.stack([torch.as_tensor(each) for each in batch]).float()


def as_int32(batch, *, collate_fn_map=None):
    return torch.tensor(batch, dtype=torch.int32)


class Own:
    pass


class Whole(int):
    pass


@pytest.fixture
def folder(tmp_path):
    root = plain_folder(tmp_path / "plain", 5)
    return ImageFolder(root, T.Compose([T.Resize((12, 10)), T.PILToTensor()]))


def arrays():
    return TensorDataset(torch.arange(12.0).reshape(4, 3), torch.arange(4))


# Of all kinds that default_collate knows, whatever a torch to come adds to them.
KINDS = [*MAP]


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_the_map_has_another_function(monkeypatch, folder, kind):
    if getattr(kind, "__module__", "").startswith("fastloader.datasets."):
        return  # which no known dataset gives
    monkeypatch.setitem(MAP, kind, as_int32 if kind is int else as_floats)
    for dataset in (folder, arrays()):
        loader = FastLoader(dataset, 2)
        assert f"default_collate_fn_map has {__name__}.as_" in loader.plan(), loader.plan()
        same([*loader], [*DataLoader(dataset, 2)])
    monkeypatch.setitem(MAP, kind, functools.wraps(MAP[kind])(as_floats))
    assert "default_collate_fn_map has" in FastLoader(folder, 2).plan()
    monkeypatch.undo()
    monkeypatch.delitem(MAP, kind)
    assert "default_collate_fn_map has" in FastLoader(folder, 2).plan()


@pytest.mark.parametrize(
    "kind", [object, tuple, np.int64, torch.nn.Parameter, Whole, (Own, list)], ids=str
)
def test_the_map_has_another_kind_that_a_sample_may_hold(monkeypatch, folder, kind):
    monkeypatch.setitem(MAP, kind, as_floats)
    assert "default_collate_fn_map was extended by" in FastLoader(folder, 2).plan()
    assert "default_collate_fn_map was extended by" in FastLoader(arrays(), 2).plan()


def test_a_kind_that_no_sample_holds_does_no_harm(monkeypatch, folder):
    monkeypatch.setitem(MAP, Own, as_floats)
    assert FastLoader(folder, 2).plan().startswith("native images: ")
    assert FastLoader(arrays(), 2).plan().startswith("arrays: ")


@pytest.mark.parametrize("name", ["collate", "default_collate"])
def test_the_function_itself(monkeypatch, folder, name):
    before = getattr(collate, name)
    monkeypatch.setattr(collate, name, functools.wraps(before)(lambda *a, **k: before(*a, **k)))
    plan = FastLoader(folder, 2).plan()
    assert "then Python: default_collate was replaced by" in plan and __name__ in plan, plan
    plan = FastLoader(arrays(), 2).plan()
    assert plan.startswith("Python path: ") and __name__ in plan, plan


def test_a_collate_fn_that_wraps_a_known_one(folder):
    @functools.wraps(fast_collate)
    def shifted(samples):
        images, labels = fast_collate(samples)
        return images, labels + 1000

    loader = FastLoader(folder, 2, collate_fn=shifted)
    assert "shifted" in loader.plan() and "then Python: " in loader.plan()
    assert [labels.min() >= 1000 for _, labels in loader] == [True] * 3
    assert FastLoader(folder, 2, collate_fn=fast_collate).plan().startswith("native images: ")


@pytest.mark.parametrize("name", ["__getitem__", "__getitems__", "__len__"])
def test_a_patched_dataset_of_tensors(monkeypatch, name):
    before = TensorDataset.__getitem__
    function = {
        "__getitem__": lambda self, index: (*before(self, index), index),
        "__getitems__": lambda self, indices: [before(self, index)[::-1] for index in indices],
        "__len__": lambda self: 2,
    }[name]
    monkeypatch.setattr(TensorDataset, name, function, raising=False)
    loader = FastLoader(arrays(), 2)
    assert f"TensorDataset.{name} was replaced by {__name__}." in loader.plan()
    same([*loader], [*DataLoader(arrays(), 2)])


def test_a_patched_sampler_gives_the_order(monkeypatch):
    from torch.utils.data import SequentialSampler

    monkeypatch.setattr(SequentialSampler, "__iter__", lambda self: iter([3, 1, 0, 2]))
    same([*FastLoader(arrays(), 2)], [*DataLoader(arrays(), 2)])
