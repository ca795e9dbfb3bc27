"""What the samples of a dataset become: flat arrays, made of a part of them at a time."""

import gc
import os
import random
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from fastloader._core.machine import extension
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


@pytest.mark.parametrize("without", [False, True], ids=["usual", "without native module"])
def test_the_garbage_collector_does_not_look_at_all_samples_again_and_again(monkeypatch, without):
    """Objects that it looks at, made for each sample, made it do so: 4 s for 1.5 million samples."""
    if without:
        monkeypatch.setattr(extension, "load", lambda: None)
    samples = [(f"{i}.jpg", i) for i in range(200_000)]
    gc.collect()
    looks = []
    note = lambda phase, info: looks.append(info["generation"])  # noqa: E731
    gc.callbacks.append(note)
    try:
        arrays(samples)
    finally:
        gc.callbacks.remove(note)
    assert len(looks) < 10


@pytest.mark.parametrize("place", [0, 70_000])
@pytest.mark.parametrize(
    ("odd", "known"),
    [
        (["b.jpg", 5], True),
        (("\u00fc.jpg", 5), True),
        (("b.jpg", -(1 << 63)), True),
        (("b.jpg",), False),
        (("b.jpg", 1, 2), False),
        (None, False),
        ((None, 1), False),
    ],
    ids=repr,
)
def test_one_sample_of_another_kind(monkeypatch, place, odd, known):
    """The native module refuses what it does not know, and Python reads it."""
    samples = [(f"{i}.jpg", i) for i in range(70_001)]
    samples[place] = odd
    found = []
    for loaded in (extension.load, lambda: None):
        monkeypatch.setattr(extension, "load", loaded)
        if not known:
            with pytest.raises(NotNative, match="no pairs of a path and a class"):
                arrays(samples)
            continue
        store, targets = arrays(samples)
        found.append((store.paths.tobytes(), store.ends.tolist(), targets.tolist()))
        assert store.name(place) == odd[0] and targets[place] == odd[1]
    assert not known or found[0] == found[1]
