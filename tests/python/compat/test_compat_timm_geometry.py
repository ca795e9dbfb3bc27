"""The crops and resizes of compat.timm beside the installed timm's: the same pixels for the same draws,
and the same distribution of draws."""

import importlib
import math
import random

import numpy as np
import pytest
import torch
from distributions import assert_same_counts, assert_same_numbers
from pictures import import_timm, picture
from PIL import Image

from fastloader.errors import NotNative
from fastloader.transforms import timm
from fastloader.transforms._reader.chain import counterpart
from fastloader.transforms._recipe.operations import apply_operation
from fastloader.transforms._recipe.recipe import Recipe

DRAWS = 2000


@pytest.fixture(scope="module")
def transforms():
    import_timm()
    return importlib.import_module("timm.data.transforms")


def seeded():
    seed = random.randrange(2**31)
    print("seed", seed)
    random.seed(seed)
    return random.Random(seed)


def drawn(transform, size, count=DRAWS):
    """The operations of many pictures of (height, width)."""
    recipe, seed = Recipe([transform.step(None)]), random.getrandbits(63)
    return [list(recipe.draw(seed, index, 0, lambda: size)) for index in range(count)]


def edges(rng):
    return rng.randint(1, 60), rng.randint(1, 60)


MODES = ("constant", "edge", "reflect", "symmetric")


def same(mine, their):
    assert mine.size == their.size and mine.mode == their.mode
    assert np.array_equal(np.asarray(mine), np.asarray(their))


@pytest.mark.parametrize("mode", ["RGB", "L"])
def test_central_crops(transforms, mode):
    rng = seeded()
    for _ in range(400):
        size, image = edges(rng), picture(rng, *edges(rng), mode)
        padding = rng.choice(MODES)
        fill = rng.choice([0, 7, [9, 99, 199]]) if mode == "RGB" else rng.choice([0, 7])
        their = transforms.CenterCropOrPad(size, fill, padding)
        for mine in (timm.CenterCropOrPad(size, fill, padding), counterpart(their)):
            same(mine(image), their(image))
            assert mine.size_after(None) == size


def test_central_crops_draw_nothing():
    torch.manual_seed(3)
    before = torch.get_rng_state()
    for mine in (timm.CenterCropOrPad(9), timm.ResizeKeepRatio(9), timm.TrimBorder(1)):
        mine(Image.new("RGB", (7, 30)))
    assert torch.equal(torch.get_rng_state(), before)
    timm.RandomCropOrPad(9)(Image.new("RGB", (7, 30)))
    assert not torch.equal(torch.get_rng_state(), before)


def offsets(operations):
    """The top and left that timm's crop_or_pad takes for what was drawn."""
    top = left = 0
    for name, numbers in operations:
        across, down = int(numbers[0]), int(numbers[1])
        top, left = (top - down, left - across) if name == "pad" else (top + down, left + across)
    return top, left


def test_random_crops(transforms):
    rng = seeded()
    for _ in range(400):
        size, image = edges(rng), picture(rng, *edges(rng))
        padding = rng.choice(MODES)
        fill = rng.choice([0, 7, [9, 99, 199]])
        their = transforms.RandomCropOrPad(size, fill, padding)
        (operations,) = drawn(counterpart(their), image.size[::-1], 1)
        made = image
        for operation in operations:
            made = apply_operation(made, *operation)
        crop = transforms.crop_or_pad
        same(made, crop(image, *offsets(operations), *size, fill=fill, padding_mode=padding))


@pytest.mark.parametrize("size", [(9, 12), (12, 9), (5, 30), (30, 5), (9, 9), (40, 40)])
def test_random_crops_have_timms_distribution(transforms, size):
    seeded()
    their = transforms.RandomCropOrPad((9, 12))
    image = Image.new("RGB", size[::-1])
    wanted = [their.get_params(image, (9, 12)) for _ in range(DRAWS)]
    mine = drawn(timm.RandomCropOrPad((9, 12)), size)
    assert_same_counts([offsets(each) for each in mine], wanted)


@pytest.mark.parametrize("size", [(9, 12), (12, 9), (5, 30), (2, 2), (40, 40)])
def test_random_pads(transforms, size):
    seeded()
    their, mine = transforms.RandomPad((9, 12), 77), timm.RandomPad((9, 12), 77)
    assert counterpart(their).step(None) == mine.step(None)
    image = picture(random, *size[::-1])
    assert mine(image).size == their(image).size == mine.size_after(size)[::-1]
    wanted = [their.get_params(image, (9, 12)) for _ in range(DRAWS)]
    found = drawn(mine, size)
    assert {name for each in found for name, _numbers in each} <= {"pad"}
    borders = [tuple(map(int, each[0][1][:4])) if each else (0, 0, 0, 0) for each in found]
    assert_same_counts(borders, wanted)
    functional = importlib.import_module("torchvision.transforms.functional")
    for each, border in zip(found[:20], borders, strict=False):
        made = apply_operation(image, *each[0]) if each else image
        same(made, functional.pad(image, border, 77))


def test_borders_are_trimmed(transforms):
    rng = seeded()
    for _ in range(200):
        border = rng.randrange(5)
        image = picture(rng, rng.randint(11, 40), rng.randint(11, 40))
        their = transforms.TrimBorder(border)
        for mine in (timm.TrimBorder(border), counterpart(their)):
            same(mine(image), their(image))
            assert mine.size_after(image.size[::-1]) == their(image).size[::-1]
    with pytest.raises(ValueError):  # as little as timm, whose picture is empty
        timm.TrimBorder(5)(Image.new("RGB", (9, 30)))


@pytest.mark.exhaustive
@pytest.mark.parametrize("interpolation", ["nearest", "bilinear", "bicubic", "box", "lanczos"])
def test_resizes_in_shape(transforms, interpolation):
    rng = seeded()
    for _ in range(200):
        size = edges(rng)
        image = picture(rng, rng.randint(20, 50), rng.randint(20, 50))
        longest = rng.choice([0, 1, 0.5, rng.random()])
        their = transforms.ResizeKeepRatio(size, longest, interpolation)
        if 0 in their.get_params(image, size, longest):
            continue
        own = timm.ResizeKeepRatio(size, longest, interpolation)
        for mine in (own, counterpart(their)):
            same(mine(image), their(image))
            assert mine.size_after(image.size[::-1]) == their(image).size[::-1]


RANDOM = {
    "scale": {"random_scale_prob": 0.6, "random_scale_range": (0.7, 1.2)},
    "area": {"random_scale_prob": 1.0, "random_scale_area": True},
    "aspect": {"random_aspect_prob": 0.3, "random_aspect_range": (0.5, 1.9)},
    "both": {
        "random_scale_prob": 0.5,
        "random_scale_area": True,
        "random_aspect_prob": 0.5,
        "interpolation": "random",
        "longest": 0.4,
    },
}


@pytest.mark.parametrize("size", [(231, 333), (500, 101)])
@pytest.mark.parametrize("name", RANDOM)
def test_random_resizes_have_timms_distribution(transforms, name, size):
    seeded()
    their = transforms.ResizeKeepRatio((300, 200), **RANDOM[name])
    mine = timm.ResizeKeepRatio((300, 200), **RANDOM[name])
    assert counterpart(their).step(None) == mine.step(None)
    assert mine.size_after(size) is None
    image = Image.new("RGB", size[::-1])
    wanted = [
        their.get_params(
            image, their.size, their.longest, their.random_scale_prob, their.random_scale_range,
            their.random_scale_area, their.random_aspect_prob, their.random_aspect_range,
        )
        for _ in range(DRAWS)
    ]  # fmt: skip
    found = [each[0][1] for each in drawn(mine, size)]
    for measure in (lambda h, w: h, lambda h, w: w, lambda h, w: h * w, lambda h, w: h / w):
        assert_same_numbers(
            [measure(h, w) for h, w, _filter in found], [measure(h, w) for h, w in wanted]
        )
    filters = [filter for _h, _w, filter in found]
    if mine.interpolation == "random":
        assert_same_counts(filters, [2.0, 3.0] * (DRAWS // 2))
    else:
        assert set(filters) == {2.0}


def test_values_that_cannot_work(transforms):
    for make in (
        lambda: timm.ResizeKeepRatio(20, interpolation="cubic"),
        lambda: timm.ResizeKeepRatio(20, random_scale_prob=1.5),
        lambda: timm.ResizeKeepRatio(20, random_aspect_range=(0.0, 1.0)),
        lambda: timm.CenterCropOrPad(0),
        lambda: timm.CenterCropOrPad(20, padding_mode="wrap"),
        lambda: timm.TrimBorder(-1),
    ):
        with pytest.raises(ValueError):
            make()
    filters = transforms._RANDOM_INTERPOLATION
    turned = transforms.ResizeKeepRatio(20, interpolation="random")
    turned.interpolation = filters[::-1]
    for their in (
        turned,
        transforms.CenterCropOrPad(20, fill=300),
        transforms.CenterCropOrPad(20, fill=(1, 2)),
        transforms.RandomCropOrPad(20, padding_mode="wrap"),
        transforms.RandomPad((20, 20), fill=0.5),
        transforms.ResizeKeepRatio(20, random_scale_prob=0.5, random_scale_range=(2.0, math.inf)),
    ):
        with pytest.raises(NotNative):
            counterpart(their)
    hooked, changed = transforms.TrimBorder(3), transforms.RandomCropOrPad(20)
    hooked.register_forward_hook(lambda *_arguments: None)
    changed.get_params = lambda image, size: (0, 0)
    for their, what in ((hooked, "hooks"), (changed, "get_params of its own")):
        with pytest.raises(NotNative, match=what):
            counterpart(their)
    own = type("TrimBorder", (transforms.TrimBorder,), {"forward": lambda self, image: image})(3)
    for unknown in (own, transforms.ToNumpy()):
        with pytest.raises(NotNative):
            counterpart(unknown)
