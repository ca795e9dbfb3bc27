"""What our transforms draw, the same done by torchvision's functions, and whether two samples can be of
one distribution."""

import collections
import contextlib
import importlib
import math
import random

import numpy as np
import pytest
from pictures import import_torchvision, picture

from fastloader import transforms
from fastloader.transforms._recipe import operations as canvas
from fastloader.transforms._recipe import sized
from fastloader.transforms._recipe.draw import Draw
from fastloader.transforms._recipe.operations import OF_MIX, apply_operation
from fastloader.transforms._recipe.recipe import Recipe

SIZES = ((1, 1), (1, 7), (9, 1), (2, 2), (3, 2))


def versions():
    """Both of torchvision's packages of transforms, or skips."""
    first = import_torchvision().transforms
    return {"v1": first, "v2": importlib.import_module("torchvision.transforms.v2")}


def refuse_alike(torchvisions, name, arguments, when, image):
    """We refuse the arguments, and so does what ``when`` names, with an error of the same type: "v1" and
    "v2" when it is made, "call" when v1 gets a picture."""
    with pytest.raises((TypeError, ValueError)) as ours:
        getattr(transforms, name)(*arguments)
    for each in when:
        with pytest.raises(Exception) as theirs:
            made = getattr(torchvisions["v1" if each == "call" else each], name)(*arguments)
            if each == "call":
                made(image)
        assert type(ours.value) is type(theirs.value), (each, theirs.value)


def pictures(count, seed, smallest=1):
    """As many random generators, each with a picture, of odd sizes and of few pixels, too."""
    for number in range(count):
        rng = random.Random(f"{seed}.{number}")
        odd = [size for size in SIZES if min(size) >= smallest]
        size = (rng.randint(smallest, 60), rng.randint(smallest, 60))
        if odd and rng.random() < 0.3:
            size = rng.choice(odd)
        yield rng, picture(rng, *size)


@contextlib.contextmanager
def _recorded():
    """Lists the leaves of the trees that are drawn: name, numbers, and the operations they become."""
    leaves, expected = [], []
    known = dict(sized.SIZED)

    def watched(name):
        def become(numbers, size, draws):
            found = known[name].draw(numbers, size, draws)
            leaves.append((name, list(numbers), found))
            expected.extend(found)
            return found

        return become

    def applied(image, name, numbers):
        note(name, numbers)
        return apply_operation(image, name, numbers)

    def note(name, numbers):
        if expected:
            assert expected.pop(0) == (name, numbers)
        else:
            leaves.append((name, numbers, [(name, numbers)]))

    sized.SIZED.update({name: known[name]._replace(draw=watched(name)) for name in known})
    canvas.apply_operation = applied
    try:
        yield leaves, note
    finally:
        sized.SIZED.update(known)
        canvas.apply_operation = apply_operation


def applied(transform, image, seed):
    """What the transform makes of the picture, and the leaves that it drew."""
    with _recorded() as (leaves, _):
        return transform.apply(image, Draw(seed)), leaves


def samples(transform, size, count, seed):
    """The leaves that are drawn for as many pictures of one size (height, width)."""
    recipe = Recipe([transform.step(size)])
    for index in range(count):
        with _recorded() as (leaves, note):
            for name, numbers in recipe.draw(seed, index, 0, lambda: size):
                if name not in OF_MIX:
                    note(name, numbers)
        yield leaves


def redone(functional, image, leaves):
    """The leaves done by torchvision's functions, which get the parameters that were drawn."""
    for name, numbers, operations in leaves:
        image = _redone(functional, image, name, numbers, operations)
    return image


def _redone(functional, image, name, numbers, operations):
    mode = functional._interpolation_modes_from_int
    plain = {
        "invert": "invert",
        "autocontrast": "autocontrast",
        "equalize": "equalize",
        "hflip": "hflip",
        "vflip": "vflip",
        "brightness": "adjust_brightness",
        "contrast": "adjust_contrast",
        "saturation": "adjust_saturation",
        "hue": "adjust_hue",
        "sharpness": "adjust_sharpness",
        "solarize": "solarize",
    }
    if name in plain:
        return getattr(functional, plain[name])(image, *numbers)
    if name == "posterize":
        return functional.posterize(image, int(numbers[0]))
    if name == "grayscale":
        return functional.rgb_to_grayscale(image, len(image.getbands()))
    if name == "gaussian_blur":
        wide, high, sigma = numbers
        return functional.gaussian_blur(image, [int(wide), int(high)], [sigma, sigma])
    if name == "rotate":
        angle, resampling, expand, *rest = numbers
        center = rest[:2] if len(rest) > 3 else None
        return functional.rotate(
            image, angle, mode(int(resampling)), bool(expand), center, rest[-3:]
        )
    if name.startswith("affine_about"):
        angle, right, down, scale, *shear, resampling = numbers[:7]
        assert right == int(right) and down == int(down)
        if name == "affine_about_v2":
            functional = importlib.import_module("torchvision.transforms.v2.functional")
        return functional.affine(
            image,
            angle,
            [int(right), int(down)],
            scale,
            shear,
            mode(int(resampling)),
            numbers[7:10],
            numbers[10:] or None,
        )
    if name == "resize_shorter":
        shorter, most, resampling = map(int, numbers)
        return functional.resize(image, [shorter], mode(resampling), most or None)
    if name == "center_crop":
        return functional.center_crop(image, [int(number) for number in numbers])
    for each in operations:  # of what has no function: pad, crop, resize, perspective
        image = _done(functional, mode, image, *each)
    return image


def _done(functional, mode, image, name, numbers):
    if name == "pad":
        left, top, right, bottom, kind = (int(number) for number in numbers[:5])
        kinds = ("constant", "edge", "reflect", "symmetric")
        return functional.pad(
            image, [left, top, right, bottom], [int(v) for v in numbers[5:]], kinds[kind]
        )
    if name == "crop":
        left, top, width, height = (int(number) for number in numbers)
        return functional.crop(image, top, left, height, width)
    if name == "resize":
        height, width, resampling = (int(number) for number in numbers)
        return functional.resize(image, [height, width], mode(resampling))
    assert name == "perspective"
    resampling = int(numbers[8])
    return functional.F_pil.perspective(image, numbers[:8], resampling, numbers[9:])


def same_picture(one, other, because=None):
    assert one.mode == other.mode and one.size == other.size, because
    assert np.array_equal(np.asarray(one), np.asarray(other)), because


# --- distributions ------------------------------------------------------------------------------


def same_counts(ours, theirs, because=None):
    """Chi-square of two samples of one size: a fit this bad comes once in a million runs. What comes
    seldom counts as one kind."""
    ours, theirs = collections.Counter(ours), collections.Counter(theirs)
    assert ours.total() == theirs.total()
    pairs, seldom = [], np.zeros(2)
    for key in ours.keys() | theirs.keys():
        pair = np.array([ours[key], theirs[key]])
        if pair.sum() < 16:
            seldom += pair
        else:
            pairs.append(pair)
            assert pair.all(), (because, key, pair)
    if seldom.sum() >= 16:
        pairs.append(seldom)
    freedom = len(pairs) - 1
    if freedom < 1:
        return
    square = sum((one - other) ** 2 / (one + other) for one, other in pairs)
    # Wilson and Hilferty: the cube root is nearly normal.
    spread = 2 / (9 * freedom)
    deviate = ((square / freedom) ** (1 / 3) - (1 - spread)) / math.sqrt(spread)
    assert deviate < 4.8, (because, deviate, pairs[:20])


def same_histograms(ours, theirs, because=None, bins=24):
    """The same for numbers: each of ``ours`` and ``theirs`` is a list of numbers of one size."""
    edges = np.unique(np.quantile(np.array(theirs), np.linspace(0, 1, bins + 1)[1:-1]))
    same_counts(
        np.searchsorted(edges, ours, "right").tolist(),
        np.searchsorted(edges, theirs, "right").tolist(),
        because,
    )
    # Within one in a hundred of the range at both ends.
    width = max(theirs) - min(theirs)
    assert abs(min(ours) - min(theirs)) <= 0.01 * width + 1e-6, because
    assert abs(max(ours) - max(theirs)) <= 0.01 * width + 1e-6, because
