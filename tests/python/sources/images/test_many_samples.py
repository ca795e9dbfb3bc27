"""What the samples of a dataset become: flat arrays, made of a part of them at a time."""

import os
import random
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from fastloader._core.sources.reading import flat
from fastloader.errors import NotNative


class Known:
    """A dataset, which can be looked up by weak reference."""


def arrays(samples):
    store, targets = flat(Known(), samples)
    return store, targets


@pytest.mark.parametrize("count", [0, 1, 65536, 65537, 200_000])
def test_paths_and_classes_of_many_samples_are_all_there(count):
    rng = random.Random(count)
    samples = [
        (f"/{'x' * rng.randrange(30)}/{i}.jpg", rng.randrange(-5, 1000)) for i in range(count)
    ]
    store, targets = arrays(samples)
    assert len(store) == count and targets.tolist() == [target for _path, target in samples]
    assert targets.dtype == np.int64
    for index in {0, count // 2, count - 1} & set(range(count)):
        assert store.name(index) == samples[index][0]


@pytest.mark.parametrize("odd", ["é", "\udcff", Path("a/b"), b"bytes", "日本"], ids=repr)
@pytest.mark.parametrize("place", [0, 3, 70_000])
def test_one_path_of_another_kind_is_as_long_as_it_is(odd, place):
    paths = [f"{i}.jpg" for i in range(70_001)]
    paths[place] = odd
    store, _targets = arrays([(path, 0) for path in paths])
    for index in {0, place, 70_000, max(place - 1, 0)}:
        assert store.name(index) == os.fsdecode(paths[index])


@pytest.mark.parametrize("target", [1.5, True, "1", 1 << 63, -(1 << 63) - 1, np.int64(3)], ids=repr)
def test_one_target_that_is_no_whole_number_is_refused(target):
    samples = [("a.jpg", 0)] * 70_000 + [("b.jpg", target)]
    with pytest.raises(NotNative, match="the dataset's targets are"):
        arrays(samples)


def test_many_samples_take_little_beside_what_is_kept():
    samples = [(f"/a/folder/of/pictures/{i:07d}.jpg", i % 1000) for i in range(300_000)]
    kept = sum(len(path) for path, _target in samples) + 2 * 8 * len(samples)
    tracemalloc.start()
    try:
        arrays(samples)
        _now, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # An object of bytes for each path would take 80 bytes more a sample.
    assert peak < 2.5 * kept
