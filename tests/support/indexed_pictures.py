"""Folders of JPEGs large enough to have a seek index, and the command that makes it."""

import random
from pathlib import Path

import numpy as np
import pytest
from pictures import pixels
from PIL import Image

import fastloader
from fastloader._core.machine import extension
from fastloader.cli.__main__ import main

needs_native = pytest.mark.skipif(extension.load() is None, reason="needs the native module")
# Indices are for our own decoder.
needs_own_decoder = pytest.mark.skipif(
    fastloader.build_info().get("cpu", {}).get("isa") in (None, "scalar"),
    reason="without vector code libjpeg-turbo is faster",
)


def save_large(path, seed, size=(600, 500), **options):
    """A picture of noise and edges."""
    rng = random.Random(seed)
    noise = np.random.default_rng(seed).integers(-30, 30, (size[1], size[0], 3))
    image = (pixels(rng, *size).astype(int) + noise).clip(0, 255).astype(np.uint8)
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(image).save(path, "JPEG", **{"quality": 92, "subsampling": seed % 3, **options})


def large_folder(root, count=6, seed=0):
    for number in range(count):
        save_large(Path(root) / f"c{number % 2}" / f"{number}.jpg", seed + number)
    return Path(root)


def index(*arguments):
    return main(["index", *map(str, arguments)])
