"""The native path follows the installed Pillow's order of passes, and people are told what they have."""

import random

import PIL
import pytest
import torch
from pictures import FILTERS, picture, upstream_pillow
from PIL import Image

from fastloader import FastLoader
from fastloader import transforms as T
from fastloader._core.machine import extension
from fastloader.datasets import ImageFolder
from fastloader.transforms._pillow import pass_order

needs_native = pytest.mark.skipif(
    extension.load() is None, reason="the native module is not in use"
)


@pytest.mark.parametrize(
    ("version", "order"),
    [
        ("13.0.0", "PILLOW13"),
        ("13.1.0.dev0", "PILLOW13"),
        ("14.2.1", "PILLOW13"),
        ("12.3.0", "PILLOW12_2"),
        ("12.2.0", "PILLOW12_2"),
        ("12.1.1", "HORIZONTAL_FIRST"),
        ("10.0.1", "HORIZONTAL_FIRST"),
        ("9.5.0.post2", "PILLOW13"),  # Pillow-SIMD, which is nobody's measure
    ],
)
def test_the_order_of_each_version(version, order):
    assert pass_order(version) == order


def in_two_steps(image, size, vertical_first):
    """By any Pillow: a resize along one axis is one pass, which rounds."""
    width, height = size
    between = (image.width, height) if vertical_first else (width, image.height)
    return image.resize(between, FILTERS["bilinear"]).resize(size, FILTERS["bilinear"])


@needs_native
@upstream_pillow
@pytest.mark.parametrize(
    ("version", "vertical_first"),
    [
        ("13.0.0", lambda w, h, to: h > to[1] and h - to[1] > 2 * (w - to[0])),
        ("12.3.0", lambda w, h, to: h > to[1] and h > 100 * w),
        ("12.1.1", lambda w, h, to: False),
    ],
)
def test_pixels_are_those_of_the_version_that_is_installed(
    version, vertical_first, tmp_path, monkeypatch
):
    monkeypatch.setattr(PIL, "__version__", version)
    rng = random.Random()
    seed = rng.getrandbits(32)
    rng.seed(seed)
    sizes = [(rng.randint(20, 90), rng.randint(20, 400)) for _ in range(30)]
    sizes += [(rng.randint(1, 3), rng.randint(400, 500)) for _ in range(10)]
    (tmp_path / "class").mkdir()
    for number, (width, height) in enumerate(sizes):
        image = picture(rng, width, height)
        image.save(tmp_path / "class" / f"{number:02}.jpg", quality=95)
    size = (31, 17)
    loader = FastLoader(ImageFolder(tmp_path, T.Resize(size[::-1])), 1)
    assert loader.plan().startswith("native images")
    turned = 0
    for number, (images, _) in enumerate(loader):
        with Image.open(tmp_path / "class" / f"{number:02}.jpg") as file:
            image = file.convert("RGB")
        both = []
        for first in (False, True):
            resized = in_two_steps(image, size, first)
            pixels = torch.frombuffer(bytearray(resized.tobytes()), dtype=torch.uint8)
            both.append(pixels.view(17, 31, 3).permute(2, 0, 1))
        turned += not torch.equal(*both)
        wanted = both[vertical_first(*sizes[number], size)]
        assert torch.equal(images[0], wanted), (seed, number, sizes[number])
    assert turned > 10, "the order of the passes shows in few of these pictures"
