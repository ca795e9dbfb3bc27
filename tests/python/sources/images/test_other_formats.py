"""PNG and WebP in loaders: natively where the build has them, otherwise by Pillow; the same batches."""

import random
from pathlib import Path

import pytest
import torch
from decoding import count_pillows
from pictures import picture, redo, upstream_pillow
from png_files import random_png
from webp_files import random_webp

from fastloader import FastLoader, build_info
from fastloader import transforms as T
from fastloader.datasets import ImageFolder

pytestmark = pytest.mark.skipif(
    not build_info()["native"]["loaded"], reason="needs the native module"
)

COUNT = 20


def make_png(rng, path):
    path.write_bytes(random_png(rng))


def make_webp(rng, path):
    path.write_bytes(random_webp(rng))


FORMATS = {"png": make_png, "webp": make_webp}


@pytest.fixture(params=FORMATS)
def format(request):
    return request.param


def folder(root, format, seed):
    rng = random.Random(seed)
    (root / "a").mkdir()
    for number in range(COUNT):
        FORMATS[format](rng, root / "a" / f"{number:02}.{format}")
    return str(root)


@upstream_pillow
@pytest.mark.parametrize("decode", ["exact", "whole", "fast"])
def test_batches_are_pillows(tmp_path, monkeypatch, format, decode):
    seed = random.randrange(1 << 32)
    pillows = count_pillows(monkeypatch)
    dataset = ImageFolder(folder(tmp_path, format, seed), T.RandomResizedCrop((17, 13)))
    loader = FastLoader(dataset, 5, num_workers=2, decode=decode)
    assert loader.plan().startswith("native images")
    images = torch.cat([images for images, _ in loader])
    left = [] if build_info()[format] else list(range(COUNT))
    assert sorted(pillows) == left, seed
    for index, image in enumerate(images):
        wanted = redo(dataset.path(index), loader.replay(index), exact=(17, 13))
        assert torch.equal(image, wanted), (seed, index)
    assert loader.stats()["images"]["bad"] == 0


def test_a_file_that_is_neither_is_left_to_pillow(tmp_path, monkeypatch, format):
    """What only begins as one, and a larger file of another format, of which not all is read."""
    seed = random.randrange(1 << 32)
    dataset = ImageFolder(folder(tmp_path, format, seed), T.Resize((9, 8)))
    picture(random.Random(seed), 400, 300).save(dataset.path(3), "BMP")
    assert Path(dataset.path(3)).stat().st_size > 1 << 18
    path = Path(dataset.path(7))
    path.write_bytes(path.read_bytes()[:-1])
    pillows = count_pillows(monkeypatch)
    images = torch.cat([images for images, _ in FastLoader(dataset, 5, on_error="skip")])
    assert {3, 7} <= set(pillows), seed
    # A PNG may lack the last byte of its end: that is Pillow's decision.
    assert len(images) == (COUNT if format == "png" else COUNT - 1)
