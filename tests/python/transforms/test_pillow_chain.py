"""A chain done by Pillow draws what the native module draws, and makes the same pixels."""

import dataclasses
import math
import random
import re

import numpy as np
import pytest
from operations import needs_pillows_x86_64_wheel
from pictures import picture
from PIL import Image

from fastloader import transforms as T
from fastloader._core.machine import extension
from fastloader._core.pictures.store import FolderStore
from fastloader.transforms._chain import Chain
from fastloader.transforms._reader.chain import read_chain
from fastloader.transforms._recipe import draw
from fastloader.transforms._recipe.draws import PICTURE, VERTICAL_FLIP, Draws
from fastloader.transforms._recipe.operations import size_after

native = extension.load()
pytestmark = needs_pillows_x86_64_wheel

FILTERS = ("bilinear", "bicubic", "box", "hamming", "lanczos", "random")
# Whose native pixels are Pillow's, whatever size they get: no GaussianBlur, which is torch's.
STEPS = (
    lambda rng: T.RandomCrop((20, 31), 3, True, 7, rng.choice(["constant", "edge"])),
    lambda rng: T.Pad((3, 1, 2, 5), 9, rng.choice(["constant", "edge"])),
    lambda rng: T.RandomRotation(180, rng.choice(["nearest", "bilinear"]), expand=True, fill=5),
    lambda rng: T.RandomRotation(60, "bicubic", expand=True, center=(3, 4)),
    lambda rng: T.RandomRotation((90, 90), expand=True),
    lambda rng: T.RandomAffine(30, (0.2, 0.1), (0.6, 1.5), (-20, 20, -10, 10), "bilinear"),
    lambda rng: T.RandomPerspective(0.6, 0.9, "bilinear"),
    lambda rng: T.Resize(rng.randint(5, 40)),
    lambda rng: T.RandomResizedCrop(16, interpolation="lanczos"),
    lambda rng: T.CenterCrop((11, 40)),
    lambda rng: T.RandomHorizontalFlip(),
    lambda rng: T.RandomVerticalFlip(),
    lambda rng: T.ColorJitter(0.4, (0.2, 1.9), 0.8, 0.3),
    lambda rng: T.RandomEqualize(),
    lambda rng: T.Compose([T.CenterCrop((14, 19)), T.RandAugment(3, 11)]),
    lambda rng: T.TrivialAugmentWide(),
    lambda rng: T.Compose([T.Resize((21, 13)), T.AugMix()]),
    lambda rng: T.RandomApply([T.RandomInvert(1), T.RandomHorizontalFlip(1)], 0.5),
    lambda rng: T.RandomChoice([T.RandomPosterize(2, 1), T.RandomAutocontrast(1)]),
    lambda rng: T.RandomOrder([T.RandomPosterize(4), T.RandomSolarize(60), T.RandomGrayscale()]),
)


@pytest.fixture
def rng():
    seed = random.getrandbits(32)
    print(f"seed {seed}")  # which pytest shows where a test fails
    return random.Random(seed)


def size(rng):
    return rng.randint(1, 48), rng.randint(1, 48)


def random_head(rng):
    chain = Chain(filter=rng.choice(FILTERS))
    scale = rng.choice(["crop", "exact", "shorter", "cover", "fit", None])
    if scale == "crop":
        low, thin = rng.uniform(0.05, 0.9), rng.uniform(0.3, 1.2)
        chain.random_crop = (low, rng.uniform(low, 1.2), thin, rng.uniform(thin, 3))
        chain.exact = size(rng)
    elif scale == "shorter":
        chain.shorter = rng.randint(1, 40)
        chain.max_size = rng.choice([None, chain.shorter + rng.randint(1, 20)])
    elif scale is not None:
        setattr(chain, scale, size(rng))
    if rng.random() < 0.5:
        chain.center_crop = size(rng)
        chain.fill = rng.choice([(0, 0, 0), (200, 3, 77)])
    chain.horizontal_flip = rng.choice([0.0, 1.0, 0.5, rng.random()])
    chain.vertical_flip = rng.choice([0.0, 1.0, 0.5, rng.random()])
    return chain


def random_chain(rng):
    chain = random_head(rng)
    if rng.random() < 0.3:
        return chain
    steps = [make(rng) for make in rng.sample(STEPS, rng.randint(1, 3))]
    # Behind a pad of nothing: whatever comes after it is no step of the head.
    read = read_chain(T.Compose([T.Pad(0), *steps, T.CenterCrop(9), T.PILToTensor()]), False)
    return dataclasses.replace(chain, recipe=read.recipe)


def job_of(chain, paths):
    runs = [str(path).encode() for path in paths]
    store = FolderStore(
        np.frombuffer(b"".join(runs), np.uint8),
        np.cumsum([len(run) for run in runs]).astype(np.uint64),
    ).opened()
    return native.ImageJob(
        source=store.source,
        transform=chain.native(),
        planar=False,
        recipe=chain.native_recipe(),
        any_size=True,
    )


@pytest.fixture
def paths(rng, tmp_path):
    sizes = [(1, 1), (1, 30), (60, 2), (37, 29), (64, 48), (33, 70)]
    paths = [tmp_path / f"{number}.jpg" for number in range(len(sizes))]
    for path, (width, height) in zip(paths, sizes):
        picture(rng, width, height).save(path, quality=92)
    return paths


def test_the_draws_are_the_native_modules(rng, paths):
    drawn = refused = 0
    for _ in range(600):
        chain = random_chain(rng)
        job = job_of(chain, paths)
        for _ in range(3):
            found = (rng.randint(1, 90), rng.choice([1, rng.randint(1, 90), rng.randint(1, 2000)]))
            seed, sample = rng.getrandbits(64), rng.getrandbits(rng.choice([5, 60]))
            try:
                wanted = job.draw(sample, seed, found)
            except ValueError:
                with pytest.raises(ValueError):
                    draw.draw(chain, found, seed, sample)
                refused += 1
                continue
            mine = draw.draw(chain, found, seed, sample)
            assert mine == wanted, (chain, found, seed, sample)
            assert chain.steps(mine) == chain.steps(wanted)
            drawn += 1
    assert drawn > 1000 and refused


@pytest.mark.parametrize(
    "step",
    [
        lambda: T.RandomRotation((37, 37), "nearest", expand=True),
        lambda: T.Resize(1000),
        lambda: T.Pad(20_000),
    ],
)
def test_what_would_be_too_large_is_refused_before_it_is_made(paths, step):
    chain = Chain(shorter=40)
    read = read_chain(T.Compose([T.Pad(0), step(), T.CenterCrop(9), T.PILToTensor()]), False)
    chain.recipe = read.recipe
    with pytest.raises(ValueError, match=r"would make a picture of \d+ x \d+ pixels") as wanted:
        job_of(chain, paths).draw(0, 5, (1, 1500))
    with pytest.raises(ValueError, match=re.escape(str(wanted.value))):
        draw.draw(chain, (1, 1500), 5, 0)


def test_the_pixels_are_the_native_modules(rng, paths):
    compared = 0
    pictures = [Image.open(path).convert("RGB") for path in paths]
    for _ in range(150):
        chain = random_chain(rng)
        job = job_of(chain, paths)
        for sample, image in enumerate(pictures):
            seed = rng.getrandbits(63)
            try:
                pixels, (height, width), _large = job.picture(sample, seed)
            except ValueError:
                with pytest.raises(ValueError):
                    draw.apply_chain(chain, image, seed, sample)
                continue
            found = draw.apply_chain(chain, image, seed, sample)
            assert found.size == (width, height), (chain, seed, sample)
            assert found.tobytes() == pixels, (chain, seed, sample)
            compared += 1
    assert compared > 600


def test_pictures_of_one_sample_draw_by_their_number(rng):
    steps = [T.RandomResizedCrop(16, interpolation="random"), T.RandomHorizontalFlip()]
    steps += [T.RandomVerticalFlip(), T.ColorJitter(0.4), T.PILToTensor()]
    chain = read_chain(T.Compose(steps), False)
    at = (50, 60), rng.getrandbits(64), 7
    drawn = [draw.draw(chain, *at, number) for number in range(40)]
    for key in ("box", "hflip", "vflip", "interpolation", "operations"):
        assert len({str(each[key]) for each in drawn}) > 1, key
    assert draw.draw(chain, *at) == drawn[0]
    flipped = [Draws(*at[1:], VERTICAL_FLIP | n << PICTURE).uniform() < 0.5 for n in range(40)]
    assert [each["vflip"] for each in drawn] == flipped
    image = picture(rng, 60, 50)
    assert draw.apply_chain(chain, image, *at[1:], 3) != draw.apply_chain(chain, image, *at[1:])
    for number in (-1, 4096):
        with pytest.raises(ValueError, match="4096 are the most"):
            draw.draw(Chain(exact=(3, 3)), *at, number)


def test_the_size_after_a_rotation_is_pillows(rng):
    for _ in range(2000):
        width, height = rng.randint(1, 80), rng.randint(1, 80)
        angle = rng.choice([rng.uniform(-800, 800), 90.0 * rng.randint(-9, 9), -1e-14])
        middle = rng.choice([(), (rng.uniform(-9, 90), rng.uniform(-9, 90))])
        expand = rng.random() < 0.8
        numbers = [angle, 0.0, float(expand), *middle, 0.0, 0.0, 0.0]
        turned = Image.new("L", (width, height)).rotate(angle, expand=expand, center=middle or None)
        assert size_after(("rotate", numbers), (height, width)) == turned.size[::-1], numbers
    assert math.prod(size_after(("mix_begin", [0.5]), (3, 4))) == 12
