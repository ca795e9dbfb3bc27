"""Warps, crops and borders: torchvision's arguments, pixels and distribution."""

import importlib
import io
import random

import numpy as np
import pytest
import torch
from drawn import (
    applied,
    pictures,
    redone,
    refuse_alike,
    same_counts,
    same_histograms,
    same_picture,
    samples,
    versions,
)
from pictures import import_torchvision, picture
from PIL import Image

from fastloader import EncodedImage
from fastloader import transforms as T
from fastloader.transforms._reader.beginning import read_beginning
from fastloader.transforms._recipe import sized

SEED = 20260402
MANY = 4000
BILINEAR, BICUBIC = Image.Resampling.BILINEAR, Image.Resampling.BICUBIC
MODES = ("nearest", "bilinear", "bicubic")
FILTERS = (*MODES, "box", "hamming", "lanczos")


@pytest.fixture
def tv():
    return import_torchvision().transforms


def random_border(rng):
    return [rng.randint(0, 9) for _ in range(rng.choice([1, 2, 4]))]


def random_transform(rng, image):
    mode, p = rng.choice(MODES), rng.choice([0.0, 0.5, 1.0])
    fill = rng.choice([0, 200, 99.9, (1, 2, 3), (255.0, 0.5, 7)])
    center = rng.choice([None, (rng.uniform(-9, 60), rng.randint(0, 60))])
    degrees = rng.choice([0, 30, 180, (90, 90), (-400, 400), (180, 180)])
    smallest = min(image.size)
    fits = rng.randint(1, smallest)
    kind = rng.randrange(11)
    if kind == 0:
        return T.RandomRotation(degrees, mode, rng.random() < 0.5, center, fill)
    if kind in (1, 2):
        translate = rng.choice([None, (0.0, 1.0), (0.3, 0.1)])
        scale = rng.choice([None, (0.1, 3), (1, 1)])
        shear = rng.choice([None, 30, (5, 6), (-40, 40, 10, 20), (0, 0, -50, 50)])
        return T.RandomAffine(degrees, translate, scale, shear, mode, fill, center)
    if kind == 3 and smallest > 1:
        return T.RandomPerspective(rng.choice([0, 0.5, 0.9]), p, mode, fill)
    if kind == 4:
        return T.Pad(random_border(rng), fill)
    if kind == 5:
        return T.Pad(rng.randint(0, 9), fill, rng.choice(["edge", "symmetric"]))
    if kind == 6:
        return T.RandomCrop((fits, rng.randint(1, image.width)))
    if kind == 7:
        crop = (rng.randint(1, 70), rng.randint(1, 70))
        border = rng.choice([None, 3, (1, 2), (1, 2, 3, 4)])
        return T.RandomCrop(crop, border, True, fill, rng.choice(["constant", "edge", "symmetric"]))
    if kind == 8:
        return T.RandomApply(
            [T.RandomResizedCrop((9, 7), interpolation=rng.choice([*FILTERS, "random"]))], 1
        )
    if kind == 9:
        resize = T.Resize(rng.choice([5, (9, 7), 31]), rng.choice(FILTERS), None)
        return T.RandomChoice([resize, T.CenterCrop((rng.randint(1, 70), rng.randint(1, 70)))])
    return T.RandomOrder([T.RandomHorizontalFlip(p), T.RandomVerticalFlip(p)])


def test_pixels_are_torchvisions(tv):
    done = set()
    for rng, image in pictures(900, SEED):
        transform = random_transform(rng, image)
        made, leaves = applied(transform, image, rng.getrandbits(62))
        wanted = redone(tv.functional, image, leaves)
        same_picture(made, wanted, (SEED, image.size, transform, leaves))
        done.update({type(transform), *[name for name, *_ in leaves]})
    assert len(done) == 8 + 11, done


@pytest.mark.parametrize("mode", ["constant", "edge", "reflect", "symmetric"])
@pytest.mark.parametrize("padding", [3, [2], (1, 4), (4, 3, 2, 1), (-2, 3, 1, -3)])
def test_borders_are_those_of_torchvisions_classes(mode, padding):
    image = picture(random.Random(1), 9, 11)
    ours = T.Pad(padding, 7, mode)
    for torchvision in versions().values():
        same_picture(ours(image), torchvision.Pad(padding, 7, mode)(image), torchvision)
    assert ours.size_after((11, 9)) == ours(image).size[::-1]
    assert ours.size_after(None) is None


@pytest.mark.parametrize("mode", ["constant", "reflect", "symmetric"])
def test_the_only_crop_of_a_picture_that_lacks_pixels(mode):
    """A picture that lacks none on one axis, and all but one of them on the other."""
    image = picture(random.Random(1), 9, 11)
    for version, torchvision in versions().items():
        theirs = torchvision.RandomCrop((13, 19), (2, 1), True, 7, mode)
        found = {theirs(image).tobytes() for _ in range(100)}
        ours = T.RandomCrop((13, 19), (2, 1), True, 7, mode)
        ours._pads_at_once = version == "v2"
        assert {ours(image).tobytes() for _ in range(100)} == found, (version, mode)


def columns(torchvision, ours, theirs, size, name):
    """Compares each of the numbers that are drawn: ours of a leaf, and torchvision's."""
    torch.manual_seed(SEED)
    mine = [numbers for ((_, numbers, _),) in samples(ours, size, MANY, SEED)]
    for place, (one, other) in enumerate(zip(zip(*mine), zip(*[theirs() for _ in range(MANY)]))):
        same_histograms(one, other, (SEED, name, place))


@pytest.mark.parametrize("degrees", [30, (-10, 200), 0])
def test_rotation_is_distributed_as_torchvisions(tv, degrees):
    ours, theirs = T.RandomRotation(degrees), tv.RandomRotation(degrees)
    assert list(ours.degrees) == theirs.degrees
    columns(tv, ours, lambda: (theirs.get_params(theirs.degrees),), (9, 7), degrees)


AFFINES = [
    (30,),
    ((-20, 10), (0.1, 0.3), (0.5, 2.0), 10),
    (0, (1.0, 0.0), None, (2, 5)),
    (7, None, (1.1, 1.2), (-5, 5, 10, 40)),
]


@pytest.mark.parametrize("arguments", AFFINES)
def test_affine_is_distributed_as_torchvisions(tv, arguments):
    height, width = 61, 203
    ours, theirs = T.RandomAffine(*arguments), tv.RandomAffine(*arguments)

    def drawn():
        angle, moved, scale, shear = theirs.get_params(
            theirs.degrees, theirs.translate, theirs.scale, theirs.shear, [width, height]
        )
        return angle, *moved, scale, *shear

    columns(tv, ours, drawn, (height, width), arguments)


@pytest.mark.parametrize("translate", [(0.3, 0.1), (1.0, 1.0)])
def test_moves_are_distributed_as_torchvisions_pixel_by_pixel(tv, translate):
    torch.manual_seed(SEED)
    ours, theirs = T.RandomAffine(0, translate), tv.RandomAffine(0, translate)
    mine = [(n[1], n[2]) for ((_, n, _),) in samples(ours, (5, 9), MANY, SEED)]
    other = [theirs.get_params([0, 0], translate, None, None, [9, 5])[1] for _ in range(MANY)]
    same_counts(mine, other, SEED)


@pytest.mark.parametrize("size", [(9, 7), (2, 30), (64, 64)])
def test_perspective_is_distributed_as_torchvisions(tv, monkeypatch, size):
    torch.manual_seed(SEED)
    height, width = size
    ends = []
    monkeypatch.setattr(
        sized, "perspective_coefficients", lambda starts, to: ends.append((starts, to)) or [0.0] * 8
    )
    list(samples(T.RandomPerspective(0.6, 1), size, MANY, SEED))
    params = tv.RandomPerspective.get_params
    theirs = [params(width, height, 0.6) for _ in range(MANY)]
    assert [list(map(int, corner)) for corner in ends[0][0]] == theirs[0][0]
    for corner in range(4):
        for axis in range(2):
            mine = [int(to[corner][axis]) for _, to in ends]
            other = [to[corner][axis] for _, to in theirs]
            same_counts(mine, other, (SEED, corner, axis))


def test_perspective_has_torchvisions_coefficients(tv):
    """But for the last bit of a float32, which a computation by another way may have."""
    rng = random.Random(SEED)
    for _ in range(300):
        height, width = rng.randint(9, 300), rng.randint(9, 300)
        starts, ends = tv.RandomPerspective.get_params(width, height, 0.5)
        mine = sized.perspective_coefficients(starts, ends)
        other = tv.functional._get_perspective_coeffs(starts, ends)
        torch.testing.assert_close(
            torch.tensor(mine), torch.tensor(other), rtol=3e-7, atol=1e-12, msg=str((starts, ends))
        )


@pytest.mark.parametrize("size, crop", [((9, 7), (4, 5)), ((9, 7), (9, 5)), ((9, 7), (9, 7))])
def test_crop_is_distributed_as_torchvisions(tv, size, crop):
    torch.manual_seed(SEED)
    image = picture(random.Random(1), size[1], size[0])
    mine = []
    for ((_, _, operations),) in samples(T.RandomCrop(crop), size, MANY, SEED):
        left, top, *_ = operations[0][1] if operations else (0, 0)
        mine.append((int(top), int(left)))
    theirs = [tv.RandomCrop.get_params(image, crop)[:2] for _ in range(MANY)]
    same_counts(mine, theirs, SEED)


REFUSED = [
    ("RandomRotation", (-1,), ("v1", "v2")),
    ("RandomRotation", ((1, 2, 3),), ("v1", "v2")),
    ("RandomRotation", (None,), ("v1", "v2")),
    ("RandomRotation", (1, "nearest", False, 3), ("v1", "v2")),
    ("RandomRotation", (1, "nearest", False, (1, 2, 3)), ("v1", "v2")),
    ("RandomRotation", (1, "nearest", False, None, {1}), ("v1", "v2")),
    ("RandomRotation", (1, 4), ("call",)),
    ("RandomRotation", (1, "box"), ()),
    ("RandomRotation", ((2, 1),), ()),
    ("RandomRotation", (1, 0, False, None, (1, 2)), ("call",)),
    ("RandomAffine", (-1,), ("v1", "v2")),
    ("RandomAffine", ((1,),), ("v1", "v2")),
    ("RandomAffine", (1, 0.5), ("v1", "v2")),
    ("RandomAffine", (1, (0.5,)), ("v1", "v2")),
    ("RandomAffine", (1, (0.5, 1.5)), ("v1", "v2")),
    ("RandomAffine", (1, (0.5, -0.5)), ("v1", "v2")),
    ("RandomAffine", (1, None, 2), ("v1", "v2")),
    ("RandomAffine", (1, None, (1, 2, 3)), ("v1", "v2")),
    ("RandomAffine", (1, None, (0, 2)), ("v1", "v2")),
    ("RandomAffine", (1, None, (2, 1)), ()),
    ("RandomAffine", (1, None, None, -1), ("v1", "v2")),
    ("RandomAffine", (1, None, None, (1, 2, 3)), ("v1", "v2")),
    ("RandomAffine", (1, None, None, None, "nearest", {1}), ("v1", "v2")),
    ("RandomAffine", (1, None, None, None, "nearest", 0, 1), ("v1", "v2")),
    ("RandomAffine", (1, None, None, None, "nearest", 0, (1,)), ("v1", "v2")),
    ("RandomPerspective", (1.5,), ("v2",)),
    ("RandomPerspective", (-0.5,), ("v2",)),
    ("RandomPerspective", (0.5, 2), ("v2",)),
    ("RandomPerspective", (0.5, 0.5, 2, {1}), ("v1", "v2")),
    ("Pad", ("x",), ("v1",)),
    ("Pad", ((1, 2, 3),), ("v1", "v2")),
    ("Pad", (1.5,), ("v2",)),
    ("Pad", ((1, 0.5),), ("v2",)),
    ("Pad", (1, {1}), ("v1", "v2")),
    ("Pad", (1, 0, "mirror"), ("v1", "v2")),
    ("Pad", (1, (1, 2)), ("call",)),
    ("RandomCrop", ((1, 2, 3),), ("v1", "v2")),
    ("RandomCrop", (0,), ()),
    ("RandomCrop", (3, (1, 2, 3)), ("v2", "call")),
    ("RandomCrop", (3, "x"), ("call",)),
    ("RandomCrop", (3, 1, False, {1}), ("v2", "call")),
    ("RandomCrop", (3, 1, False, 0, "mirror"), ("v2", "call")),
]


@pytest.mark.parametrize("name, arguments, when", REFUSED)
def test_refused_as_torchvision_does(name, arguments, when):
    refuse_alike(versions(), name, arguments, when, picture(random.Random(1), 9, 9))


@pytest.mark.parametrize("size", [(3, 12), (12, 3)])
def test_a_crop_that_is_too_large_is_refused_as_torchvision_does(size):
    image = picture(random.Random(1), 9, 9)
    for module in (T, *versions().values()):
        with pytest.raises(ValueError, match="larger than"):
            module.RandomCrop(size)(image)


def test_sizes():
    for transform, after in (
        (T.RandomRotation(9), (3, 4)),
        (T.RandomRotation(9, expand=True), None),
        (T.RandomAffine(9), (3, 4)),
        (T.RandomPerspective(), (3, 4)),
        (T.RandomCrop(2), (2, 2)),
        (T.CenterCrop((7, 9)), (7, 9)),
        (T.RandomResizedCrop(5), (5, 5)),
        (T.Resize((7, 9)), (7, 9)),
        (T.Resize(6), (6, 8)),
        (T.RandomHorizontalFlip(), (3, 4)),
        (T.Pad((1, 2, 3, 4)), (9, 8)),
    ):
        assert transform.size_after((3, 4)) == after, transform
    for transform in (T.RandomCrop(2), T.CenterCrop(2), T.RandomResizedCrop(2), T.Resize((2, 2))):
        assert transform.size_after(None) == (2, 2), transform
    for transform in (T.RandomAffine(9), T.Resize(6), T.Pad(1), T.RandomVerticalFlip()):
        assert transform.size_after(None) is None, transform


def test_coefficients_have_the_last_bit_of_each_version():
    """v2 sums in another order than v1."""
    versions()
    rng = random.Random(SEED)
    for name, module in (
        ("affine_about", "torchvision.transforms.functional"),
        ("affine_about_v2", "torchvision.transforms.v2.functional._geometry"),
    ):
        theirs = importlib.import_module(module)._get_inverse_affine_matrix
        for _ in range(2000):
            width, height = rng.randint(1, 500), rng.randint(1, 500)
            angle, scale = rng.uniform(-180, 180), rng.uniform(0.3, 3)
            moves = [rng.randint(-40, 40), rng.randint(-40, 40)]
            shears = [rng.uniform(-40, 40), rng.choice([0, rng.uniform(-40, 40)])]
            numbers = [angle, *moves, scale, *shears, 2, 0, 0, 0]
            ((_, found),) = sized.SIZED[name].draw(numbers, (height, width), None)
            wanted = theirs([width * 0.5, height * 0.5], angle, moves, scale, shears)
            assert found[:6] == wanted, (name, numbers, width, height)


FIXED = {
    "rotation": lambda tv: tv.RandomRotation((33.3, 33.3), BILINEAR),
    "affine": lambda tv: tv.RandomAffine(
        (12.7, 12.7), None, (1.1, 1.1), (7.7, 7.7, -3.3, -3.3), BILINEAR
    ),
    "sheared": lambda tv: tv.RandomAffine((0, 0), None, None, (9.1, 9.1), BICUBIC),
    "jitter": lambda tv: tv.ColorJitter((1.3, 1.3)),
    "contrast": lambda tv: tv.ColorJitter(contrast=(0.7, 0.7)),
    "saturation": lambda tv: tv.ColorJitter(saturation=(1.7, 1.7)),
    "hue": lambda tv: tv.ColorJitter(hue=(0.1, 0.1)),
}


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", FIXED)
@pytest.mark.parametrize("version", ["v1", "v2"])
@pytest.mark.parametrize("native", [True, False])
def test_ranges_of_one_number_are_torchvisions(name, version, native, monkeypatch):
    """torch draws in 32 bits, and of v2 the coefficients are summed as there."""
    tv = versions()[version]
    step = FIXED[name](tv)
    chain = tv.Compose([step, tv.PILToTensor()])
    assert read_beginning(chain, ours_ends_in_tensor=True).chain.recipe
    if not native:
        monkeypatch.setattr("fastloader.datasets.encoded.extension.load", lambda: None)
    for seed in range(20):
        image = picture(random.Random(seed), 97, 61)
        file = io.BytesIO()
        image.save(file, "PNG")
        made = EncodedImage(file.getvalue(), chain).decode()
        wanted = np.asarray(step(image))
        assert np.array_equal(made.permute(1, 2, 0).numpy(), wanted), (name, version, seed)
