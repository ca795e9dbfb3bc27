"""What ``stats()`` gives has the keys and types that `LoaderStats` promises, and the documents name."""

import re
import types
import typing

import pytest
import torch
from pictures import plain_folder
from torch.utils.data import TensorDataset

from fastloader import FastLoader
from fastloader._core.loader_stats import LoaderStats
from fastloader._core.machine import extension
from fastloader.datasets import ImageFolder
from fastloader.transforms import CenterCrop
from support import MEAN, PACKAGE_ROOT, STD


def conforms(value, kind):
    """Whether the value is of the type, to the last key."""
    if typing.is_typeddict(kind):
        hints = typing.get_type_hints(kind)
        whole = kind.__required_keys__ <= value.keys() <= hints.keys()
        return whole and all(conforms(each, hints[key]) for key, each in value.items())
    if isinstance(kind, types.UnionType):
        return any(conforms(value, each) for each in kind.__args__)
    if typing.get_origin(kind) in (dict, list):
        values = value.values() if isinstance(value, dict) else value
        right = isinstance(value, typing.get_origin(kind))
        return right and all(conforms(each, kind.__args__[-1]) for each in values)
    return isinstance(value, int | float if kind is float else kind)


def of_arrays(root):
    return TensorDataset(torch.zeros(8, 3, 4, 5, dtype=torch.uint8))


def of_images(root):
    return ImageFolder(plain_folder(root), CenterCrop(8))


def of_numbers(root):
    return list(range(8))


NORMALISED = {"device": "cpu", "mean": MEAN, "std": STD}
LOADERS = {
    "plain": (of_numbers, None, {}, set()),
    "workers": (of_numbers, None, {"num_workers": 1}, {"workers"}),
    "arrays on the CPU": (of_arrays, "cpu", NORMALISED, {"arrays", "buffers"}),
    "arrays through the ring": (of_arrays, "twin", NORMALISED, {"arrays", "ring"}),
    "streams": (of_arrays, "streams", NORMALISED, {"arrays"}),
    "images": (of_images, "cpu", {**NORMALISED, "depth": "auto"}, {"images", "auto"}),
    "auto": (of_numbers, None, {"num_workers": "auto"}, {"auto", "workers"}),
}


@pytest.mark.skipif(extension.load() is None, reason="the native module is not in use")
@pytest.mark.parametrize("name", LOADERS)
def test_types(name, tmp_path, enter_way):
    make, way, options, more = LOADERS[name]
    if way is not None:
        enter_way(way)
    with FastLoader(make(tmp_path), 2, **options) as loader:
        assert conforms(loader.stats(), LoaderStats), "before the first epoch"
        list(loader)
        stats = loader.stats()
    assert conforms(stats, LoaderStats), stats
    assert stats.keys() == LoaderStats.__required_keys__ | more
    stats["stages"]["wait"]["planted"] = 1
    assert not conforms(stats, LoaderStats)


def keys(kind):
    for key, value in typing.get_type_hints(kind).items():
        yield key
        inner = value.__args__[-1] if typing.get_origin(value) is dict else value
        if typing.is_typeddict(inner):
            yield from keys(inner)


PAGE = PACKAGE_ROOT / "docs" / "tuning.md"


@pytest.mark.skipif(not PAGE.is_file(), reason="needs the source tree")
def test_the_table_names_every_key():
    section = PAGE.read_text().partition("## The counters\n")[2].partition("\n## ")[0]
    named = set(re.findall(r"`(\w+)`", section))
    assert len(named) > 40
    assert not set(keys(LoaderStats)) - named
