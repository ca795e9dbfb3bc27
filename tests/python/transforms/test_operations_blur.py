"""The filters among the operations on pixels: the bytes of Pillow, and nearly all of torchvision's."""

import numpy as np
import pytest
from operations import needs_pillows_x86_64_wheel
from pictures import import_torchvision
from PIL import Image, ImageEnhance, ImageFilter

from fastloader._core.machine import extension

native = extension.load()
pytestmark = needs_pillows_x86_64_wheel

# (height, width): nothing to blur along an axis, less than a kernel, less than a block of any loop,
# exactly such blocks, odd remainders.
SIZES = [
    *[(1, 1), (1, 2), (2, 1), (2, 2), (1, 57), (57, 1), (2, 33), (33, 2), (3, 3), (3, 4), (4, 3)],
    *[(5, 12), (12, 5), (12, 13), (15, 16), (16, 15), (16, 16), (17, 17), (32, 48), (31, 45)],
    *[(47, 90), (101, 37), (64, 129), (130, 75)],
]


@pytest.fixture
def rng():
    seed = np.random.SeedSequence().entropy
    print("seed", seed)  # which pytest shows where a test fails
    return np.random.default_rng(seed)


def contents(rng, size):
    """Noise, edges of full contrast, a gradient, one colour, and little noise around a colour."""
    shape = (*size, 3)
    y, x = np.mgrid[0 : size[0], 0 : size[1]]
    slopes = rng.uniform(0, 4, (2, 3))
    colour = rng.integers(0, 256, 3)
    yield rng.integers(0, 256, shape)
    yield rng.choice([0, 255], shape)
    yield (y[..., None] * slopes[0] + x[..., None] * slopes[1]) % 256
    yield np.broadcast_to(colour, shape)
    yield (colour + rng.normal(0, 3, shape)).clip(0, 255)


def pictures(rng, sizes=SIZES):
    for size in sizes:
        for content in contents(rng, size):
            yield content.astype(np.uint8)


def applied(pixels, name, *numbers):
    made, size = native.apply_operations(
        pixels.tobytes(), pixels.shape[:2], [(name, [float(number) for number in numbers])]
    )
    assert tuple(size) == pixels.shape[:2]
    return np.frombuffer(made, np.uint8).reshape(pixels.shape)


def require_same(pixels, name, numbers, wanted):
    got = applied(pixels, name, *numbers)
    different = np.argwhere(got != np.asarray(wanted))
    assert not len(different), (name, numbers, pixels.shape, different[:3], len(different))


def factors(rng):
    return [
        *[0, 1, 0.5, 2.5, -0.0, -1, 1e-30, 1 - 2**-24, 1 + 2**-23, 255, -1e30, 1e38, 3.4e38],
        *rng.uniform(0, 1, 6),
        *rng.uniform(-3, 5, 6),
    ]


def test_sharpness_is_pillows(rng):
    for pixels in pictures(rng):
        enhancer = ImageEnhance.Sharpness(Image.fromarray(pixels))
        for factor in factors(rng):
            require_same(pixels, "sharpness", [factor], enhancer.enhance(factor))


def test_sharpness_is_pillows_whatever_the_sum_under_the_kernel():
    # Every sum of 8 neighbours and every pixel: 0.5 + sum / 13 never rounds otherwise. Kernels side
    # by side, a value of the pixel in each channel.
    totals = np.arange(8 * 255 + 1)
    kernels = (totals[:, None] + np.arange(8)) // 8
    kernels = np.insert(kernels, 4, 0, axis=1).reshape(-1, 3, 3).transpose(1, 0, 2).reshape(3, -1)
    strip = np.repeat(kernels[..., None], 3, axis=2).astype(np.uint8)
    for pixel in range(0, 256, 3):
        strip[1, 1::3] = np.minimum([pixel, pixel + 1, pixel + 2], 255)
        wanted = ImageEnhance.Sharpness(Image.fromarray(strip)).enhance(0)
        require_same(strip, "sharpness", [0], wanted)


def radii(rng):
    """Pairs along x and y. A box of whole radius 63 is the last with 15-bit sums: 64 and a bit."""
    fixed = [0, 0.1, 0.3, 1, 2**0.5, 2, 15, 63.5, 64, 64.5, 65, 300, 1e5, 1e7, 2**24, 1e-20, -2]
    yield from ((radius, radius) for radius in fixed)
    yield from ((0, 2), (2, 0), (0.1, 70), (70, 0.1), (0, 0))
    for most in (0.5, 2, 2, 10, 80):
        yield tuple(rng.uniform(0, most, 2).tolist())
        yield (rng.uniform(0, most),) * 2


def test_the_blur_is_pillows(rng):
    for pixels in pictures(rng):
        image = Image.fromarray(pixels)
        for pair in radii(rng):
            wanted = image.filter(ImageFilter.GaussianBlur(pair))
            require_same(pixels, "pillow_blur", pair, wanted)


def test_the_blur_is_pillows_at_every_radius_of_the_recipes(rng):
    pixels = rng.integers(0, 256, (48, 50, 3), dtype=np.uint8)
    image = Image.fromarray(pixels)
    # And where the box becomes a whole pixel wider, up to the errors of float.
    whole = np.arange(1, 40)[:, None]
    steps = np.sqrt(whole * (whole + 1)) * (1 + np.arange(-4, 5) * 2.0**-24)
    for radius in [*np.linspace(0.1, 2, 400), *np.linspace(60, 68, 100), *steps.ravel()]:
        wanted = image.filter(ImageFilter.GaussianBlur(float(radius)))
        require_same(pixels, "pillow_blur", [radius, radius], wanted)


def gaussian_parameters(rng, size):
    """Kernels of 3 to 23, or of what the picture is large enough for, and a sigma along each axis."""
    height, width = size
    edges = [int(rng.integers(1, 12)) * 2 + 1 for _ in range(2)]
    kernel = [min(edges[0], 2 * width - 1), min(edges[1], 2 * height - 1)]
    return kernel, list(rng.uniform(0.1, 2, 2))


def test_the_gaussian_blur_is_torchvisions(rng):
    import_torchvision()
    from torchvision.transforms import functional as v1
    from torchvision.transforms.v2 import functional as v2

    values = 0
    different = {v1: 0, v2: 0}
    for pixels in pictures(rng, [*SIZES, (150, 201), (224, 224)]):
        kernel, sigma = gaussian_parameters(rng, pixels.shape[:2])
        got = applied(pixels, "gaussian_blur", *kernel, *sigma).astype(int)
        values += got.size
        for version in different:
            image = Image.fromarray(pixels)
            wanted = np.asarray(version.gaussian_blur(image, kernel, sigma)).astype(int)
            distance = np.abs(got - wanted)
            assert distance.max() <= 1, (kernel, sigma, pixels.shape)
            different[version] += np.count_nonzero(distance)
    for version, count in different.items():
        assert count / values < 5e-4, (version, count, values)


def sampled_gaussian(edge, sigma):
    weights = np.exp(-0.5 * ((np.arange(edge) - edge // 2) / sigma) ** 2)
    return weights / weights.sum()


def along_axis(weights, values, axis):
    reach = len(weights) // 2
    pad = [(reach, reach) if each == axis else (0, 0) for each in range(3)]
    windows = np.lib.stride_tricks.sliding_window_view(
        np.pad(values, pad, mode="reflect"), len(weights), axis
    )
    return windows @ weights


def test_the_gaussian_blur_is_a_convolution_over_a_mirrored_picture(rng):
    # In double, and without torchvision: beyond errors of float, a rounded value is one or the other
    # only if it lies between both.
    for pixels in pictures(rng):
        for _ in range(3):
            (edge_x, edge_y), (sigma_x, sigma_y) = gaussian_parameters(rng, pixels.shape[:2])
            exact = along_axis(sampled_gaussian(edge_y, sigma_y), pixels.astype(float), 0)
            exact = along_axis(sampled_gaussian(edge_x, sigma_x), exact, 1)
            got = applied(pixels, "gaussian_blur", edge_x, edge_y, sigma_x, sigma_y)
            assert np.abs(got - exact).max() < 0.5 + 1e-4, (edge_x, edge_y, sigma_x, sigma_y)


def test_a_gaussian_blur_that_reaches_no_further_than_its_pixel_changes_nothing(rng):
    for pixels in pictures(rng, [(1, 1), (7, 30), (40, 33)]):
        assert np.array_equal(applied(pixels, "gaussian_blur", 1, 1, 2, 2), pixels)
        if min(pixels.shape[:2]) > 3:
            assert np.array_equal(applied(pixels, "gaussian_blur", 7, 7, 1e-300, 0.01), pixels)


def test_a_wide_gaussian_blur_is_the_mean(rng):
    pixels = rng.integers(0, 256, (9, 9, 3), dtype=np.uint8)
    weights = np.full(17, 1 / 17)
    exact = along_axis(weights, along_axis(weights, pixels.astype(float), 0), 1)
    got = applied(pixels, "gaussian_blur", 17, 17, 1e300, 1e10)
    assert np.abs(got - exact).max() < 0.5 + 1e-4


@pytest.mark.parametrize(
    ("name", "numbers"),
    [
        ("sharpness", []),
        ("sharpness", [1, 1]),
        ("sharpness", [float("nan")]),
        ("sharpness", [float("inf")]),
        ("sharpness", [1e39]),
        ("pillow_blur", [1]),
        ("pillow_blur", [1, 1, 1]),
        ("pillow_blur", [float("nan"), 1]),
        ("pillow_blur", [1, float("-inf")]),
        ("pillow_blur", [1e9, 1]),
        ("pillow_blur", [1, -1e9]),
        ("gaussian_blur", [3, 3]),
        ("gaussian_blur", [3, 4, 1, 1]),
        ("gaussian_blur", [2.5, 3, 1, 1]),
        ("gaussian_blur", [0, 3, 1, 1]),
        ("gaussian_blur", [-3, 3, 1, 1]),
        ("gaussian_blur", [3, 1e6 + 1, 1, 1]),
        ("gaussian_blur", [3, 1025, 1, 1]),
        ("gaussian_blur", [1e300, 3, 1, 1]),
        ("gaussian_blur", [3, 3, 0, 1]),
        ("gaussian_blur", [3, 3, 1, -1]),
        ("gaussian_blur", [3, 3, float("nan"), 1]),
    ],
)
def test_wrong_numbers_are_refused_by_name(name, numbers):
    with pytest.raises(ValueError, match=name):
        native.apply_operations(bytes(30 * 30 * 3), (30, 30), [(name, numbers)])


@pytest.mark.parametrize(("size", "kernel"), [((11, 30), (3, 23)), ((30, 11), (23, 3))])
def test_a_picture_smaller_than_half_a_kernel_is_refused_with_the_sizes(size, kernel):
    numbers = [*map(float, kernel), 1.0, 1.0]
    height, width = size
    words = f"gaussian_blur.*{kernel[0]}x{kernel[1]}.*{width}x{height}"
    with pytest.raises(ValueError, match=words):
        native.apply_operations(bytes(height * width * 3), size, [("gaussian_blur", numbers)])
    larger = (height + (height < width), width + (width < height))
    native.apply_operations(bytes(larger[0] * larger[1] * 3), larger, [("gaussian_blur", numbers)])


@pytest.mark.parametrize(
    ("name", "numbers"),
    [
        ("pillow_blur", [2.0**24, 2.0**24]),
        ("pillow_blur", [1e6, 0.1]),
        ("gaussian_blur", [1023.0, 1023.0, 1e9, 1e9]),
        ("sharpness", [3e38]),
    ],
)
def test_the_largest_numbers_leave_black_black(name, numbers):
    size = (520, 530)
    pixels = bytes(size[0] * size[1] * 3)
    assert native.apply_operations(pixels, size, [(name, numbers)]) == (pixels, size)
