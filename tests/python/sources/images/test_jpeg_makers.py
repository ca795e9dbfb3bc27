"""Who decodes a JPEG: our own decoder, or for what that leaves libjpeg-turbo, or Pillow in a build
without it; stats() counts them."""

import io
import random

import numpy as np
import pytest
import torch
from pictures import upstream_pillow
from PIL import Image
from torch.utils.data import Dataset

import fastloader
from fastloader import FastLoader
from fastloader import transforms as T
from fastloader._core.machine import extension
from fastloader.datasets import ImageFolder

pytestmark = pytest.mark.skipif(
    fastloader.build_info().get("cpu", {}).get("isa") in (None, "scalar"),
    reason="without vector code libjpeg-turbo is faster",
)


def encoded(rng, mode="RGB", **options):
    width, height = rng.randint(40, 150), rng.randint(40, 150)
    noise = np.random.default_rng(rng.randrange(1 << 32)).integers(
        0, 256, (height, width, 4), np.uint8
    )
    picture = Image.fromarray(noise[..., :3]).resize(
        (width, height), Image.Resampling.BICUBIC, (0, 0, 5, 5)
    )
    file = io.BytesIO()
    picture.convert(mode).save(file, "JPEG", quality=rng.randint(20, 98), **options)
    return file.getvalue()


def cut_short(file):
    """A quarter of the entropy-coded data, and the end marker: to libjpeg that is no error."""
    begin = file.rindex(b"\xff\xda") + 14
    return file[: begin + (len(file) - begin) // 4].rstrip(b"\xff") + b"\xff\xd9"


@pytest.fixture(scope="module")
def files():
    rng = random.Random(random.randrange(1 << 32))
    clean = [encoded(rng, subsampling=sampling) for sampling in (0, 1, 2) for _ in range(4)]
    clean += [encoded(rng, subsampling=2, progressive=True) for _ in range(4)]
    clean += [encoded(rng, "L"), encoded(rng, restart_marker_blocks=3), encoded(rng, optimize=True)]
    other = [encoded(rng, "CMYK") for _ in range(2)]
    damaged = [cut_short(encoded(rng, subsampling=0)) for _ in range(6)]
    return clean, other, damaged


def expected(file, size):
    picture = Image.open(io.BytesIO(file)).convert("RGB")
    left, top = (round((extent - size) / 2) for extent in picture.size)
    return np.asarray(picture.crop((left, top, left + size, top + size)))


# None of these has a seek index.
NO_INDEX = {"indexed": 0, "unfit_index": 0}


@upstream_pillow
def test_who_made_the_pictures_of_a_folder(files, tmp_path):
    clean, other, damaged = files
    (tmp_path / "a").mkdir()
    for number, file in enumerate(clean + other + damaged):
        (tmp_path / "a" / f"{number:03}.jpg").write_bytes(file)
    size = 8
    loader = FastLoader(ImageFolder(tmp_path, T.CenterCrop(size)), 4, num_workers=2)
    assert loader.plan().startswith("native images")
    images = torch.cat([images.clone() for images, _ in loader])
    for image, file in zip(images, clean + other + damaged, strict=True):
        assert np.array_equal(image.permute(1, 2, 0).numpy(), expected(file, size))
    images = loader.stats()["images"]
    left = len(other) + len(damaged)
    if extension.lacks_libjpeg():
        assert images["jpegs"] == {"own": len(clean), "libjpeg": 0, "why": {}, **NO_INDEX}
    else:
        why = {"layout": len(other), "damage": len(damaged)}
        assert images["jpegs"] == {"own": len(clean), "libjpeg": left, "why": why, **NO_INDEX}


class Pictures(Dataset):
    def __init__(self, files):
        self.files = files

    def __len__(self):
        return len(self.files)

    def __getitem__(self, index):
        return fastloader.EncodedImage(
            self.files[index], T.Compose([T.CenterCrop(8), T.PILToTensor()])
        ), index


@upstream_pillow
def test_who_made_encoded_pictures(files):
    clean, other, _ = files
    loader = FastLoader(Pictures(clean + other), 4)
    images = torch.cat([images.clone() for images, _ in loader])
    for image, file in zip(images, clean + other, strict=True):
        assert np.array_equal(image.permute(1, 2, 0).numpy(), expected(file, 8))
    pictures = loader.stats()["pictures"]
    if extension.lacks_libjpeg():
        assert pictures["jpegs"] == {"own": len(clean), "libjpeg": 0, "why": {}, **NO_INDEX}
        assert pictures["pillow"] == len(other)
    else:
        why = {"layout": len(other)}
        assert pictures["jpegs"] == {
            "own": len(clean),
            "libjpeg": len(other),
            "why": why,
            **NO_INDEX,
        }
