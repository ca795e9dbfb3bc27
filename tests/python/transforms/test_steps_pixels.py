"""Colours, tones and sharpness: torchvision's arguments, pixels and distribution."""

import random

import numpy as np
import pytest
import torch
from drawn import (
    applied,
    pictures,
    redone,
    refuse_alike,
    same_counts,
    same_histograms,
    same_picture,
    samples,
    versions,
)
from pictures import import_torchvision, picture

from fastloader import transforms as T
from fastloader.errors import NotNative

SEED = 20260401
MANY = 4000


@pytest.fixture
def tv():
    return import_torchvision().transforms


def random_transform(rng, image):
    p = rng.choice([0.0, 0.5, 1.0])
    edges = [2 * rng.randint(1, min(edge, 9)) - 1 for edge in image.size]
    return rng.choice(
        [
            T.ColorJitter(
                rng.choice([0, 0.4, 2.5, (0.2, 0.3)]),
                rng.choice([0, 0.4, 2.5, (1, 1)]),
                rng.choice([0, 0.4, 2.5, (0, 0)]),
                rng.choice([0, 0.1, 0.5, (-0.5, -0.4)]),
            ),
            T.RandomGrayscale(p),
            T.Grayscale(rng.choice([1, 3])),
            T.RandomInvert(p),
            T.RandomPosterize(rng.randint(1, 8), p),
            T.RandomSolarize(rng.choice([0, 256, 17, 99.5, rng.uniform(-9, 300)]), p),
            T.RandomAdjustSharpness(rng.choice([0, 1, 2, rng.uniform(-1, 9)]), p),
            T.RandomAutocontrast(p),
            T.RandomEqualize(p),
            T.GaussianBlur(edges, rng.choice([(0.1, 2.0), 0.7])),
        ]
    )


def test_pixels_are_torchvisions(tv):
    done = set()
    for rng, image in pictures(500, SEED):
        transform = random_transform(rng, image)
        seed = rng.getrandbits(62)
        made, leaves = applied(transform, image, seed)
        if isinstance(transform, T.Grayscale):
            channels = transform.num_output_channels
            wanted = tv.functional.rgb_to_grayscale(image, channels)
        else:
            wanted = redone(tv.functional, image, leaves)
        because = (SEED, image.size, transform, leaves)
        if isinstance(transform, T.GaussianBlur):
            assert made.size == wanted.size, because
            off = np.abs(np.asarray(made, int) - np.asarray(wanted, int))
            assert off.max() <= 1 and (off > 0).mean() <= 0.001, because
        else:
            same_picture(made, wanted, because)
        done.update({type(transform), *[name for name, *_ in leaves]})
    assert len(done) == 10 + 12, done


@pytest.mark.parametrize("mode", ["L", "RGB"])
def test_pictures_of_one_channel(tv, mode):
    image = picture(random.Random(1), 13, 9, mode)
    for name in ("RandomGrayscale", "RandomInvert", "RandomEqualize", "RandomAutocontrast"):
        ours, theirs = getattr(T, name)(1.0), getattr(tv, name)(1.0)
        same_picture(ours(image), theirs(image), name)
    for channels in (1, 3):
        same_picture(T.Grayscale(channels)(image), tv.Grayscale(channels)(image), channels)


JITTERS = [
    (0.4, 0.4, 0.4, 0.1),
    (2.0, (0.5, 0.7), 0, 0.5),
    (0, 0, 0.3, (-0.1, 0.4)),
    (0, 0, 0, 0),
    ((1, 1), 0.2, (1.0, 1.0), (0, 0)),
]


@pytest.mark.parametrize("arguments", JITTERS)
def test_color_jitter_is_distributed_as_torchvisions(tv, arguments):
    torch.manual_seed(SEED)
    ours, theirs = T.ColorJitter(*arguments), tv.ColorJitter(*arguments)
    kinds = ("brightness", "contrast", "saturation", "hue")
    assert [getattr(ours, kind) for kind in kinds] == [getattr(theirs, kind) for kind in kinds]
    mine = list(samples(ours, (8, 8), MANY, SEED))
    order, values = [], {kind: [] for kind in kinds}
    for _ in range(MANY):
        drawn, *factors = theirs.get_params(*[getattr(theirs, kind) for kind in kinds])
        order.append(tuple(kinds[i] for i in drawn if factors[i] is not None))
        for kind, factor in zip(kinds, factors):
            values[kind].append(factor)
    same_counts([tuple(name for name, *_ in leaves) for leaves in mine], order, SEED)
    for kind in kinds:
        found = [numbers[0] for leaves in mine for name, numbers, _ in leaves if name == kind]
        if values[kind][0] is None:
            assert not found
        else:
            same_histograms(found, values[kind], (SEED, kind))


@pytest.mark.parametrize("sigma", [(0.1, 2.0), (0.5, 0.5), 3])
def test_blur_is_distributed_as_torchvisions(tv, sigma):
    torch.manual_seed(SEED)
    ours, theirs = T.GaussianBlur((3, 7), sigma), tv.GaussianBlur((3, 7), sigma)
    found = []
    for ((name, numbers, _),) in samples(ours, (9, 9), MANY, SEED):
        assert name == "gaussian_blur" and numbers[:2] == [3.0, 7.0]
        found.append(numbers[2])
    same_histograms(found, [theirs.get_params(*theirs.sigma) for _ in range(MANY)], SEED)


@pytest.mark.exhaustive
@pytest.mark.parametrize("p", [0.0, 0.1, 0.5, 1.0])
def test_probabilities(p):
    for transform in (
        T.RandomGrayscale(p),
        T.RandomInvert(p),
        T.RandomPosterize(3, p),
        T.RandomSolarize(128, p),
        T.RandomAdjustSharpness(2, p),
        T.RandomAutocontrast(p),
        T.RandomEqualize(p),
    ):
        count = sum(map(len, samples(transform, (8, 8), MANY, SEED)))
        assert abs(count - MANY * p) <= 5 * (MANY * p * (1 - p)) ** 0.5, (SEED, transform)


def test_nothing_to_change_draws_nothing():
    state = torch.get_rng_state()
    image = picture(random.Random(1), 5, 4)
    same_picture(T.ColorJitter()(image), image)
    assert torch.equal(torch.get_rng_state(), state)


REFUSED = [
    ("ColorJitter", (-1,), ("v1", "v2")),
    ("ColorJitter", ("x",), ("v1", "v2")),
    ("ColorJitter", ((1, 2, 3),), ("v1", "v2")),
    ("ColorJitter", ((2, 1),), ("v1", "v2")),
    ("ColorJitter", ((-1, 1),), ("v1", "v2")),
    ("ColorJitter", (float("nan"),), ("v1", "v2")),
    ("ColorJitter", (0, 0, 0, 0.6), ("v1", "v2")),
    ("ColorJitter", (0, 0, 0, (-0.6, 0)), ("v1", "v2")),
    ("ColorJitter", (0, 0, 0, -0.1), ("v1", "v2")),
    ("RandomGrayscale", (1.5,), ("v2",)),
    ("RandomInvert", (-0.5,), ("v2",)),
    ("RandomPosterize", (4, 2), ("v2",)),
    ("RandomSolarize", (4, 2), ("v2",)),
    ("RandomAdjustSharpness", (4, 2), ("v2",)),
    ("RandomAutocontrast", (2,), ("v2",)),
    ("RandomEqualize", (2,), ("v2",)),
    ("Grayscale", (2,), ("call",)),
    ("RandomPosterize", (9, 1), ()),  # which gives a TypeError or nothing, by the version of Pillow
    ("RandomPosterize", (1.5, 1), ("call",)),
    ("RandomSolarize", ("x", 1), ("call",)),
    ("RandomAdjustSharpness", ("x", 1), ("call",)),
    ("GaussianBlur", ((1, 2, 3),), ("v1", "v2")),
    ("GaussianBlur", (4,), ("v1", "v2")),
    ("GaussianBlur", (-3,), ("v1", "v2")),
    ("GaussianBlur", ((3, 2),), ("v1", "v2")),
    ("GaussianBlur", (3, 0), ("v1", "v2")),
    ("GaussianBlur", (3, -1.0), ("v1", "v2")),
    ("GaussianBlur", (3, (2.0, 1.0)), ("v1", "v2")),
    ("GaussianBlur", (3, (0.0, 1.0)), ("v1", "v2")),
    ("GaussianBlur", (3, (1.0, 2.0, 3.0)), ("v1", "v2")),
    ("GaussianBlur", (3, "xy"), ("v1",)),
    ("RandomSolarize", (float("inf"),), ()),
    ("ColorJitter", ((0, float("inf")),), ()),
]


@pytest.mark.parametrize("name, arguments, when", REFUSED)
def test_refused_as_torchvision_does(name, arguments, when):
    image = picture(random.Random(1), 5, 4)
    refuse_alike(versions(), name, arguments, when, image)


def test_one_channel_is_no_step():
    with pytest.raises(NotNative, match="only as a step of the chain"):
        T.Grayscale().step((4, 4))
    assert T.Grayscale(3).step(None).operation == "grayscale"


def test_sizes_stay():
    for transform in (T.ColorJitter(1), T.Grayscale(3), T.GaussianBlur(3), T.RandomInvert()):
        assert transform.size_after((3, 4)) == (3, 4)
        assert transform.size_after(None) is None
