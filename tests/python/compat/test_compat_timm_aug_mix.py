"""AugMix of compat.timm beside the installed timm's: the same pictures of the same numbers, the same
distribution, and objects of timm are read as the trees that their strings make."""

import dataclasses
import importlib
import pickle
import random

import numpy as np
import pytest
from distributions import assert_same_counts, assert_same_numbers
from mixes import chains_of, redone
from pictures import import_timm, picture
from PIL import Image

from fastloader._core.machine import extension
from fastloader.errors import NotNative
from fastloader.transforms._reader.chain import counterpart
from fastloader.transforms._recipe import recipe as trees
from fastloader.transforms._recipe.recipe import Recipe, constant
from fastloader.transforms.timm import AugMixAugment, augment_and_mix_transform

native = extension.load()

CONFIGS = [
    "augmix",
    "augmix-m5-w4-d2",
    "augmix-m5-w4-d2-b1",
    "augmix-m10-w1-b1",
    "augmix-w5-d1-a0.3",
    "augmix-w5-d1-a0.3-b1",
    "augmix-m3-mstd0.5-a4",
    "augmix-m0-d0-b0",
    "augmix-m-w-x",  # parts without digits say nothing
]
HPARAMS = [
    None,
    {},
    {"translate_const": 100, "img_mean": (124, 116, 104), "interpolation": 2, "translate_pct": 0.3},
    {"img_mean": (1, 2, 3), "magnitude_std": 2.0, "magnitude_max": 14},
]


@pytest.fixture(scope="module")
def policies():
    import_timm()
    return importlib.import_module("timm.data.auto_augment")


@pytest.fixture
def rng():
    seed = random.randrange(2**31)
    print("seed", seed)
    np.random.seed(seed)
    random.seed(seed)
    return random.Random(seed)


def drawn(transform, size, seed, index=0):
    """The operations for a picture of (width, height)."""
    return list(Recipe([transform.step(None)]).draw(seed, index, 0, lambda: size[::-1]))


def numbers_of_mix(config, size, seed):
    """The weights of the chains and the share of their mix that are drawn, whichever the form."""
    plain = augment_and_mix_transform(config.replace("-b1", ""))
    _, (zero, *weights, share) = chains_of(drawn(plain, size, seed))
    assert zero == 0
    return np.float32(weights), np.float32(share)


def theirs(policies, monkeypatch, config, weights, share, chains):
    """timm's transform with those numbers, and one operation in each chain: all of ours."""
    left = iter(chains)
    one = [lambda image: redone(image, next(left))]
    transform = policies.AugMixAugment(one, width=len(chains), depth=1, blended="-b1" in config)
    monkeypatch.setattr(np.random, "dirichlet", lambda alphas: weights.astype(np.float64))
    monkeypatch.setattr(np.random, "beta", lambda a, b: float(share))
    return transform


@pytest.mark.exhaustive
@pytest.mark.parametrize("config", CONFIGS)
def test_the_same_pictures_of_the_same_numbers(policies, monkeypatch, rng, config):
    transform = augment_and_mix_transform(config, {"img_mean": (9, 8, 7)})
    for _ in range(120):
        size = rng.choice([(1, 1), (3, 1), (1, 7), (rng.randint(2, 60), rng.randint(2, 60))])
        image, seed = picture(rng, *size), rng.getrandbits(63)
        operations = drawn(transform, size, seed)
        chains, _ = chains_of(operations)
        weights, share = numbers_of_mix(config, size, seed)
        with monkeypatch.context() as patch:
            wanted = theirs(policies, patch, config, weights, share, chains)(image)
        assert redone(image, operations).tobytes() == wanted.tobytes(), (size, operations)
        if native is not None:
            made, _ = native.apply_operations(image.tobytes(), size[::-1], operations)
            assert made == wanted.tobytes(), (size, operations)


@pytest.mark.exhaustive
@pytest.mark.parametrize("alpha", [0.05, 0.3, 1, 5])
def test_the_factors_of_blends_are_timms(policies, rng, alpha):
    """To the last bit, where timm's are finite."""
    timms = policies.AugMixAugment([])._calc_blended_weights
    compared = 0
    for _ in range(400):
        width, seed = rng.randint(1, 6), rng.getrandbits(63)
        config = f"augmix-w{width}-a{alpha}-b1"
        _, (one, *factors, end) = chains_of(drawn(augment_and_mix_transform(config), (4, 4), seed))
        assert (one, end) == (1, 1)
        with np.errstate(all="ignore"):
            wanted = timms(*numbers_of_mix(config, (4, 4), seed))
        if np.isfinite(wanted).all():
            assert factors == wanted.tolist()
            compared += 1
        assert np.isfinite(factors).all()
    assert compared > 250


def with_leaves(step, leaves):
    """The tree with other operations to choose from."""
    children = tuple(with_leaves(child, leaves) for child in step.children)
    chosen = step.kind == "choice" and len(children) == len(leaves)
    return dataclasses.replace(step, children=tuple(leaves) if chosen else children)


def noted(number, found):
    """An operation that only says that it was done."""

    def op(image):
        found.append(number)
        return image

    return op


@pytest.mark.exhaustive
@pytest.mark.parametrize("config", ["augmix-a0.5", "augmix-w2-d4", "augmix-w4-b1"])
def test_chains_are_drawn_as_timm_does(policies, rng, config):
    """How many operations a picture sees, and which one comes first."""
    transform = policies.augment_and_mix_transform(config)
    names = [op.name for op in transform.ops]
    found = []
    transform.ops = [noted(number, found) for number in range(len(names))]
    image, count = Image.new("RGB", (2, 2)), 3000
    their_counts, their_firsts = [], []
    for _ in range(count):
        found.clear()
        transform(image)
        their_counts.append(len(found))
        their_firsts.append(found[0])
    mine, seed = augment_and_mix_transform(config), rng.getrandbits(63)
    assert [op.name for op in mine.ops] == names
    # Solarize tells by its threshold which operation it stands for.
    leaves = [trees.operation("solarize", constant(number)) for number in range(len(names))]
    recipe = Recipe([with_leaves(mine.step(None), leaves)])
    counts, firsts = [], []
    for index in range(count):
        chains, _ = chains_of(recipe.draw(seed, index, 0, lambda: (2, 2)))
        counts.append(sum(map(len, chains)))
        firsts.append(int(chains[0][0][1][0]))
    assert_same_counts(counts, their_counts)
    assert_same_counts(firsts, their_firsts)


@pytest.mark.exhaustive
@pytest.mark.parametrize("alpha", [0.3, 1, 3])
def test_the_share_of_the_mix_is_timms(rng, alpha):
    seed = rng.getrandbits(63)
    transform = augment_and_mix_transform(f"augmix-w3-a{alpha}")
    drawn_numbers = [chains_of(drawn(transform, (4, 4), seed, index))[1] for index in range(3000)]
    assert_same_numbers([each[-1] for each in drawn_numbers], np.random.beta(alpha, alpha, 3000))
    weights = np.random.dirichlet([alpha] * 3, 3000)
    for chain in range(3):
        assert_same_numbers([each[1 + chain] for each in drawn_numbers], weights[:, chain])


@pytest.mark.parametrize("hparams", HPARAMS, ids=str)
@pytest.mark.parametrize("config", CONFIGS)
def test_objects_are_read_as_their_strings(policies, config, hparams):
    given = None if hparams is None else dict(hparams)
    read = counterpart(policies.augment_and_mix_transform(config, given))
    mine = augment_and_mix_transform(config, hparams)
    assert type(read) is AugMixAugment
    assert read.step(None) == mine.step(None) and repr(read) == repr(mine)
    again = pickle.loads(pickle.dumps(mine))
    assert again.step(None) == mine.step(None)


@pytest.mark.parametrize(
    "config", ["augmixm3", "mix-m3", "augmix-m2.5", "augmix-q3", "augmix-w1.5", "augmix-b0.5"]
)
def test_strings_that_timm_refuses(policies, config):
    with pytest.raises((AssertionError, ValueError)):
        policies.augment_and_mix_transform(config)
    with pytest.raises(ValueError, match=config.partition("-")[0]):
        augment_and_mix_transform(config)


def test_values_that_cannot_work(policies):
    for config, said in (
        ("augmix-w0", "one chain or more"),
        ("augmix-a0", "alpha 0"),
        ("augmix-w300", "4096 steps"),
        ("augmix-w99999999", "one chain or more"),
    ):
        with pytest.raises(ValueError, match=said):
            augment_and_mix_transform(config)
    with pytest.raises(ValueError):
        AugMixAugment([])


def _own_op(made):
    made.ops[3] = lambda image: image


def _no_ops(made):
    made.ops = []


def _part_of_an_operation(made):
    made.depth = 1.5


def _alpha(made):
    made.alpha = -1


@pytest.mark.parametrize("change", [_own_op, _no_ops, _part_of_an_operation, _alpha])
def test_objects_that_do_something_else(policies, change):
    made = policies.augment_and_mix_transform("augmix-m3")
    counterpart(made)
    change(made)
    with pytest.raises(NotNative):
        counterpart(made)


def test_whole_transforms_run(rng):
    for config in CONFIGS:
        transform, changed = augment_and_mix_transform(config), 0
        for mode in ("RGB", "L") * 10:
            image = picture(rng, rng.randint(1, 40), rng.randint(1, 40), mode)
            made = transform(image)
            assert (made.size, made.mode) == (image.size, mode)
            changed += made.tobytes() != image.tobytes()
        assert changed > 5 or config == "augmix-m0-d0-b0"
