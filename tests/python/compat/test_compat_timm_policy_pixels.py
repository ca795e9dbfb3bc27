"""The pixels of compat.timm's policies, done by Pillow as recipes have them, are those of timm's own
functions with the same numbers."""

import importlib
import math
import random

import numpy as np
import pytest
from pictures import import_timm, picture
from PIL import Image

from fastloader.transforms._recipe.operations import apply_operation
from fastloader.transforms._recipe.recipe import Recipe
from fastloader.transforms.timm import AugmentOp

FILL = (200, 13, 99)
DRAWS = 100


@pytest.fixture(scope="module")
def policies():
    import_timm()
    return importlib.import_module("timm.data.auto_augment")


def arguments(name, numbers, size):
    """What timm's function of that name takes for what was drawn."""
    if name in ("AutoContrast", "Equalize", "Invert"):
        return ()
    if name.startswith(("Posterize", "Solarize")):
        return (int(numbers[0]),)
    if name == "Desaturate":
        return (1.0 - numbers[0],)
    if name.startswith(("Shear", "Translate")):
        place = {"ShearX": 1, "ShearY": 3}.get(name, 2 if "X" in name else 5)
        edge = size["Y" in name] if name.endswith("Rel") else 1
        return (share_of(numbers[place], edge),)
    return (numbers[0],)


def share_of(pixels, edge):
    """The share that makes just these pixels of the edge, where there is one."""
    share = pixels / edge
    near = [share, math.nextafter(share, math.inf), math.nextafter(share, -math.inf)]
    return next((each for each in near if each * edge == pixels), share)


def options(name, numbers):
    at = {"Rotate": (1, 3)}.get(name, (6, 7))
    return {
        "resample": Image.Resampling(int(numbers[at[0]])),
        "fillcolor": tuple(int(value) for value in numbers[at[1] :]),
    }


def of_timm(policies, name, numbers, image):
    function = policies.NAME_TO_OP[name]
    if name == "GaussianBlurRand":  # which draws the radius itself
        function = policies.gaussian_blur
    if name.startswith(("Shear", "Translate", "Rotate")):
        more = options(name, numbers)
        assert more["fillcolor"] == FILL
        return function(image, *arguments(name, numbers, image.size), **more)
    return function(image, *arguments(name, numbers, image.size))


def black(image):
    return Image.new(image.mode, image.size)


@pytest.mark.parametrize("mode", ["RGB", "L"])
def test_pixels_of_every_operation(policies, mode):
    seed = random.randrange(2**31)
    print("seed", seed)
    rng = random.Random(seed)
    hparams = {"magnitude_std": 6.0, "translate_const": 21, "img_mean": FILL, "magnitude_max": 14}
    compared = 0
    for name in policies.NAME_TO_OP:
        if mode == "L" and name.startswith(("Shear", "Translate", "Rotate")):
            continue  # timm has a colour there, which Pillow refuses for grey
        recipe = Recipe([AugmentOp.of(name, 1.0, rng.randrange(15), hparams).step])
        for index in range(DRAWS):
            size = rng.choice([(1, 1), (3, 1), (1, 7), (rng.randint(2, 60), rng.randint(2, 60))])
            image = picture(rng, *size, mode)
            (operation,) = recipe.draw(seed, index, 0, lambda size=size: size[::-1])
            mine = apply_operation(image, *operation)
            if name.startswith("Posterize") and operation[1][0] == 0:
                their = black(image)  # which Pillow 13 refuses to make
            else:
                their = of_timm(policies, name, operation[1], image)
            assert mine.mode == their.mode
            wanted = np.asarray(their)
            assert np.array_equal(np.asarray(mine), wanted), (name, size, index, operation)
            compared += 1
    print(compared, "pictures")


def test_fully_drawn_transforms_run(policies):
    """A whole policy on a picture: of the same size and mode, and other pixels than before."""
    from fastloader.transforms.timm import auto_augment_transform, rand_augment_transform

    rng = random.Random(1)
    for make, config in (
        (rand_augment_transform, "rand-m9-mstd0.5-inc1"),
        (rand_augment_transform, "rand-m9-tweights"),
        (auto_augment_transform, "v0"),
        (auto_augment_transform, "3a"),
    ):
        transform, changed = make(config), 0
        for _ in range(30):
            image = picture(rng, rng.randint(1, 40), rng.randint(1, 40))
            made = transform(image)
            assert (made.size, made.mode) == (image.size, "RGB")
            changed += made.tobytes() != image.tobytes()
        assert changed > 5
