"""Mixes of pictures: their weights have the distribution that AugMix says, and the native module and
Pillow make the same bytes of the same numbers."""

import math
import random

import numpy as np
import pytest
from distributions import assert_same_numbers
from operations import needs_pillows_x86_64_wheel
from pictures import pixels
from PIL import Image

from fastloader import transforms as T
from fastloader._core.machine import extension
from fastloader.transforms._recipe import recipe as trees
from fastloader.transforms._recipe.operations import Canvas, named
from fastloader.transforms._recipe.recipe import MIXINGS, constant

native = extension.load()
pytestmark = needs_pillows_x86_64_wheel

SIZE = (240, 320)
SIZES = [(1, 1), (1, 2), (2, 1), (1, 37), (41, 1), (3, 5), (5, 3), (16, 16), (17, 16), (63, 65)]


@pytest.fixture
def rng():
    """Random cases, others in each run; what fails says how to make it fail again."""
    seed = random.getrandbits(32)
    print(f"seed {seed}")
    return random.Random(seed)


def leaf(value):
    return trees.operation("solarize", constant(value))


# --- what is drawn ------------------------------------------------------------------------------


def mixes(mixing, alpha, chains, seed, count=4000):
    """For each picture: what a mix begins with, what its chains get, and what it ends with."""
    recipe = native.Recipe([trees.mix(mixing, alpha, *[leaf(1)] * chains)])
    for index in range(count):
        begin, *between, end = [numbers[0] for _, numbers in recipe.draw(seed, index, 0, SIZE)]
        assert between[::2] == [1.0] * chains
        yield begin, between[1::2], end


@pytest.mark.parametrize("alpha", [0.05, 0.3, 1, 2.5, 40])
@pytest.mark.parametrize("chains", [1, 2, 3, 5])
def test_weights_of_a_mix_have_their_distribution(alpha, chains):
    seed = random.getrandbits(32)
    print("seed", seed)
    generator = np.random.default_rng(seed)
    wanted = generator.dirichlet([alpha] * chains, 4000)
    shares = generator.beta(alpha, alpha, 4000)
    drawn = list(mixes("blend", alpha, chains, seed))
    weights = np.array([each for _, each, _ in drawn])
    ends = np.array([end for *_, end in drawn])
    assert {begin for begin, *_ in drawn} == {0.0}
    assert np.abs(weights.sum(axis=1) - 1).max() < 1e-6
    assert_same_numbers(ends, shares)
    for place in range(chains):
        assert_same_numbers(weights[:, place], wanted[:, place], place)
    # What belongs together is drawn together: of all weights, the highest and the lowest.
    assert_same_numbers(weights.max(axis=1), wanted.max(axis=1))
    assert_same_numbers(weights.min(axis=1), wanted.min(axis=1))
    assert_same_numbers(weights[:, 0] * ends, wanted[:, 0] * shares)


@pytest.mark.parametrize("alpha", [1e-9, 0.05, 1, 1e9])
def test_the_forms_of_a_mix_draw_the_same_weights(alpha):
    """They say the same of them in three ways, up to what rounding does."""
    seed = random.getrandbits(32)
    print("seed", seed)
    forms = [list(mixes(mixing, alpha, 4, seed, 1000)) for mixing in MIXINGS]
    for (kept, added, one), (zero, weights, share), (whole, factors, end) in zip(*forms):
        assert (one, zero, whole, end) == (1, 0, 1, 1)
        assert kept == pytest.approx(1 - share, abs=1e-6)
        assert added == pytest.approx([weight * share for weight in weights], abs=1e-6)
        left, seen = 1.0, []
        for factor in reversed(factors):
            seen.append(left * factor)
            left *= 1 - factor
        assert seen[::-1] == pytest.approx(added, abs=1e-6), (weights, share, factors)
        assert left == pytest.approx(kept, abs=1e-6)


def test_the_draws_of_a_seed_stay():
    """Another version of fastloader draws the same, or says so in the changelog."""
    chain = trees.first(leaf(7), leaf(8), leaf(9))
    for (mixing, alpha), pinned in PINNED.items():
        recipe = native.Recipe([trees.mix(mixing, alpha, chain, chain)])
        found = recipe.draw(2**63 + 5, 2**40 + 7, 3, (33, 40))
        flat = [(name, numbers[0]) for name, numbers in found]
        assert [name for name, _ in flat] == [name for name, _ in pinned]
        # A logarithm's last bit may differ.
        assert [number for _, number in flat] == pytest.approx(
            [number for _, number in pinned], rel=1e-6
        )


PINNED = {
    ("sum", 1.0): [
        ("mix_begin", 0.6474667191505432),
        ("solarize", 7.0),
        ("mix_add", 0.3480161726474762),
        ("solarize", 7.0),
        ("solarize", 8.0),
        ("mix_add", 0.004517141729593277),
        ("mix_end", 1.0),
    ],
    ("blend", 0.3): [
        ("mix_begin", 0.0),
        ("solarize", 7.0),
        ("mix_add", 0.00186210498213768),
        ("solarize", 7.0),
        ("solarize", 8.0),
        ("mix_add", 0.998137891292572),
        ("mix_end", 0.0668134018778801),
    ],
    ("blends", 4.0): [
        ("mix_begin", 1.0),
        ("solarize", 7.0),
        ("mix_blend", 0.35040783882141113),
        ("solarize", 7.0),
        ("solarize", 8.0),
        ("mix_blend", 0.12767694890499115),
        ("mix_end", 1.0),
    ],
}


# --- what is done -------------------------------------------------------------------------------


def redone(image, operations):
    canvas = Canvas(image)
    for operation in operations:
        canvas.apply(*operation)
    return canvas.picture


def natively(image, operations):
    made, (height, width) = native.apply_operations(
        image.tobytes(), (image.height, image.width), operations
    )
    return Image.frombytes("RGB", (width, height), made)


def random_operation(rng):
    return rng.choice(
        [
            ("solarize", [rng.uniform(0, 256)]),
            ("posterize", [float(rng.randint(0, 8))]),
            ("brightness", [rng.uniform(0, 2)]),
            ("invert", []),
            ("hflip", []),
        ]
    )


def random_factor(rng):
    few = (0.0, 1.0, 0.5, 1 + 1e-7, -1.0, 2.5, 1e9, -1e30, 3e38, -3e38)
    return rng.choice(few) if rng.random() < 0.3 else rng.uniform(-0.1, 1.1)


def random_mix(rng):
    """Weights that may add up to more than a byte holds, and both ways to take a picture in."""
    operations = [("mix_begin", [rng.choice([0.0, 1.0, rng.random()])])]
    for _ in range(rng.randint(0, 5)):
        operations += [random_operation(rng) for _ in range(rng.randint(0, 3))]
        if rng.random() < 0.5:
            operations.append(("mix_add", [rng.choice([0.0, 1.0, rng.random()])]))
        else:
            operations.append(("mix_blend", [random_factor(rng)]))
    return [*operations, ("mix_end", [rng.choice([1.0, random_factor(rng)])])]


def test_mixes_of_any_numbers_have_the_same_bytes(rng):
    for _ in range(1500):
        size = rng.choice(SIZES) if rng.random() < 0.5 else (rng.randint(1, 70), rng.randint(1, 70))
        image = Image.fromarray(pixels(rng, *size))
        operations = [each for _ in range(rng.randint(1, 3)) for each in random_mix(rng)]
        made = natively(image, operations)
        assert made.tobytes() == redone(image, operations).tobytes(), (size, operations)
        steps = [named(each) for each in operations]
        assert T.apply(image, steps).tobytes() == made.tobytes()


def test_whole_trees_have_the_same_bytes(rng):
    chain = trees.first(*[trees.choice(leaf(9), trees.operation("equalize"))] * 3)
    for number in range(200):
        image = Image.fromarray(pixels(rng, *rng.choice(SIZES)))
        alpha = 10 ** rng.uniform(-3, 2)
        tree = trees.mix(rng.choice(MIXINGS), alpha, *[chain] * rng.randint(1, 4))
        operations = native.Recipe([tree]).draw(number, 0, 0, (image.height, image.width))
        assert natively(image, operations).tobytes() == redone(image, operations).tobytes()


def test_a_mix_with_itself_is_the_picture(rng):
    image = Image.fromarray(pixels(rng, 31, 17))
    add, blend = ("mix_add", [0.25]), ("mix_blend", [0.4])
    for operations in (
        [("mix_begin", [0.5]), add, add, ("mix_end", [1.0])],
        [("mix_begin", [1.0]), blend, blend, ("mix_end", [1.0])],
        [("mix_begin", [0.0]), ("invert", []), ("mix_add", [1.0]), ("mix_end", [0.0])],
    ):
        assert natively(image, operations).tobytes() == image.tobytes()
        assert redone(image, operations).tobytes() == image.tobytes()


def test_grey_pictures_are_mixed_too(rng):
    image = Image.fromarray(pixels(rng, 9, 7)).convert("L")
    operations = [("mix_begin", [0.5]), ("invert", []), ("mix_add", [0.5]), ("mix_end", [1.0])]
    made = redone(image, operations)
    assert made.mode == "L"
    assert set(made.tobytes()) == {127}


BEGIN, ADD, BLEND, END = (
    (name, [1.0]) for name in ("mix_begin", "mix_add", "mix_blend", "mix_end")
)
CROP = ("crop", [0.0, 0.0, 2.0, 2.0])


@pytest.mark.parametrize(
    "operations, said",
    [
        ([ADD], "mix_add without mix_begin"),
        ([BLEND], "mix_blend without mix_begin"),
        ([END], "mix_end without mix_begin"),
        ([BEGIN, END, ADD], "mix_add without mix_begin"),
        ([BEGIN, BEGIN], "mix_begin within a mix"),
        ([BEGIN, CROP, ADD], "mix_add: a picture of"),
        ([BEGIN, CROP, BLEND], "mix_blend: a picture of"),
        ([BEGIN, CROP, END], "mix_end: a picture of"),
    ],
)
def test_what_is_no_mix_is_refused(operations, said):
    image = Image.new("RGB", (3, 4))
    for do in (natively, redone):
        with pytest.raises(ValueError, match=said):
            do(image, operations)
    with pytest.raises(ValueError, match=said):
        T.apply(image, [named(each) for each in operations])


@pytest.mark.parametrize(
    "name, number",
    [
        ("mix_begin", -0.1), ("mix_begin", 1.1), ("mix_add", 1.1), ("mix_add", math.nan),
        ("mix_blend", 1e39), ("mix_end", math.inf),
    ],
)  # fmt: skip
def test_numbers_that_are_refused(name, number):
    before = [] if name == "mix_begin" else [BEGIN]
    with pytest.raises(ValueError, match=name):
        natively(Image.new("RGB", (3, 4)), [*before, (name, [number])])


def test_chains_that_change_the_size_are_refused():
    crop = trees.operation("crop", *map(constant, (0, 0, 2, 2)))
    tree = trees.mix("sum", 1, leaf(1), crop)
    with pytest.raises(ValueError, match="different sizes: 4x3 and 2x2"):
        native.Recipe([tree]).draw(0, 0, 0, (4, 3))
    # A crop that changes nothing may stand there, and one before or behind the mix.
    native.Recipe([tree]).draw(0, 0, 0, (2, 2))
    drawn = native.Recipe([crop, trees.mix("sum", 1, leaf(1)), crop]).draw(0, 0, 0, (4, 3))
    assert natively(Image.new("RGB", (3, 4)), drawn).size == (2, 2)
