"""What is drawn for a picture: the native module and Python draw the same, with the distribution that a
recipe's steps say."""

import collections
import math
import random

import numpy as np
import pytest

from fastloader._core.machine import extension
from fastloader.transforms._recipe import recipe as trees
from fastloader.transforms._recipe.number import Number, constant, uniform
from fastloader.transforms._recipe.recipe import OPERATIONS, Recipe, Step

native = extension.load()
pytestmark = pytest.mark.skipif(native is None, reason="needs the native module")

MANY = 20_000
LEAF = OPERATIONS[0]  # its numbers are drawn here, and not checked


def leaf(value):
    return trees.operation(LEAF, constant(value))


def random_number(rng):
    a, width = rng.uniform(-5, 5), rng.uniform(0, 5)
    origin = rng.choice(["constant", "uniform", "whole", "normal"])
    if origin == "whole":
        a, width = float(round(a)), float(rng.randrange(40))
    b = width if origin == "normal" else a + width
    low, high = (a - 1, a + 2) if rng.random() < 0.5 else (-math.inf, math.inf)
    rounding = rng.choice(["none", "truncate", "nearest"])
    scale, offset = rng.uniform(-3, 3), rng.uniform(-3, 3)
    return Number(
        origin, a, b, low, high, scale, offset, rounding, rng.random() < 0.5, rng.uniform(-1, 1)
    )


def random_tree(rng, depth):
    kind = rng.choice(["all", "apply", "choice", "order", "some"]) if depth else "operation"
    if kind == "operation":
        numbers = [random_number(rng) for _ in range(rng.randrange(4))]
        return trees.operation(LEAF, *numbers)
    children = [random_tree(rng, rng.randrange(depth)) for _ in range(rng.randrange(1, 6))]
    weights = tuple(rng.uniform(0.1, 3) for _ in children)
    return Step(
        kind,
        probability=rng.random(),
        weights=weights if kind in ("choice", "some") else (),
        count=rng.randrange(len(children) + 1) if kind == "some" else 0,
        children=tuple(children),
    )


def same(ours, theirs):
    assert [name for name, _ in ours] == [name for name, _ in theirs]
    for (_, mine), (_, yours) in zip(ours, theirs, strict=True):
        assert np.array(mine).tobytes() == np.array(yours).tobytes()


def test_both_know_the_same_operations():
    assert native.OPERATIONS == OPERATIONS


def test_both_draw_the_same():
    rng = random.Random()
    drawn = 0
    for _ in range(300):
        root = random_tree(rng, 4)
        mine, yours = Recipe(root), native.Recipe(root)
        for _ in range(5):
            at = rng.getrandbits(64), rng.getrandbits(64), rng.choice([0, 1, 4095])
            same(mine.draw(*at), yours.draw(*at))
            drawn += len(mine.draw(*at))
    assert drawn > 1000


def values(root, seed=None):
    """What the leaves of each picture say."""
    recipe = native.Recipe(root)
    seed = random.getrandbits(64) if seed is None else seed
    drawn = [recipe.draw(seed, index) for index in range(MANY)]
    return [tuple(numbers[0] for _, numbers in operations) for operations in drawn]


def fits(counts, expected):
    """Chi-square: a fit this bad comes once in a million runs."""
    total = sum(counts.values())
    assert set(counts) <= set(expected)
    square = sum(
        (counts[key] - total * share) ** 2 / (total * share) for key, share in expected.items()
    )
    freedom = len(expected) - 1
    # Wilson and Hilferty: the cube root is nearly normal.
    deviate = ((square / freedom) ** (1 / 3) - (1 - 2 / (9 * freedom))) / math.sqrt(
        2 / (9 * freedom)
    )
    assert deviate < 4.8, (counts, expected)


def test_apply_has_its_probability():
    counts = collections.Counter(values(trees.apply(0.3, leaf(1), leaf(2))))
    fits(counts, {(): 0.7, (1, 2): 0.3})
    for p, always in ((0, ()), (1, (1,))):
        assert set(values(trees.apply(p, leaf(1)))) == {always}


def test_a_choice_has_its_weights():
    root = trees.choice(leaf(1), leaf(2), leaf(3), leaf(4), weights=(1, 0, 2, 5))
    fits(collections.Counter(values(root)), {(1,): 1 / 8, (3,): 2 / 8, (4,): 5 / 8})


def test_every_order_is_as_likely():
    counts = collections.Counter(values(trees.in_any_order(leaf(1), leaf(2), leaf(3), leaf(4))))
    assert len(counts) == 24
    fits(counts, dict.fromkeys(counts, 1 / 24))


def test_some_are_different_and_drawn_by_weight():
    counts = collections.Counter(
        values(trees.some(2, leaf(1), leaf(2), leaf(3), weights=(1, 2, 5)))
    )
    share = {1: 1 / 8, 2: 2 / 8, 3: 5 / 8}
    pairs = [(a, b) for a in share for b in share if a != b]
    fits(counts, {(a, b): share[a] * share[b] / (1 - share[a]) for a, b in pairs})


def test_numbers_have_their_distribution():
    def drawn(number):
        return np.array(values(trees.operation(LEAF, number)))[:, 0]

    flat = drawn(uniform(-2, 6))
    assert flat.min() >= -2 and flat.max() < 6
    fits(collections.Counter(np.floor(flat).tolist()), dict.fromkeys(range(-2, 6), 1 / 8))
    whole = drawn(Number("whole", 3, 9))
    fits(collections.Counter(whole.tolist()), dict.fromkeys(range(3, 10), 1 / 7))
    normal = drawn(Number("normal", 5, 2))
    edges = [0.5 * math.erfc(-each / math.sqrt(2)) for each in (-2, -1, 0, 1, 2)]
    shares = np.diff([0, *edges, 1])
    bins = np.digitize((normal - 5) / 2, [-2, -1, 0, 1, 2])
    fits(collections.Counter(bins.tolist()), dict(enumerate(shares)))
    clamped = drawn(Number("normal", 0, 1, low=-0.5, high=1))
    assert clamped.min() == -0.5 and clamped.max() == 1
    signs = drawn(Number("constant", 3, scale=2, either_sign=True, after=1))
    fits(collections.Counter(signs.tolist()), {7: 0.5, -5: 0.5})
    assert set(drawn(Number("constant", -2.5, rounding="truncate"))) == {-2}
    assert set(drawn(Number("constant", 2.5, rounding="nearest"))) == {2}


def test_a_step_in_front_moves_no_draw_of_another_kind():
    seed = random.getrandbits(64)
    jitter = trees.in_any_order(leaf(1), leaf(2), leaf(3))
    alone = values(jitter, seed)
    behind = values(trees.together(trees.apply(0.5, trees.choice(leaf(8), leaf(9))), jitter), seed)
    assert [each[-3:] for each in behind] == alone


def test_steps_of_a_kind_and_pictures_of_a_sample_draw_apart():
    seed = random.getrandbits(64)
    number = trees.operation(LEAF, uniform(0, 1))
    both = np.array(values(trees.together(number, number), seed))
    assert (both[:, 0] != both[:, 1]).all()
    assert abs(np.corrcoef(both.T)[0, 1]) < 0.05
    recipe = native.Recipe(number)
    pictures = {recipe.draw(seed, 7, picture)[0][1][0] for picture in range(100)}
    assert len(pictures) == 100


@pytest.mark.parametrize(
    "root, said",
    [
        (Step("apply", probability=1.5), "probability 1.5"),
        (Step("apply", probability=math.nan), "probability"),
        (Step("choice", weights=(1.0,), children=(leaf(1), leaf(2))), "1 weights for 2"),
        (Step("choice", weights=(-1.0, 2.0), children=(leaf(1), leaf(2))), "weight -1"),
        (Step("choice", weights=(0.0,), children=(leaf(1),)), "above 0"),
        (trees.some(2, leaf(1), leaf(2), weights=(0.0, 1.0)), "2 among 1"),
        (Step("twice"), "twice"),
        (trees.operation("no such thing"), "no such thing"),
        (trees.operation(LEAF, uniform(2, 1)), "from 2"),
        (trees.operation(LEAF, Number("whole", 0.5, 3)), "whole number"),
        (trees.operation(LEAF, Number("whole", 0, 2.0**40)), "2\\^32"),
        (trees.operation(LEAF, Number("normal", 0, -1)), "deviation"),
        (trees.operation(LEAF, Number("uniform", -math.inf, 0)), "figure"),
        (trees.operation(LEAF, constant(math.nan)), "figure"),
        (trees.operation(LEAF, Number("dice", 1, 2)), "dice"),
        (trees.together(*[leaf(1)] * 4096), "4096"),
    ],
)
def test_what_cannot_be_drawn_is_refused(root, said):
    with pytest.raises(ValueError, match=said):
        native.Recipe(root)


def test_a_picture_beyond_the_last_is_refused():
    with pytest.raises(ValueError, match="4096"):
        native.Recipe(leaf(1)).draw(0, 0, 4096)
