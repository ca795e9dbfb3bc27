"""The native colour operations give the bytes of Pillow: of ImageOps, ImageEnhance and, for the hue,
of the conversions through which torchvision shifts it."""

import math
import random

import numpy as np
import pytest
from operations import needs_pillows_x86_64_wheel
from pictures import import_timm, import_torchvision, pixels
from PIL import Image, ImageEnhance, ImageOps

from fastloader._core.machine import extension

native = extension.load()
pytestmark = needs_pillows_x86_64_wheel

# Beside random ones: 0 and 1, what rounds to them in float, and what is too small or too large there.
FACTORS = [
    0,
    1,
    0.5,
    2,
    -1,
    1 / 3,
    1 - 1e-9,
    1 + 1e-9,
    1e-46,
    1e-30,
    -1e-30,
    300,
    -300,
    1e9,
    3e38,
    -3e38,
]
SIZES = [
    (1, 1),
    (1, 2),
    (2, 1),
    (1, 37),
    (41, 1),
    (3, 5),
    (16, 16),
    (1, 256),
    (257, 1),
    (63, 65),
    (97, 131),
]


@pytest.fixture
def rng(record_property):
    seed = random.SystemRandom().getrandbits(32)
    record_property("seed", seed)
    print(f"seed {seed}")  # pytest shows it where a test fails
    return random.Random(seed)


def any_pictures(rng):
    """Noise, gradients, few colours and one colour, in all sizes: arrays (height, width, 3)."""
    numbers = np.random.default_rng(rng.getrandbits(32))
    for height, width in [*SIZES, (rng.randint(1, 200), rng.randint(1, 200))]:
        shape = (height, width, 3)
        yield numbers.integers(0, 256, shape, np.uint8)
        yield pixels(rng, width, height)
        low, high = sorted(rng.sample(range(257), 2))
        yield numbers.integers(low, high, shape, np.uint8)
        yield numbers.choice(numbers.integers(0, 256, rng.randint(2, 4)), shape).astype(np.uint8)
        # Row by row one less, or one more: each row has the lowest or highest value so far.
        ramp = np.zeros(shape, int) + np.arange(height)[:, None, None]
        start = numbers.integers(0, 256, 3)
        for rows in (start - ramp, start + ramp):
            yield rows.clip(0, 255).astype(np.uint8)
        # One value nearly everywhere, which is what equalize has its rule for.
        rare = numbers.random(shape) < 0.02
        yield np.where(rare, numbers.integers(0, 256, shape), rng.randint(0, 255)).astype(np.uint8)
        for colour in ((0, 0, 0), (255, 255, 255), numbers.integers(0, 256, 3)):
            yield np.broadcast_to(np.array(colour, np.uint8), shape).copy()


def applied(array, *operations):
    made, size = native.apply_operations(array.tobytes(), array.shape[:2], list(operations))
    assert size == array.shape[:2]
    return np.frombuffer(made, np.uint8).reshape(array.shape)


def check(rng, name, reference, draws):
    """``draws`` makes lists of numbers; the reference takes them after a picture of Pillow's."""
    for array in any_pictures(rng):
        for numbers in draws():
            wanted = np.asarray(reference(Image.fromarray(array), *numbers))
            assert np.array_equal(applied(array, (name, numbers)), wanted), (
                name,
                numbers,
                array.shape,
            )


def without_numbers():
    return [[]]


# --- what they must give ------------------------------------------------------------------------


def posterize(image, bits):
    # From 13.0 on, Pillow refuses 0 bits.
    return ImageOps.posterize(image, bits) if bits else image.point([0] * 768)


def solarize_add(image, add, threshold=128):
    """timm's."""
    table = [min(255, i + add) if i < threshold else i for i in range(256)]
    return image.point(table * 3)


def grayscale(image):
    return image.convert("L").convert("RGB")


def hue(image, factor):
    """torchvision's."""
    h, s, v = (np.array(band) for band in image.convert("HSV").split())
    h += np.int32(factor * 255).astype(np.uint8)
    hsv = np.stack([h, s, v], axis=-1)
    return Image.frombytes("HSV", image.size, hsv.tobytes()).convert("RGB")


ENHANCEMENTS = {
    "brightness": ImageEnhance.Brightness,
    "contrast": ImageEnhance.Contrast,
    "saturation": ImageEnhance.Color,
}


def hues(rng, count=4):
    return [-0.5, 0, 0.5, 1 / 255, -1 / 255, *(rng.uniform(-0.5, 0.5) for _ in range(count))]


# --- against Pillow -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["invert", "autocontrast", "equalize"])
def test_without_parameters(name, rng):
    check(rng, name, getattr(ImageOps, name), without_numbers)


def test_posterize(rng):
    check(rng, "posterize", posterize, lambda: [[bits] for bits in range(9)])


def test_solarize(rng):
    def draws():
        edges = [0, 1, 127.5, 128, 255, 255.5, 256, 1000, -1, -0.5, 1e-9]
        return [[number] for number in [*edges, rng.uniform(0, 256), rng.randint(0, 256)]]

    check(rng, "solarize", ImageOps.solarize, draws)


def test_solarize_add(rng):
    def draws():
        edges = [
            [0],
            [1],
            [110],
            [255],
            [1000],
            [-1],
            [-255],
            [-1000],
            [40, 0],
            [40, 256],
            [-40, 300],
        ]
        some = [[rng.randint(-50, 300), rng.randint(-1, 257)] for _ in range(3)]
        return [*edges, [rng.randint(0, 110)], [60, 99.5], *some]

    check(rng, "solarize_add", solarize_add, draws)


@pytest.mark.parametrize("name", ENHANCEMENTS)
def test_enhancements(name, rng):
    def draws():
        some = [rng.random(), rng.uniform(0, 3), rng.uniform(-9, 9), rng.randint(0, 255) / 255]
        return [[factor] for factor in [*FACTORS, *some]]

    check(rng, name, lambda image, factor: ENHANCEMENTS[name](image).enhance(factor), draws)


@pytest.mark.parametrize("name", ["brightness", "contrast"])
def test_every_value_of_a_channel_by_many_factors(name, rng):
    array = np.zeros((1, 512, 3), np.uint8)
    array[0, :256] = np.arange(256)[:, None]
    for _ in range(2000):
        array[0, 256:] = rng.randint(0, 255)  # moves the mean
        image = Image.fromarray(array)
        factor = rng.choice([rng.random(), rng.uniform(0, 3), rng.uniform(-3, 30)])
        wanted = np.asarray(ENHANCEMENTS[name](image).enhance(factor))
        assert np.array_equal(applied(array, (name, [factor])), wanted), (
            name,
            factor,
            array[0, -1],
        )


def test_grayscale(rng):
    check(rng, "grayscale", grayscale, without_numbers)


def test_hue(rng):
    check(rng, "hue", hue, lambda: [[factor] for factor in hues(rng)])


def test_every_colour(rng):
    green, blue = np.mgrid[0:256, 0:256].astype(np.uint8)
    for first in range(0, 256, 16):
        rows = [np.stack([np.full_like(green, first + i), green, blue], -1) for i in range(16)]
        array = np.concatenate(rows)
        image = Image.fromarray(array)
        factor, turn = rng.uniform(0, 2), rng.uniform(-0.5, 0.5)
        assert np.array_equal(applied(array, ("hue", [turn])), hue(image, turn)), turn
        assert np.array_equal(applied(array, ("grayscale", [])), grayscale(image))
        wanted = ImageEnhance.Color(image).enhance(factor)
        assert np.array_equal(applied(array, ("saturation", [factor])), wanted), factor


def test_every_shift_of_the_hue(rng):
    array = np.random.default_rng(rng.getrandbits(32)).integers(0, 256, (64, 64, 3), np.uint8)
    image = Image.fromarray(array)
    for shift in range(-127, 128):
        factor = math.copysign(abs(shift) + 0.25, shift) / 255
        assert np.array_equal(applied(array, ("hue", [factor])), hue(image, factor)), shift


def test_one_after_the_other(rng):
    """Each operation takes what the one before it left, the odd pixels at the end included."""
    steps = {
        "invert": (ImageOps.invert, []),
        "autocontrast": (ImageOps.autocontrast, []),
        "equalize": (ImageOps.equalize, []),
        "solarize": (ImageOps.solarize, [100]),
        "brightness": (lambda image, f: ImageEnhance.Brightness(image).enhance(f), [0.7]),
        "contrast": (lambda image, f: ImageEnhance.Contrast(image).enhance(f), [1.6]),
        "saturation": (lambda image, f: ImageEnhance.Color(image).enhance(f), [1.9]),
        "hue": (hue, [0.2]),
    }
    for array in any_pictures(rng):
        names = rng.choices(list(steps), k=4)
        image = Image.fromarray(array)
        for name in names:
            image = steps[name][0](image, *steps[name][1])
        made = applied(array, *((name, steps[name][1]) for name in names))
        assert np.array_equal(made, np.asarray(image)), (names, array.shape)


# --- against torchvision and timm ---------------------------------------------------------------


def test_torchvision(rng):
    F = import_torchvision().transforms.functional
    kinds = {
        "invert": (F.invert, without_numbers),
        "posterize": (F.posterize, lambda: [[rng.randint(1, 8)]]),
        "solarize": (F.solarize, lambda: [[rng.uniform(0, 256)]]),
        "autocontrast": (F.autocontrast, without_numbers),
        "equalize": (F.equalize, without_numbers),
        "brightness": (F.adjust_brightness, lambda: [[rng.uniform(0, 2)]]),
        "contrast": (F.adjust_contrast, lambda: [[rng.uniform(0, 2)]]),
        "saturation": (F.adjust_saturation, lambda: [[rng.uniform(0, 2)]]),
        "grayscale": (lambda image: F.rgb_to_grayscale(image, 3), without_numbers),
        "hue": (F.adjust_hue, lambda: [[factor] for factor in hues(rng)]),
    }
    for name, (reference, draws) in kinds.items():
        check(rng, name, reference, draws)


def test_timm(rng):
    import_timm()
    from timm.data import auto_augment

    kinds = {
        "posterize": (auto_augment.posterize, lambda: [[rng.randint(1, 8)]]),
        "solarize": (auto_augment.solarize, lambda: [[rng.randint(0, 256)]]),
        "solarize_add": (auto_augment.solarize_add, lambda: [[rng.randint(0, 128)]]),
        "brightness": (auto_augment.brightness, lambda: [[rng.uniform(0.1, 1.9)]]),
        "contrast": (auto_augment.contrast, lambda: [[rng.uniform(0.1, 1.9)]]),
        "saturation": (auto_augment.color, lambda: [[rng.uniform(0.1, 1.9)]]),
    }
    for name, (reference, draws) in kinds.items():
        check(rng, name, reference, draws)


# --- what is refused ----------------------------------------------------------------------------

WRONG = [
    *((name, [1]) for name in ("invert", "autocontrast", "equalize", "grayscale")),
    *((name, []) for name in (*ENHANCEMENTS, "posterize", "solarize", "solarize_add", "hue")),
    *((name, [0, 0]) for name in (*ENHANCEMENTS, "posterize", "solarize", "hue")),
    *((name, [factor]) for name in ENHANCEMENTS for factor in (math.nan, math.inf, 1e39, -1e39)),
    *(("posterize", [bits]) for bits in (-1, 9, 3.5, math.nan)),
    *(("solarize", [threshold]) for threshold in (math.nan, math.inf)),
    *(
        ("solarize_add", numbers)
        for numbers in ([0.5], [1e10], [1, 2, 3], [math.nan], [1, math.nan])
    ),
    *(("hue", [factor]) for factor in (0.5000001, -0.5000001, math.nan)),
]


@pytest.mark.parametrize(("name", "numbers"), WRONG)
def test_wrong_numbers_are_refused(name, numbers):
    array = np.zeros((2, 2, 3), np.uint8)
    with pytest.raises(ValueError, match=rf"^{name}[ :]"):
        applied(array, (name, numbers))
