"""RandAugment and AutoAugment of compat.timm beside the installed timm's: what is drawn has the same
distribution, and objects of timm are read as the trees that their strings make."""

import collections
import importlib
import math
import pickle
import random

import numpy as np
import pytest
from distributions import assert_same_counts, assert_same_numbers
from pictures import import_timm
from recorded_timm import done, record

from fastloader.errors import NotNative
from fastloader.transforms._reader.chain import counterpart
from fastloader.transforms._recipe.recipe import Recipe
from fastloader.transforms.timm import (
    AugmentOp,
    RandAugment,
    auto_augment_transform,
    rand_augment_transform,
)

DRAWS = 4000
CONFIGS = [
    "rand",
    "rand-m9-mstd0.5-inc1",
    "rand-m7-n3-mstd0.5",
    "rand-m15-mmax20-p0.7",
    "rand-m15-mstd4-mmax30-inc1-n1",
    "rand-m30-mmax40-n4",
    "rand-m9-mstd101-inc1-n1-p1.0",
    "rand-m10-mstd2-t1-inc1",
    "rand-m9-tweights-n3",
    "rand-mstd1-tweights-n5",
    "rand-m6-t3a-n1",
    "rand-m9-mstd3-t3aw-inc1",
    "rand-inc0-n0",
    "original",
    "originalr-mstd0.5",
    "v0",
    "v0r-mstd0.5",
    "3a",
    "3a-mstd2",
]
# The options that create_transform gives, and others.
HPARAMS = {
    "default": None,
    "bilinear": {"translate_const": 100, "img_mean": (124, 116, 104), "interpolation": 2},
    "bicubic": {"translate_const": 3, "img_mean": (0, 255, 7), "interpolation": [3]},
    "own": {"translate_pct": 0.3, "magnitude_std": 1.5, "magnitude_max": 12},
    "empty": {},
}


@pytest.fixture(scope="module")
def policies():
    import_timm()
    return importlib.import_module("timm.data.auto_augment")


def ours(config, hparams=None):
    make = rand_augment_transform if config.startswith("rand") else auto_augment_transform
    return make(config, hparams)


def theirs(policies, config, hparams=None):
    kind = "rand" if config.startswith("rand") else "auto"
    make = getattr(policies, f"{kind}_augment_transform")
    return make(config, None if hparams is None else dict(hparams))


def seeded():
    seed = random.randrange(2**31)
    print("seed", seed)
    random.seed(seed)
    np.random.seed(seed)
    return seed


def drawn(transform, size, count=DRAWS):
    """The operations of many pictures of (width, height)."""
    recipe, seed = Recipe([transform.step(None)]), random.getrandbits(63)
    return [list(recipe.draw(seed, index, 0, lambda: size[::-1])) for index in range(count)]


def label(name, numbers):
    """The name of an operation and, for warps, which coefficient it is about."""
    if name != "affine":
        return name
    plain = (1, 0, 0, 0, 1, 0)
    return f"affine {[place for place in range(6) if numbers[place] != plain[place]]}"


def assert_same_distribution(mine, their):
    # timm does nothing where all bits are kept.
    mine = [[each for each in picture if each != ("posterize", [8.0])] for picture in mine]
    names = [
        [tuple(label(*each) for each in picture) for picture in side] for side in (mine, their)
    ]
    assert_same_counts(*names)
    values = collections.defaultdict(lambda: ([], []))
    for side, pictures in enumerate((mine, their)):
        for name, numbers in (operation for picture in pictures for operation in picture):
            for place, number in enumerate(numbers):
                values[label(name, numbers), place][side].append(number)
    for what, (first, second) in values.items():
        if min(len(first), len(second)) > 20:
            assert_same_numbers(first, second, what)


@pytest.mark.exhaustive
@pytest.mark.parametrize("config", CONFIGS)
def test_the_same_distribution(policies, monkeypatch, config):
    seeded()
    size = (33, 57)
    transform = theirs(policies, config)
    with monkeypatch.context() as patch:
        record(patch, policies)
        their = [done(transform, size) for _ in range(DRAWS)]
    assert_same_distribution(drawn(ours(config), size), their)


@pytest.mark.parametrize("config", ["rand-m9-inc1", "rand-m23-mmax30", "original", "v0r"])
def test_the_same_numbers_where_levels_are_fixed(policies, monkeypatch, config):
    """Not only up to rounding, but for those that a float32 takes."""
    seeded()
    transform, size = theirs(policies, config), (40, 20)
    with monkeypatch.context() as patch:
        record(patch, policies)
        their = [done(transform, size) for _ in range(DRAWS)]
    found = [
        {(name, *np.float32(numbers)) for picture in side for name, numbers in picture}
        for side in (drawn(ours(config), size), their)
    ]
    assert found[0] - {("posterize", 8.0)} == found[1]


def test_each_operation_has_its_distribution(policies, monkeypatch):
    """With all ways of drawing levels, on a picture of another size."""
    seeded()
    size = (7, 300)
    for name in policies.NAME_TO_OP:
        for hparams in (
            {"magnitude_std": 5.0, "translate_const": 11},
            {"magnitude_std": math.inf, "magnitude_max": 25, "translate_const": 11},
            {"magnitude_std": -1.0, "magnitude_max": 9, "translate_const": 11},
        ):
            hparams["img_mean"], level = (1, 2, 3), random.randrange(31)
            mine = RandAugment([AugmentOp.of(name, 0.8, level, hparams)], 1)
            transform = policies.AugmentOp(name, 0.8, level, hparams)
            with monkeypatch.context() as patch:
                record(patch, policies)
                their = [done(transform, size) for _ in range(1000)]
            assert_same_distribution(drawn(mine, size, 1000), their)


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "hparams",
    [
        {"magnitude_std": 4.0},
        {"magnitude_std": math.inf, "magnitude_max": 8},
        {"magnitude_std": 2.0, "magnitude_max": 40},
    ],
    ids=str,
)
def test_levels_to_a_few_percent(policies, monkeypatch, hparams):
    """So many draws show whether the probability and the levels are right to a few percent."""
    seeded()
    hparams, size = {**hparams, "interpolation": 2}, (5, 5)
    mine = drawn(RandAugment([AugmentOp.of("Rotate", 0.8, 9, hparams)], 1), size, 40_000)
    transform = policies.AugmentOp("Rotate", 0.8, 9, hparams)
    with monkeypatch.context() as patch:
        record(patch, policies)
        their = [done(transform, size) for _ in range(40_000)]
    assert_same_counts(*([len(picture) for picture in side] for side in (mine, their)))
    assert_same_distribution(mine, their)
    sides = ([abs(picture[0][1][0]) for picture in side if picture] for side in (mine, their))
    assert_same_numbers(*sides, "degrees to either side")


def test_weighted_choice_is_one_after_the_other(policies, monkeypatch):
    """numpy draws several at a time without replacement, and again for those that came twice."""
    seeded()
    weights = {"Invert": 8, "Equalize": 1, "AutoContrast": 2, "SolarizeAdd": 0.5, "Rotate": 0}
    hparams = {"interpolation": 2}
    mine = rand_augment_transform("rand-n4-p1.0", hparams, weights)
    transform = policies.rand_augment_transform("rand-n4-p1.0", dict(hparams), weights)
    with monkeypatch.context() as patch:
        record(patch, policies)
        their = [done(transform, (5, 5)) for _ in range(20_000)]
    names = [
        [tuple(name for name, _numbers in picture) for picture in side]
        for side in (drawn(mine, (5, 5), 20_000), their)
    ]
    assert len(set(names[0])) == 24
    assert_same_counts(*names)


# --- objects of timm ----------------------------------------------------------------------------


@pytest.mark.exhaustive
@pytest.mark.parametrize("hparams", HPARAMS)
def test_objects_are_read_as_their_strings(policies, hparams):
    hparams = HPARAMS[hparams]
    for config in CONFIGS:
        mine = ours(config, hparams)
        read = counterpart(theirs(policies, config, hparams))
        assert type(read) is type(mine)
        assert read.step(None) == mine.step(None), config


def test_the_names_are_timms(policies):
    for name in policies.NAME_TO_OP:
        hparams = {"translate_const": 9}
        op = policies.AugmentOp(name, 0.3, 4, hparams)
        read = counterpart(policies.RandAugment([op]))
        assert read.step(None) == RandAugment([AugmentOp.of(name, 0.3, 4, hparams)]).step(None)
    with pytest.raises(ValueError, match="'Cutout'"):
        AugmentOp.of("Cutout")


def test_transforms_are_pickled():
    for config in CONFIGS:
        transform = ours(config)
        again = pickle.loads(pickle.dumps(transform))
        assert again.step(None) == transform.step(None) and repr(again) == repr(transform)


# --- refusals -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "config",
    ["randm9", "random", "rand-m9-w0", "rand-x3", "rand-m9.5", "rand-n1.5", "v1", "original-m9",
     "3a-inc1", "augmix-m3"],
)  # fmt: skip
def test_strings_that_timm_refuses(policies, config):
    with pytest.raises((AssertionError, ValueError)):
        theirs(policies, config)
    with pytest.raises(ValueError, match=config.partition("-")[0]):
        ours(config)


@pytest.mark.parametrize(
    "config", ["rand-m9-inc-mstd", "rand-mstdinf", "original-mstd", "rand-tno"]
)
def test_strings_with_parts_that_say_nothing(policies, config):
    read = counterpart(theirs(policies, config))
    assert read.step(None) == ours(config).step(None)


def test_values_that_cannot_work():
    with pytest.raises(ValueError, match="16 among 15"):
        rand_augment_transform("rand-tweights-n16")
    for hparams, message in (
        ({"img_mean": (1, 2)}, "img_mean"),
        ({"img_mean": (1, 2, 256)}, "img_mean"),
        ({"img_mean": 128}, "img_mean"),
        ({"interpolation": 1}, "interpolation"),
        ({"interpolation": ()}, "interpolation"),
    ):
        with pytest.raises(ValueError, match=message):
            rand_augment_transform("rand", hparams)
    with pytest.raises(ValueError, match="translate_const"):
        rand_augment_transform("rand", {"img_mean": (1, 2, 3)}, ["TranslateX"])


def _weights(policies, made):
    made.choice_weights = np.full(15, 0.5)


def _layers(policies, made):
    made.choice_weights, made.num_layers = np.eye(15)[0], 2


def _own_op(policies, made):
    made.ops[3] = type("Op", (policies.AugmentOp,), {})("Rotate")


def _own_function(policies, made):
    made.ops[3].aug_fn = lambda image, degrees, **_options: image


def _own_level(policies, made):
    made.ops[3].level_fn = policies.LEVEL_TO_ARG["Solarize"]


def _own_name(policies, made):
    made.ops[3].name = "Turn"


def _own_arguments(policies, made):
    made.ops[3].kwargs["center"] = (1, 1)


def _grey(policies, made):
    made.ops[3].kwargs["fillcolor"] = 128


def _lanczos(policies, made):
    made.ops[3].kwargs["resample"] = 1


def _no_ops(policies, made):
    del made.ops


@pytest.mark.parametrize(
    "change",
    [_weights, _layers, _own_op, _own_function, _own_level, _own_name, _own_arguments, _grey,
     _lanczos, _no_ops],
)  # fmt: skip
def test_objects_that_do_something_else(policies, change):
    made = theirs(policies, "rand-m9")
    assert counterpart(made) is not None
    change(policies, made)
    with pytest.raises(NotNative):
        counterpart(made)


def test_other_types_are_not_read(policies):
    own = type("RandAugment", (policies.RandAugment,), {})([])
    for unknown in (own, object()):
        with pytest.raises(NotNative):
            counterpart(unknown)
