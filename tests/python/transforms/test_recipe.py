"""What is drawn for a picture: the native module and Python draw the same, with the distribution that a
recipe's steps say."""

import collections
import contextlib
import dataclasses
import math
import random
import types

import numpy as np
import pytest

from fastloader._core.machine import extension
from fastloader.transforms._recipe import recipe as trees
from fastloader.transforms._recipe.draws import Draws
from fastloader.transforms._recipe.operations import (
    OF_MIX,
    OPERATIONS,
    named,
    unnamed,
)
from fastloader.transforms._recipe.recipe import (
    MIXINGS,
    Number,
    Recipe,
    Step,
    constant,
    one_of,
    uniform,
)
from fastloader.transforms._recipe.sized import SIZED

native = extension.load()
pytestmark = pytest.mark.skipif(native is None, reason="needs the native module")

MANY = 20_000
LEAF = "solarize"  # which takes any number
SIZE = (240, 320)


def leaf(value):
    return trees.operation(LEAF, constant(value))


@pytest.fixture
def rng(request):
    """Random cases, others in each run; what fails says how to make it fail again."""
    seed = random.getrandbits(32)
    print(f"seed {seed}")  # which pytest shows where a test fails
    return random.Random(seed)


def random_number(rng):
    a, width = rng.uniform(-5, 5), rng.uniform(0, 5)
    origin = rng.choice(["constant", "uniform", "table", "normal"])
    b = width if origin == "normal" else a + width
    low, high = (a - 1, a + 2) if rng.random() < 0.5 else (-math.inf, math.inf)
    return Number(
        origin,
        a,
        b,
        low,
        high,
        scale=rng.uniform(-3, 3),
        offset=rng.uniform(-3, 3),
        rounding=rng.choice(["none", "truncate", "nearest", "single"]),
        either_sign=rng.random() < 0.5,
        after=rng.uniform(-1, 1),
        values=tuple(rng.uniform(-9, 9) for _ in range(rng.randrange(1, 40)))
        if origin == "table"
        else (),
        unit=rng.choice(["one", "width", "height"]),
    )


def random_sized(rng):
    """A step that depends on the picture's size, most of whose numbers are drawn."""
    name = rng.choice(list(SIZED))
    if name == "resize_shorter":
        numbers = [rng.randrange(20, 60), rng.choice([0, 70]), rng.choice([0, 2, 3])]
    elif name == "center_crop":
        numbers = [rng.randrange(1, 90), rng.randrange(1, 90)]
    elif name == "random_crop":
        border = [rng.randrange(5) for _ in range(4)]
        numbers = [*(rng.randrange(1, 60), rng.randrange(1, 60)), rng.choice([1, 2]), *border]
        numbers += [rng.choice([0, 1, 2, 3]), 1, 2, 3]
    elif name == "random_resized_crop":
        numbers = [rng.randrange(1, 90), rng.randrange(1, 90), 0.1, 1, 0.5, 2, 2]
    elif name.startswith("affine_about"):
        turn = Number("uniform", -180, 180)
        moved = [Number("uniform", -0.2, 0.2, unit=unit) for unit in ("width", "height")]
        shears = [Number("uniform", -40, 40), Number("uniform", -40, 40)]
        numbers = [turn, *moved, Number("uniform", 0.5, 2), *shears, 2, 4, 5, 6]
        numbers += rng.choice([[], [3.5, 9]])
    elif name == "random_perspective":
        numbers = [uniform(0, 1), 2, 7, 8, 9]
    elif name == "crop_or_pad":
        numbers = [rng.randrange(1, 90), rng.randrange(1, 90), rng.randrange(2), rng.randrange(2)]
        numbers += [rng.choice([0, 1, 2, 3]), 1, 2, 3]
    elif name == "resize_keep_ratio":
        longest, aspect = uniform(0, 1), Number("uniform", -0.1, 0.1)
        numbers = [rng.randrange(5, 90), rng.randrange(5, 90), longest, uniform(0.8, 1.2)]
        numbers += [rng.randrange(2), aspect, 2]
    elif name == "blur_between":
        numbers = [0.1, 2, uniform(0, 1)]
    else:
        raise AssertionError(f"no case for {name}")
    made = [each if isinstance(each, Number) else constant(each) for each in numbers]
    return trees.sized(name, *made)


def random_mix(rng, depth):
    """A mix of chains, most of which leave the picture's size as it is."""
    chains = []
    for _ in range(rng.randrange(1, 5)):
        chain = [trees.operation(LEAF, random_number(rng)) for _ in range(rng.randrange(1, 4))]
        chains.append(trees.first(*chain) if rng.random() < 0.7 else trees.together(*chain))
    tree = random_tree(rng, depth)
    if rng.random() < 0.1 and not tree.mixes:
        chains.append(tree)
    alpha = rng.choice([1, 10 ** rng.uniform(-9, 9), 10 ** rng.uniform(-2, 1)])
    return trees.mix(rng.choice(MIXINGS), alpha, *chains)


def random_tree(rng, depth):
    kinds = ["all", "apply", "choice", "order", "some", "first", "mix"]
    kind = rng.choice(kinds) if depth else "operation"
    if kind == "mix":
        return random_mix(rng, depth - 1)
    if kind == "operation":
        if rng.random() < 0.3:
            return random_sized(rng)
        return trees.operation(LEAF, random_number(rng))
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
        assert np.array(mine).tobytes() == np.array(yours).tobytes(), (mine, yours)


def drawn_in_python(steps, seed, index, picture, size):
    """What Python draws if pictures become as large as the native module makes them."""
    now = [size]
    found = []
    for operation in Recipe(steps).draw(seed, index, picture, lambda: now[0]):
        found.append(operation)
        if operation[0] in OF_MIX:
            continue
        height, width = now[0]
        _, now[0] = native.apply_operations(bytes(3 * height * width), now[0], [operation])
    return found


def test_both_know_the_same_operations():
    effects = [(name, kind.effect) for name, kind in OPERATIONS.items()]
    assert effects == list(native.OPERATIONS.items())
    assert tuple(SIZED) == native.SIZED
    for name, kind in OPERATIONS.items():
        for count in {*range(15)} - {*range(kind.least, kind.most + 1)}:
            with pytest.raises(ValueError, match="numbers"):
                trees.operation(name, *[constant(1)] * count)
            with pytest.raises(ValueError, match="numbers"):
                native.apply_operations(bytes(3), (1, 1), [(name, [1.0] * count)])


def test_both_draw_the_same(rng):
    drawn = 0
    for _ in range(300):
        steps = [random_tree(rng, rng.randrange(4)) for _ in range(rng.randrange(1, 4))]
        yours = native.Recipe(steps)
        for _ in range(5):
            at = rng.getrandbits(64), rng.getrandbits(64), rng.choice([0, 1, 4095])
            at = (*at, (rng.randrange(1, 60), rng.randrange(1, 60)))
            try:
                found = yours.draw(*at)
            except ValueError as error:
                # A size that allows no such step: Python says so, too.
                with pytest.raises(ValueError, match=str(error).split()[-1].strip("()")):
                    drawn_in_python(steps, *at)
                continue
            same(drawn_in_python(steps, *at), found)
            drawn += len(found)
    assert drawn > 1000


def test_operations_have_names_for_their_numbers(rng):
    for name, kind in OPERATIONS.items():
        for count in {kind.least, kind.most}:
            numbers = [1.0] * count
            called, parameters = named((name, numbers))
            if name == "gaussian_blur":
                numbers = [1.0] * kind.most  # one sigma stands for both axes
            assert unnamed(called, parameters) == (name, numbers)
    with pytest.raises(ValueError, match="no step 'twirl'"):
        unnamed("twirl", {})
    with pytest.raises(ValueError, match="no parameter 'strength'"):
        unnamed("hue", {"strength": 1})
    with pytest.raises(KeyError):
        unnamed("hue", {})


def test_a_tree_moves_pixels_if_one_of_its_operations_does():
    flip, blur = trees.operation("hflip"), trees.sized("blur_between", *[constant(1)] * 3)
    assert flip.moves and not leaf(1).moves and not blur.moves
    assert trees.apply(0.1, blur, trees.choice(leaf(1), flip)).moves
    assert trees.mix("sum", 1, leaf(1), flip).moves
    assert not trees.mix("sum", 1, leaf(1), blur).moves


def test_what_a_sized_step_becomes_has_its_effect(rng):
    seen = set()
    while seen != set(SIZED):
        step = random_sized(rng)
        try:
            found = drawn_in_python([step], rng.getrandbits(64), 0, 0, (40, 60))
        except ValueError:  # a picture of that size allows no such step
            continue
        assert {OPERATIONS[name].effect for name, _ in found} <= {SIZED[step.operation].effect}
        seen |= {step.operation} if found else set()


def test_a_sized_step_says_whether_it_draws(rng):
    for _ in range(500):
        step = random_sized(rng)
        draws, untouched = Draws(1, 2, 3), Draws(1, 2, 3)
        numbers = [each.draw(Draws(4, 5, 6), (40, 60)) for each in step.numbers]
        with contextlib.suppress(ValueError):  # a picture of that size allows no such step
            SIZED[step.operation].draw(numbers, (40, 60), draws)
        if draws.bits() != untouched.bits():
            assert SIZED[step.operation].random(step.numbers), step


def test_the_draws_of_a_seed_stay():
    """Another version of fastloader draws the same, or says so in the changelog."""
    jitter = trees.in_any_order(
        *(trees.operation(each, uniform(0, 2)) for each in ("brightness", "contrast"))
    )
    steps = [
        trees.apply(0.8, jitter),
        trees.some(2, *(trees.operation(LEAF, one_of((1, 2, 3))) for _ in range(3))),
        trees.operation(LEAF, Number("normal", 1, 2, either_sign=True)),
        trees.sized(
            "random_crop", *(constant(each) for each in (32, 32, 0, 4, 4, 4, 4, 0, 0, 0, 0))
        ),
        trees.sized("random_perspective", *(constant(each) for each in (0.5, 2, 0, 0, 0))),
    ]
    found = native.Recipe(steps).draw(2**63 + 5, 2**40 + 7, 3, (33, 40))
    assert [name for name, _ in found] == [name for name, _ in PINNED]
    for (_, numbers), (_, pinned) in zip(found, PINNED, strict=True):
        assert numbers == pytest.approx(pinned, rel=1e-12)  # a logarithm's last bit may differ


PINNED = [
    ("contrast", [0.6267699586425557]),
    ("brightness", [0.5590510114845322]),
    ("solarize", [3.0]),
    ("solarize", [1.0]),
    ("solarize", [-1.3935142164011363]),
    ("pad", [4.0, 4.0, 4.0, 4.0, 0.0, 0.0, 0.0, 0.0]),
    ("crop", [6.0, 7.0, 32.0, 32.0]),
    (
        "perspective",
        [
            1.13536536693573,
            -0.3973778784275055,
            1.6462798118591309,
            0.24373897910118103,
            1.2186949253082275,
            -8.774603843688965,
            -0.00033586574136279523,
            -0.005778535269200802,
            2.0,
            0.0,
            0.0,
            0.0,
        ],
    ),
]


def values(root, seed=None):
    """What the leaves of each picture say."""
    recipe = native.Recipe([root])
    seed = random.getrandbits(64) if seed is None else seed
    print(f"seed {seed}")
    drawn = [recipe.draw(seed, index, 0, SIZE) for index in range(MANY)]
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


def test_the_first_are_as_many_as_likely():
    counts = collections.Counter(values(trees.first(leaf(1), leaf(2), leaf(3))))
    fits(counts, {(1,): 1 / 3, (1, 2): 1 / 3, (1, 2, 3): 1 / 3})


def test_numbers_have_their_distribution():
    def drawn(number):
        return np.array(values(trees.operation(LEAF, number)))[:, 0]

    flat = drawn(uniform(-2, 6))
    assert flat.min() >= -2 and flat.max() < 6
    fits(collections.Counter(np.floor(flat).tolist()), dict.fromkeys(range(-2, 6), 1 / 8))
    table = drawn(one_of((3, 5, 5, 9)))
    fits(collections.Counter(table.tolist()), {3: 1 / 4, 5: 1 / 2, 9: 1 / 4})
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
    part = {"scale": 0.25, "after": 1, "rounding": "truncate"}
    assert set(drawn(Number("constant", 1.01, unit="width", **part))) == {81}
    assert set(drawn(Number("constant", 1.01, unit="height", **part))) == {61}


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
    recipe = native.Recipe([number])
    pictures = {recipe.draw(seed, 7, picture, SIZE)[0][1][0] for picture in range(100)}
    assert len(pictures) == 100


def refused(root):
    """A step that Python's own would refuse to be made."""
    parts = {field.name: field.default for field in dataclasses.fields(Step)}
    return types.SimpleNamespace(**{**parts, **root})


REFUSED = [
    ({"kind": "apply", "probability": 1.5}, "probability 1.5"),
    ({"kind": "apply", "probability": math.nan}, "probability"),
    ({"kind": "choice", "weights": (1.0,), "children": (leaf(1), leaf(2))}, "1 weights for 2"),
    ({"kind": "choice", "weights": (-1.0, 2.0), "children": (leaf(1), leaf(2))}, "weight"),
    ({"kind": "choice", "weights": (1e308, 1e308), "children": (leaf(1), leaf(2))}, "weight"),
    ({"kind": "choice", "weights": (0.0,), "children": (leaf(1),)}, "above 0"),
    (
        {"kind": "some", "count": 2, "weights": (0.0, 1.0), "children": (leaf(1), leaf(2))},
        "2 among 1",
    ),
    ({"kind": "some", "count": -1, "weights": (1.0,), "children": (leaf(1),)}, "choice of -1"),
    ({"kind": "twice"}, "twice"),
    ({"kind": "operation", "operation": "no such thing"}, "no such thing"),
    ({"kind": "sized", "operation": "no such thing"}, "no such thing"),
    ({"kind": "sized", "operation": "center_crop", "numbers": (constant(1),)}, "numbers"),
    ({"kind": "operation", "operation": LEAF}, "numbers"),
    ({"kind": "all", "children": (leaf(1),) * 4096}, "4096"),
    ({"kind": "first"}, "has none"),
    ({"kind": "mix", "operation": "sum"}, "has none"),
    ({"kind": "mix", "operation": "sum", "alpha": 0.0, "children": (leaf(1),)}, "alpha"),
    ({"kind": "mix", "operation": "sum", "alpha": math.nan, "children": (leaf(1),)}, "alpha nan"),
    ({"kind": "mix", "operation": "shake", "children": (leaf(1),)}, "shake"),
    (
        {
            "kind": "mix",
            "operation": "sum",
            "children": (trees.together(trees.mix("blend", 1, leaf(1))),),
        },
        "a mix within a mix",
    ),
    (
        {"kind": "operation", "operation": "mix_add", "numbers": (constant(0.5),)},
        "mix_add outside a mix",
    ),
]


@pytest.mark.parametrize("root, said", REFUSED, ids=[said for _, said in REFUSED])
def test_what_cannot_be_drawn_is_refused(root, said):
    with pytest.raises(ValueError, match=said):
        native.Recipe([refused(root)])
    with pytest.raises(ValueError, match=said):
        Step(**root)


@pytest.mark.parametrize(
    "number, said",
    [
        ({"origin": "uniform", "a": 2.0, "b": 1.0}, "from 2"),
        ({"origin": "normal", "b": -1.0}, "deviation"),
        ({"origin": "uniform", "a": -math.inf}, "figure"),
        ({"a": math.nan}, "figure"),
        ({"scale": 1e101}, "figure"),
        ({"low": math.inf, "high": math.inf}, "number "),
        ({"low": 2.0, "high": 1.0}, "between"),
        ({"origin": "dice"}, "dice"),
        ({"unit": "inch"}, "inch"),
        ({"origin": "table"}, "0 values"),
        ({"values": (1.0,)}, "1 values"),
        ({"origin": "table", "values": (math.nan,)}, "figure"),
    ],
)
def test_numbers_that_cannot_be_drawn_are_refused(number, said):
    with pytest.raises(ValueError, match=said):
        Number(**number)
    parts = {field.name: field.default for field in dataclasses.fields(Number)}
    root = {"kind": "operation", "operation": LEAF}
    root["numbers"] = (types.SimpleNamespace(**{**parts, **number}),)
    with pytest.raises(ValueError, match=said):
        native.Recipe([refused(root)])


def test_a_tree_without_end_is_refused():
    endless = refused({"kind": "all"})
    endless.children = (endless,)
    wide = refused({"kind": "all"})
    for _ in range(63):
        wide = refused({"kind": "all", "children": (wide, wide)})
    for root in (endless, wide):
        with pytest.raises(ValueError, match=r"64 deep|4096 steps"):
            native.Recipe([root])
    deep = leaf(1)
    with pytest.raises(ValueError, match="64 deep"):
        for _ in range(65):
            deep = trees.together(deep)
    wide = leaf(1)
    with pytest.raises(ValueError, match="4096 steps"):
        for _ in range(20):
            wide = trees.together(wide, wide)


def test_what_is_wrong_from_the_start_is_said_at_the_start():
    with pytest.raises(ValueError, match="posterize"):
        native.Recipe([trees.operation("posterize", constant(9))])
    recipe = native.Recipe([trees.operation("posterize", uniform(8.5, 9))])
    with pytest.raises(ValueError, match="posterize"):
        recipe.draw(0, 0, 0, SIZE)


def test_a_picture_beyond_the_last_is_refused():
    with pytest.raises(ValueError, match="4096"):
        native.Recipe([leaf(1)]).draw(0, 0, 4096, SIZE)
    with pytest.raises(ValueError, match="4096"):
        list(Recipe([leaf(1)]).draw(0, 0, 4096, lambda: SIZE))


def test_a_crop_that_does_not_fit_is_refused():
    numbers = [constant(each) for each in (241, 10, 0, 0, 0, 0, 0, 0, 0, 0, 0)]
    step = trees.sized("random_crop", *numbers)
    for draw in (native.Recipe([step]).draw, lambda *at: list(Recipe([step]).draw(*at))):
        size = SIZE if draw.__name__ == "draw" else lambda: SIZE
        with pytest.raises(ValueError, match="larger than the picture of 240x320"):
            draw(0, 0, 0, size)
