"""RandAugment, TrivialAugmentWide and AutoAugment: torchvision's operations, magnitudes, pixels and
distribution."""

import itertools
import math
import random

import pytest
import torch
from drawn import (
    applied,
    pictures,
    redone,
    refuse_alike,
    same_counts,
    same_picture,
    samples,
    versions,
)
from pictures import import_torchvision, picture

from fastloader import transforms as T
from fastloader.errors import NotNative
from fastloader.transforms.policies import POLICIES

SEED = 20260403
MANY = 12_000
PLAIN = {"AutoContrast": "autocontrast", "Equalize": "equalize", "Invert": "invert"}
ENHANCED = {
    "Brightness": "brightness",
    "Color": "saturation",
    "Contrast": "contrast",
    "Sharpness": "sharpness",
}


@pytest.fixture
def tv():
    return import_torchvision().transforms


def random_transform(rng):
    mode = rng.choice(["nearest", "bilinear", "bicubic"])
    fill = rng.choice([None, 200, (1, 2.5, 3)])
    bins = rng.choice([2, 9, 10, 31])
    return rng.choice(
        [
            T.RandAugment(rng.randint(0, 4), rng.randrange(bins), bins, mode, fill),
            T.TrivialAugmentWide(bins, mode, fill),
            T.AutoAugment(rng.choice(list(T.AutoAugmentPolicy)), mode, fill),
        ]
    )


def test_pixels_are_torchvisions(tv):
    done = set()
    for rng, image in pictures(700, SEED):
        transform = random_transform(rng)
        made, leaves = applied(transform, image, rng.getrandbits(62))
        wanted = redone(tv.functional, image, leaves)
        same_picture(made, wanted, (SEED, image.size, transform, leaves))
        done.update({type(transform), *[name for name, *_ in leaves]})
    assert len(done) == 3 + 11, done


def leaf(name, magnitude, interpolation, fill):
    """What torchvision's functions get for an operation, as our leaves have it."""
    rest = (interpolation, *fill)
    sheared = math.degrees(math.atan(magnitude))
    moved = int(magnitude)
    if name in PLAIN:
        return PLAIN[name], ()
    if name in ENHANCED:
        return ENHANCED[name], (1.0 + magnitude,)
    return {
        "Identity": None,
        "ShearX": ("affine_about", (0, 0, 0, 1, sheared, 0, *rest, 0, 0)),
        "ShearY": ("affine_about", (0, 0, 0, 1, 0, sheared, *rest, 0, 0)),
        "TranslateX": ("affine_about", (0, moved, 0, 1, 0, 0, *rest)),
        "TranslateY": ("affine_about", (0, 0, moved, 1, 0, 0, *rest)),
        "Rotate": ("rotate", (magnitude, interpolation, 0, *fill)),
        "Posterize": ("posterize", (int(magnitude),)),
        "Solarize": ("solarize", (magnitude,)),
    }[name]


def drawn_by_v1(monkeypatch, tv, transform, image):
    found = []

    def note(img, name, magnitude, interpolation, fill):
        number = tv.functional.pil_modes_mapping[interpolation]
        found.append(leaf(name, magnitude, number, (fill or 0,) * 3))
        return img

    monkeypatch.setattr(tv.autoaugment, "_apply_op", note)
    return drawn(transform, image, found)


def drawn_by_v2(monkeypatch, tv, transform, image):
    found = []

    def note(img, name, magnitude, interpolation, fill):
        number = tv.functional.pil_modes_mapping[tv.InterpolationMode(interpolation)]
        fill = (fill["others"] or 0,) * 3
        found.append(
            leaf(name, 255.0 * magnitude if name == "Solarize" else magnitude, number, fill)
        )
        return img

    monkeypatch.setattr(transform, "_apply_image_or_video_transform", note)
    return drawn(transform, image, found)


def drawn(transform, image, found):
    torch.manual_seed(SEED)
    for _ in range(MANY):
        found.clear()
        transform(image)
        yield tuple(each for each in found if each is not None)


CASES = [
    ("RandAugment", (1, 9)),
    ("RandAugment", (2, 30)),
    ("RandAugment", (1, 5, 10, "bilinear", 7)),
    ("TrivialAugmentWide", ()),
    ("TrivialAugmentWide", (9, "bicubic", 3)),
    ("AutoAugment", ("IMAGENET",)),
    ("AutoAugment", ("CIFAR10",)),
    ("AutoAugment", ("SVHN", "bilinear", 9)),
    ("AugMix", (3, 2, 1, 0.5)),
    ("AugMix", (2, 1, -1, 1.0, False)),
    ("AugMix", (10, 1, 1, 1.0, True, "bicubic", 9)),
]


@pytest.mark.covering
@pytest.mark.exhaustive
@pytest.mark.parametrize("name, arguments", CASES)
@pytest.mark.parametrize("version", ["v1", "v2"])
def test_operations_and_magnitudes_are_drawn_as_torchvision_does(
    tv, monkeypatch, version, name, arguments
):
    torchvision = versions()[version]
    ours, theirs = list(arguments), list(arguments)
    if name == "AutoAugment":
        ours[0], theirs[0] = T.AutoAugmentPolicy[ours[0]], torchvision.AutoAugmentPolicy[ours[0]]
    places = [i for i, each in enumerate(theirs) if isinstance(each, str)]
    for i in places:
        theirs[i] = tv.InterpolationMode(theirs[i])
    mine = getattr(T, name)(*ours)
    mine._scaled_thresholds = version == "v2"
    image = picture(random.Random(1), 103, 61)  # small enough for one thread of torch
    many = MANY // 3 if name == "AugMix" else MANY  # which takes its time, with tensors
    found = [
        tuple((kind, tuple(numbers)) for kind, numbers, _ in leaves)
        for leaves in samples(mine, (61, 103), many, SEED)
    ]
    record = drawn_by_v1 if version == "v1" else drawn_by_v2
    wanted = record(monkeypatch, tv, getattr(torchvision, name)(*theirs), image)
    wanted = list(itertools.islice(wanted, many))
    # Exact numbers are compared, so the magnitudes are torchvision's to the last bit.
    assert {each for leaves in found for each in leaves} == {
        each for leaves in wanted for each in leaves
    }
    same_counts(found, wanted, (SEED, version, name, arguments))


def test_policies_are_torchvisions(tv):
    for policy in T.AutoAugmentPolicy:
        theirs = tv.AutoAugmentPolicy(policy.value)
        assert POLICIES[policy] == tv.AutoAugment(theirs).policies
        assert T.AutoAugment(theirs).policy is policy
        assert theirs.name == policy.name


@pytest.mark.parametrize("policy", list(T.AutoAugmentPolicy))
def test_what_moves_by_a_part_of_the_size_needs_it(policy):
    needed = policy is not T.AutoAugmentPolicy.IMAGENET
    for transform, needs in (
        (T.AutoAugment(policy), needed),
        (T.RandAugment(), True),
        (T.AugMix(), True),
    ):
        if needs:
            with pytest.raises(NotNative, match=r"RandomResizedCrop\(224\)"):
                transform.step(None)
        else:
            transform.step(None)
        transform.step((8, 9))
    T.TrivialAugmentWide().step(None)


def test_the_number_of_steps_does_not_depend_on_the_size():
    """Or what is drawn behind them would."""
    for transform in (T.RandAugment(), T.AutoAugment(T.AutoAugmentPolicy.SVHN), T.AugMix()):
        assert transform.step((1, 1)).size == transform.step((600, 800)).size
        assert transform.size_after((3, 4)) == (3, 4)


REFUSED = [
    ("RandAugment", (-1,), ("v2",)),
    ("RandAugment", (1.5,), ("v2",)),
    ("RandAugment", (2, 31), ()),  # an IndexError in the epoch, where the picture needs it
    ("RandAugment", (2, 0, 1), ()),
    ("RandAugment", (2, 9.5), ()),
    ("RandAugment", (2, 9, 31, "box"), ()),
    ("RandAugment", (2, 9, 31, "nearest", {1}), ("v2",)),
    ("TrivialAugmentWide", (1,), ()),
    ("TrivialAugmentWide", (31, "nearest", {1}), ("v2",)),
    ("AutoAugment", ("imagenet",), ("v1", "v2")),
    ("AutoAugment", (None,), ("v1", "v2")),
    ("AugMix", (0,), ("v1", "v2")),
    ("AugMix", (11,), ("v1", "v2")),
    ("AugMix", (2.5,), ()),
    ("AugMix", (3, 0), ()),
    ("AugMix", (3, -1), ()),
    ("AugMix", (3, 2.0), ("call",)),
    ("AugMix", (3, 3, 86), ()),  # more operations than a recipe holds
    ("AugMix", (3, 3, 1.5), ("call",)),
    ("AugMix", (3, 3, -1, 0), ()),
    ("AugMix", (3, 3, -1, math.nan), ()),
    ("AugMix", (3, 3, -1, "1"), ()),
    ("AugMix", (3, 3, -1, 1.0, True, "box"), ()),
    ("AugMix", (3, 3, -1, 1.0, True, "nearest", {1}), ("v2",)),
]


@pytest.mark.parametrize("name, arguments, when", REFUSED)
def test_refused_as_torchvision_does(name, arguments, when):
    refuse_alike(versions(), name, arguments, when, picture(random.Random(1), 9, 9))
