"""Warps, rotations, frames and flips of the native module are Pillow's, bit for bit."""

import math
import random

import numpy as np
import pytest
from operations import needs_pillows_x86_64_wheel
from pictures import import_torchvision
from PIL import Image, ImageOps

from fastloader._core.machine import extension

native = extension.load()
pytestmark = needs_pillows_x86_64_wheel

RESAMPLINGS, BLACK = (0, 2, 3), (0, 0, 0)


def applied(image, *operations):
    data, size = native.apply_operations(image.tobytes(), image.size[::-1], list(operations))
    return np.frombuffer(data, np.uint8).reshape(*size, 3)


def same(image, wanted, *operations):
    """Compares the values. A picture without pixels is refused here."""
    wanted = np.asarray(wanted)
    if wanted.size == 0:
        with pytest.raises(ValueError, match=operations[0][0]):
            applied(image, *operations)
        return
    made = applied(image, *operations)
    assert made.shape == wanted.shape, (image.size, operations)
    assert np.array_equal(made, wanted), (image.size, operations)


def rounds(count):
    """As many random generators, and the seed that brings a failure back."""
    seed = random.getrandbits(32)
    for number in range(count):
        yield random.Random(f"{seed}.{number}"), (seed, number)


def picture(rng, largest=300):
    width, height = rng.choice(
        [
            (1, 1),
            (1, rng.randint(1, 50)),
            (rng.randint(1, 50), 1),
            (2, 2),
            (3, 2),
            (rng.randint(1, 40), rng.randint(1, 40)),
            (rng.randint(1, largest), rng.randint(1, largest)),
        ]
    )
    numbers = np.random.default_rng(rng.getrandbits(32))
    pixels = numbers.integers(0, 256, (height, width, 3), dtype=np.uint8)
    if rng.random() < 0.3:  # what a bicubic filter overshoots
        pixels = (pixels > 127).astype(np.uint8) * 255
    return Image.fromarray(pixels)


def colour(rng):
    return rng.choice([BLACK, (128, 128, 128), tuple(rng.randint(0, 255) for _ in range(3))])


def fillcolor(rng, fill):
    """What Image.transform is given: None means the same as black."""
    return None if fill == BLACK and rng.random() < 0.5 else fill


# --- coefficients -------------------------------------------------------------------------------


def turned(rng, w, h):
    angle, zoom = rng.uniform(0, 7), rng.uniform(0.2, 3)
    c, s = math.cos(angle) * zoom, math.sin(angle) * zoom
    return [c, s, rng.uniform(-w, w), -s, c, rng.uniform(-h, h)]


def sheared(rng, w, h):
    factor = rng.uniform(-1, 1)
    return rng.choice([[1, factor, 0, 0, 1, 0], [1, 0, 0, factor, 1, 0]])


def moved(rng, w, h):
    x = rng.choice([0, rng.uniform(-w, w), rng.randint(-w, w)])
    y = rng.choice([0, rng.uniform(-h, h), rng.randint(-h, h)])
    return [1, 0, x, 0, 1, y]


def scaled(rng, w, h):
    """No rotation, no shear: Pillow has a way of its own for these."""
    x, y = rng.uniform(-w, 2 * w), rng.uniform(-h, 2 * h)
    return [rng.uniform(-2, 2), 0, x, 0, rng.uniform(-2, 2), y]


def quarters(rng, w, h):
    return list(rng.choice([(0, 1, 0, -1, 0, h), (0, -1, w, 1, 0, 0), (-1, 0, w, 0, -1, h)]))


def halves(rng, w, h):
    """Positions between two pixels and on the picture's edges."""
    return [rng.choice([0, 0.5, 1, 1, 2, -0.5, -1]) for _ in range(6)]


def anything(rng, w, h):
    return [rng.uniform(-3, 3) for _ in range(6)]


def any_magnitude(rng, w, h):
    return [rng.uniform(-1, 1) * 10 ** rng.uniform(-20, 20) for _ in range(6)]


def nearly_nothing(rng, w, h):
    tiny = [rng.uniform(-1e-15, 1e-15) for _ in range(3)]
    return [1 + tiny[0], tiny[1], tiny[2], 0, 1, 0]


def as_far_as_fixed_point(rng, w, h):
    """About the border where Pillow changes from ints, whose sums may run over, to doubles."""
    x, y = rng.uniform(-32769, 32769), rng.uniform(-32769, 32769)
    a, b = rng.uniform(-65536 / w, 65536 / w), rng.uniform(-65536 / h, 65536 / h)
    return [a, rng.uniform(-1, 1), x, rng.uniform(-1, 1), b, y]


def on_borders(rng, w, h):
    """Sums that come to the border of a pixel again and again, or nearly: each rounding shows."""
    x, y = (rng.choice([-1, 1]) * rng.randint(1, 12) / rng.randint(3, 12) for _ in range(2))
    return [x, 0, rng.randint(0, w) - x * 0.5, 0, y, rng.randint(0, h) - y * 0.5]


def on_far_borders(rng, w, h):
    """The same in one row of a picture whose others lie about where fixed point ends."""
    numbers = on_borders(rng, w, h)
    numbers[1] = rng.choice([-1, 1]) * rng.randint(20000, 80000) // h
    numbers[2] -= numbers[1] * (rng.randrange(h) + 0.5)
    return numbers


def huge(rng, w, h):
    """Sums that leave the doubles, differences of infinities, numbers that have no int."""
    values = [0, 1, -1, 0.5, 1e300, -1e300, 1.7e308, -1.7e308, 1e-300]
    values += [2147483648.0, -2147483649.0, 1e9, 5e4, 65535, 32767.99999]
    return [rng.choice(values) for _ in range(6)]


COEFFICIENTS = [
    turned,
    sheared,
    moved,
    scaled,
    quarters,
    halves,
    anything,
    any_magnitude,
    nearly_nothing,
    as_far_as_fixed_point,
    on_borders,
    on_far_borders,
    huge,
]


@pytest.mark.parametrize("kind", COEFFICIENTS, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("resampling", RESAMPLINGS)
def test_affine(kind, resampling):
    for rng, which in rounds(60):
        image, fill = picture(rng), colour(rng)
        numbers = kind(rng, *image.size)
        wanted = image.transform(
            image.size, Image.Transform.AFFINE, numbers, resampling, fillcolor=fillcolor(rng, fill)
        )
        print(which)
        same(image, wanted, ("affine", [*numbers, resampling, *fill]))


def slight(rng, w, h):
    return [rng.uniform(-0.5 / w, 0.5 / w), rng.uniform(-0.5 / h, 0.5 / h)]


def vanishing(rng, w, h):
    """The denominator changes its sign inside the picture, or is 0 for a whole row or column."""
    column, row = rng.randrange(w) + 0.5, rng.randrange(h) + 0.5
    return rng.choice([[-1 / column, 0], [0, -1 / row], [-2.0, 0], [-2 / w, -2 / h]])


def overflowing(rng, w, h):
    return rng.choice([[1e308, -1e308], [1e308, 1e308], [1e300, 0]])


@pytest.mark.parametrize("divisor", [slight, vanishing, overflowing], ids=lambda d: d.__name__)
@pytest.mark.parametrize("resampling", RESAMPLINGS)
def test_perspective(divisor, resampling):
    for rng, which in rounds(200):
        image, fill = picture(rng), colour(rng)
        numbers = rng.choice(COEFFICIENTS)(rng, *image.size) + divisor(rng, *image.size)
        wanted = image.transform(
            image.size,
            Image.Transform.PERSPECTIVE,
            numbers,
            resampling,
            fillcolor=fillcolor(rng, fill),
        )
        print(which)
        same(image, wanted, ("perspective", [*numbers, resampling, *fill]))


def test_no_place_is_not_outside():
    """0 / 0 passes Pillow's test for pixels outside, where it mixes pixels."""
    image = Image.new("RGB", (3, 2), (9, 8, 7))
    numbers = [1, 0, -0.5, 0, 1, -0.5, -2, 0]  # the first column's centre becomes 0 / 0
    assert applied(image, ("perspective", [*numbers, 0, 1, 2, 3]))[0, 0].tolist() == [1, 2, 3]
    for resampling in (2, 3):
        made = applied(image, ("perspective", [*numbers, resampling, 1, 2, 3]))
        assert made[0, 0].tolist() == [0, 0, 0]


@pytest.mark.parametrize("turned_over", [False, True])
def test_sums_in_fixed_point_run_over(turned_over):
    """The corners pass Pillow's test, but rounded steps carry the last pixels beyond its ints."""
    numbers = np.random.default_rng(random.getrandbits(32))
    pixels = numbers.integers(0, 256, (2, 60000, 3), dtype=np.uint8)
    coefficients = [35790.55 / 65536, 1e-9, 0.75, 0, 1, 0]
    if turned_over:
        pixels = np.ascontiguousarray(pixels.transpose(1, 0, 2))
        coefficients = [1, 0, 0, 1e-9, 35790.55 / 65536, 0.75]
    image = Image.fromarray(pixels)
    wanted = image.transform(
        image.size, Image.Transform.AFFINE, coefficients, 0, fillcolor=(1, 2, 3)
    )
    assert wanted.getpixel((image.width - 1, image.height - 1)) == (1, 2, 3)
    same(image, wanted, ("affine", [*coefficients, 0, 1, 2, 3]))


# --- rotations ----------------------------------------------------------------------------------


def angle(rng):
    return rng.choice(
        [
            rng.uniform(-30, 30),
            rng.uniform(-720, 720),
            rng.randint(-8, 8) * 90,
            rng.randint(-24, 24) * 15,
            rng.randint(-400, 400),
            rng.randint(-4, 4) * 90 + rng.uniform(-1e-12, 1e-12),
            rng.uniform(-1e-14, 1e-14),
            -1e-20,  # whose remainder is 360 itself
            1e300 * rng.uniform(-1, 1),
        ]
    )


@pytest.mark.parametrize("expand", [0, 1])
@pytest.mark.parametrize("resampling", RESAMPLINGS)
def test_rotate(resampling, expand):
    for rng, which in rounds(250):
        image, fill, degrees = picture(rng, 200), colour(rng), angle(rng)
        w, h = image.size
        centre = rng.choice(
            [None, None, (0, 0), (w / 2, h / 2), (rng.uniform(-w, 2 * w), rng.uniform(-h, 2 * h))]
        )
        wanted = image.rotate(
            degrees, resampling, bool(expand), centre, fillcolor=fillcolor(rng, fill)
        )
        print(which)
        numbers = [degrees, resampling, expand, *(centre or ()), *fill]
        same(image, wanted, ("rotate", numbers))


def test_turns_by_quarters_move_pixels():
    for rng, which in rounds(20):
        image = picture(rng)
        for quarter, method in ((1, Image.Transpose.ROTATE_90), (-1, Image.Transpose.ROTATE_270)):
            print(which)
            same(image, image.transpose(method), ("rotate", [90 * quarter, 3, 1, 9, 9, 9]))
        same(image, image.transpose(Image.Transpose.ROTATE_180), ("rotate", [540, 3, 0, 9, 9, 9]))
        same(image, image, ("rotate", [720, 3, 0, 9, 9, 9]))


def test_sines_and_their_roundings_are_pythons():
    """A picture's corner lies so far away from the centre that the matrix's last digits show."""
    image = Image.fromarray(
        np.arange(96 * 96 * 3, dtype=np.uint32).astype(np.uint8).reshape(96, 96, 3)
    )
    for rng, which in rounds(300):
        degrees = rng.uniform(-360, 360)
        radius = 10 ** rng.uniform(10, 15)
        towards = rng.uniform(0, 7)
        centre = (radius * math.cos(towards), radius * math.sin(towards))
        # Only a centre that turns into itself keeps the picture in sight.
        degrees *= 30 / radius
        for resampling in (0, 3):
            wanted = image.rotate(degrees, resampling, False, centre)
            print(which)
            same(image, wanted, ("rotate", [degrees, resampling, 0, *centre, 0, 0, 0]))


# --- frames and flips ---------------------------------------------------------------------------

NUMPY_MODES = {1: "edge", 2: "reflect", 3: "symmetric"}


def padded_as_torchvision(image, edges, mode):
    """Negative padding cuts first."""
    left, top, right, bottom = edges
    w, h = image.size
    image = image.crop((max(-left, 0), max(-top, 0), w - max(-right, 0), h - max(-bottom, 0)))
    around = ((max(top, 0), max(bottom, 0)), (max(left, 0), max(right, 0)), (0, 0))
    return np.pad(np.asarray(image), around, NUMPY_MODES[mode])


def paddings(rng):
    most = rng.choice([3, 20, 400])
    least = rng.choice([0, 0, -3, -20])
    return tuple(rng.choice([0, rng.randint(least, most)]) for _ in range(4))


def test_pad_with_a_colour():
    for rng, which in rounds(300):
        image, edges, fill = picture(rng, 60), paddings(rng), colour(rng)
        print(which)
        numbers = [*edges, 0, *fill]
        if image.width + edges[0] + edges[2] < 1 or image.height + edges[1] + edges[3] < 1:
            with pytest.raises(ValueError, match="pad"):
                applied(image, ("pad", numbers))
            continue
        same(image, ImageOps.expand(image, edges, fill), ("pad", numbers))


@pytest.mark.parametrize("mode", NUMPY_MODES)
def test_pad_that_continues_the_picture(mode):
    compared = 0
    for rng, which in rounds(300):
        image, edges = picture(rng, 60), paddings(rng)
        print(which)
        numbers = [*edges, mode, 1, 2, 3]
        left, top, right, bottom = (min(edge, 0) for edge in edges)
        if image.width + left + right < 1 or image.height + top + bottom < 1:
            with pytest.raises(ValueError, match="pad"):
                applied(image, ("pad", numbers))
            continue
        same(image, padded_as_torchvision(image, edges, mode), ("pad", numbers))
        compared += 1
    assert compared > 100


def test_crop():
    for rng, which in rounds(300):
        image = picture(rng, 60)
        left, top = rng.randint(-30, 70), rng.randint(-30, 70)
        width, height = rng.randint(1, 90), rng.randint(1, 90)
        print(which)
        wanted = image.crop((left, top, left + width, top + height))
        same(image, wanted, ("crop", [left, top, width, height]))


def test_flips():
    for rng, which in rounds(60):
        image = picture(rng)
        print(which)
        same(image, image.transpose(Image.Transpose.FLIP_LEFT_RIGHT), ("hflip", []))
        same(image, image.transpose(Image.Transpose.FLIP_TOP_BOTTOM), ("vflip", []))


def test_one_after_the_other():
    """Each works on what the one before it made: sizes and memory change in between."""
    for rng, which in rounds(60):
        image = picture(rng, 100)
        wanted = ImageOps.expand(image, (3, 0, 1, 2), (1, 2, 3))
        wanted = wanted.rotate(33, 3, True, fillcolor=(4, 5, 6))
        wanted = wanted.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        wanted = wanted.transform(
            wanted.size, Image.Transform.AFFINE, [1, 0.3, 0, 0, 1, 0], 2, fillcolor=(7, 7, 7)
        )
        wanted = wanted.rotate(90, expand=True).crop((-2, 1, 40, 30))
        print(which)
        same(
            image,
            wanted,
            ("pad", [3, 0, 1, 2, 0, 1, 2, 3]),
            ("rotate", [33, 3, 1, 4, 5, 6]),
            ("hflip", []),
            ("affine", [1, 0.3, 0, 0, 1, 0, 2, 7, 7, 7]),
            ("rotate", [90, 0, 1, 0, 0, 0]),
            ("crop", [-2, 1, 42, 29]),
        )


def test_as_torchvision_calls_pillow():
    """The fill that torchvision makes of none, and its own padding."""
    import_torchvision()
    from torchvision.transforms import _functional_pil as functional

    for rng, which in rounds(40):
        image = picture(rng, 60)
        w, h = image.size
        resampling = rng.choice(RESAMPLINGS)
        fill = rng.choice([None, 7, (1.9, 2, 3)])
        rgb = BLACK if fill is None else (7, 7, 7) if fill == 7 else (1, 2, 3)
        print(which)
        numbers = turned(rng, w, h)
        wanted = functional.affine(image, numbers, resampling, fill)
        same(image, wanted, ("affine", [*numbers, resampling, *rgb]))
        numbers += slight(rng, w, h)
        wanted = functional.perspective(image, numbers, resampling, fill)
        same(image, wanted, ("perspective", [*numbers, resampling, *rgb]))
        degrees, expand = angle(rng), rng.random() < 0.5
        wanted = functional.rotate(image, degrees, resampling, expand, None, fill)
        same(image, wanted, ("rotate", [degrees, resampling, expand, *rgb]))
        edges = tuple(rng.randint(-w // 3 if i % 2 == 0 else -h // 3, 9) for i in range(4))
        for mode, name in {0: "constant", **NUMPY_MODES}.items():
            if w + min(edges[0], 0) + min(edges[2], 0) < 1:
                continue
            if h + min(edges[1], 0) + min(edges[3], 0) < 1:
                continue
            wanted = functional.pad(image, edges, fill, name)
            same(image, wanted, ("pad", [*edges, mode, *rgb]))


# --- what is refused ----------------------------------------------------------------------------

REFUSED = {
    "affine": [
        [1, 0, 0, 0, 1, 0, 0, 0, 0],
        [1, 0, 0, 0, 1, 0, 1, 0, 0, 0],
        [1, 0, 0, 0, 1, 0, 2.5, 0, 0, 0],
        [1, 0, 0, 0, 1, 0, 4, 0, 0, 0],
        [1, 0, 0, 0, 1, 0, 0, 256, 0, 0],
        [1, 0, 0, 0, 1, 0, 0, 0, -1, 0],
        [1, 0, 0, 0, 1, 0, 0, 0, 0, 0.5],
        [1, 0, math.nan, 0, 1, 0, 0, 0, 0, 0],
        [1, 0, math.inf, 0, 1, 0, 0, 0, 0, 0],
    ],
    "perspective": [
        [1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0],
        [1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0],
        [1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 1e300],
    ],
    "rotate": [
        [],
        [10, 0, 0, 0, 0],
        [10, 0, 0, 0, 0, 0, 0],
        [10, 1, 0, 0, 0, 0],
        [10, 0, 2, 0, 0, 0],
        [10, 0, 0, 300, 0, 0],
        [10, 0, 0, 1, 1, 0, 0, 300],
        [math.nan, 0, 0, 0, 0, 0],
        [45, 0, 1, 1e300, 1e300, 0, 0, 0],  # the corners fall together
        [45, 0, 1, 1.7e308, 1.7e308, 0, 0, 0],
    ],
    "pad": [
        [1, 1, 1, 1, 0],
        [1, 1, 1, 1, 4, 0, 0, 0],
        [1, 1, 1, 1.5, 0, 0, 0, 0],
        [1e9, 0, 0, 0, 0, 0, 0, 0],
        [0, 0, 0, -1e9, 0, 0, 0, 0],
        [1e7, 1e7, 1e7, 1e7, 0, 0, 0, 0],
        [1e300, 0, 0, 0, 2, 0, 0, 0],
        [16777216, 0, 0, 0, 1, 0, 0, 0],
        [0, 0, 100000, 100000, 3, 0, 0, 0],
        [-5, 0, -5, 0, 0, 0, 0, 0],
        [-5, 0, 9, 0, 1, 0, 0, 0],
        [1, 1, 1, 1, 0, 0, 0, 256],
    ],
    "crop": [
        [0, 0, 1],
        [0, 0, 0, 1],
        [0, 0, 1, -1],
        [0.5, 0, 1, 1],
        [1e9, 0, 1, 1],
        [0, 0, 1e7, 1e7],
        [0, 0, 1, 1e300],
    ],
    **{flip: [[1]] for flip in ("hflip", "vflip")},
}


@pytest.mark.parametrize(
    ("name", "numbers"), [(name, numbers) for name in REFUSED for numbers in REFUSED[name]]
)
def test_refused(name, numbers):
    image = Image.new("RGB", (5, 4))
    with pytest.raises(ValueError, match=name):
        applied(image, (name, numbers))


def test_an_angle_expands_by_no_more_than_the_diagonal():
    image = Image.new("RGB", (1, 300))
    for rng, which in rounds(50):
        made = applied(image, ("rotate", [angle(rng), 0, 1, 0, 0, 0]))
        assert max(made.shape[:2]) <= 303, which
