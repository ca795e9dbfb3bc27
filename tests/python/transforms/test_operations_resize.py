"""The native resize is Image.resize of the installed Pillow with its six older filters, bit for bit."""

import math
import random

import numpy as np
import pytest
from operations import as_pillow_resizes, needs_pillows_x86_64_wheel
from pictures import pixels
from PIL import Image

from fastloader._core.machine import extension

native = extension.load()
pytestmark = needs_pillows_x86_64_wheel

FILTERS = range(6)  # nearest, lanczos, bilinear, bicubic, box, hamming


@pytest.fixture
def rng():
    seed = random.getrandbits(32)
    print("seed", seed)  # which pytest shows where a test fails
    return random.Random(seed)


def resized(array, height, width, resampling):
    numbers = [float(number) for number in (height, width, resampling)]
    made, size = native.apply_operations(
        array.tobytes(), array.shape[:2], [("resize", numbers)], **as_pillow_resizes()
    )
    assert tuple(size) == (height, width)
    return np.frombuffer(made, np.uint8).reshape(height, width, 3)


def require_same(array, height, width, resampling):
    wanted = np.asarray(Image.fromarray(array).resize((width, height), resampling))
    different = np.argwhere(resized(array, height, width, resampling) != wanted)
    assert not len(different), (array.shape, height, width, resampling, different[:3])


def contents(rng, height, width):
    """Noise, black and white, which makes filters overshoot, and a picture with edges."""
    numbers = np.random.default_rng(rng.getrandbits(32))
    yield numbers.integers(0, 256, (height, width, 3), np.uint8)
    yield numbers.choice(np.array([0, 255], np.uint8), (height, width, 3))
    yield pixels(rng, width, height)


def edge(rng):
    return rng.choice([1, 2, 3, rng.randint(1, 20), rng.randint(1, 90), rng.randint(1, 300)])


@pytest.mark.parametrize("resampling", FILTERS)
def test_any_size_becomes_any_other(rng, resampling):
    for _ in range(150):
        for array in contents(rng, edge(rng), edge(rng)):
            require_same(array, edge(rng), edge(rng), resampling)


@pytest.mark.parametrize("resampling", FILTERS)
def test_one_edge_may_stay(rng, resampling):
    for _ in range(20):
        for array in contents(rng, edge(rng), edge(rng)):
            height, width = array.shape[:2]
            require_same(array, height, edge(rng), resampling)
            require_same(array, edge(rng), width, resampling)
            assert np.array_equal(resized(array, height, width, resampling), array)


@pytest.mark.parametrize("resampling", FILTERS)
@pytest.mark.parametrize(
    "sizes", [(1, 1, 3, 500), (2, 3000, 1, 7), (2500, 1, 5, 1), (1, 7, 600, 2)]
)
def test_extreme_ratios(rng, sizes, resampling):
    height, width, *made = sizes
    for array in contents(rng, height, width):
        require_same(array, *made, resampling)
        require_same(array, 1, 1, resampling)


@pytest.mark.parametrize("resampling", FILTERS)
def test_one_colour_stays_one_colour(rng, resampling):
    for _ in range(20):
        colour = [rng.randint(0, 255) for _ in range(3)]
        array = np.full((edge(rng), edge(rng), 3), colour, np.uint8)
        assert (resized(array, edge(rng), edge(rng), resampling) == array[0, 0]).all()


@pytest.mark.parametrize(
    "numbers",
    [
        [],
        [4, 5],
        [4, 5, 0, 0],
        [0, 5, 2],
        [4, -1, 2],
        [4.5, 5, 2],
        [4, 5, 7],
        [4, 5, -1],
        [4, 5, 0.5],
        [1e300, 5, 2],
        [1, 2**24 + 1, 2],
        [2**14, 2**14, 2],
        [math.nan, 5, 2],
        [4, math.inf, 2],
    ],
)
def test_wrong_numbers_are_refused_by_name(numbers):
    operation = ("resize", [float(number) for number in numbers])
    with pytest.raises(ValueError, match=r"^resize[ :]"):
        native.apply_operations(bytes(6 * 6 * 3), (6, 6), [operation])
