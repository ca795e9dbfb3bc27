"""Photographs of one colour each, by which every picture of an epoch of ``python -m benchmarks.peers
--source`` is known again."""

import importlib

import numpy as np
import pytest
import torch
from PIL import Image

pytest.importorskip("benchmarks.peers")  # needs the source tree

from benchmarks.peers.places import CONTENDERS
from benchmarks.peers.scenarios import Settings

PACKAGES = {"lmdb": ["lmdb"], "tar-webdataset": ["webdataset"], "hf": ["datasets"]}
PACKAGES |= {"parquet": ["pyarrow"], "s3": ["obstore", "moto"]}
PACKAGES["hf-datasets"] = PACKAGES["hf"]
COUNT, BATCH = 12, 4


def colours(seed):
    """Of as many pictures, far enough apart to be told from each other in a JPEG."""
    grid = np.stack(np.meshgrid(*[np.arange(20, 256, 45)] * 3), -1).reshape(-1, 3)
    return np.random.default_rng(seed).permutation(grid)[:COUNT]


def photographs_in(root):
    """Makes a folder of pictures of one colour each. Returns it, and (colour, label) of each."""
    rows = []
    for number, colour in enumerate(colours(np.random.SeedSequence().entropy)):
        label = number % 3
        (root / f"class{label}").mkdir(exist_ok=True)
        picture = Image.new("RGB", (60 + number, 50), tuple(map(int, colour)))
        picture.save(root / f"class{label}" / f"{number}.jpg", quality=95, subsampling=0)
        rows.append((tuple(colour), label))
    return root, sorted(rows)


def settings_of(photographs, work, **more):
    return Settings(str(photographs[0]), str(work), threads=0, batch_size=BATCH, **more)


def contender(name, settings):
    """Epochs of it; skips without its packages."""
    for package in PACKAGES.get(name, ["pymongo"] if name.startswith("mongo") else []):
        pytest.importorskip(package)
    scenario = CONTENDERS[name]
    module = importlib.import_module(f"benchmarks.peers.scenarios.{scenario.module}")
    assert module.versions()["torch"] == torch.__version__
    return getattr(module, scenario.function)(settings)


def assert_an_epoch(epochs, photographs):
    """Each picture once, beside its own label: a crop of one colour has that colour."""
    found = []
    _root, rows = photographs
    known = np.array([colour for colour, _label in rows])
    for images, labels in epochs.loader:
        assert images.dtype == torch.uint8 and images.shape[1:] == (3, 224, 224)
        for image, label in zip(images.numpy().astype(float), labels.tolist(), strict=True):
            distances = np.abs(known - image.mean((1, 2))).max(1)
            assert distances.min() < 4 and image.std((1, 2)).max() < 2
            found.append((tuple(known[distances.argmin()]), label))
    assert sorted(found) == rows
    assert sum(epochs()) == COUNT
