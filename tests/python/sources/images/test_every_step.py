"""Every transform that the native path promises, by its name, from fastloader, torchvision (v1 and v2)
and timm: `plan()` says native, and for 1000 draws of its parameters the native pixels are Pillow's."""

import math
import random

import numpy as np
import pytest
from every_step import STEPS, TIMM
from operations import as_pillow_resizes
from pictures import import_timm, import_torchvision, plain_folder

from fastloader import FastLoader
from fastloader import transforms as T
from fastloader._core.machine import extension
from fastloader.datasets import ImageFolder
from fastloader.transforms._reader.chain import counterpart
from fastloader.transforms._recipe.operations import Canvas

native = extension.load()
pytestmark = pytest.mark.skipif(native is None, reason="needs the native module")

DRAWS = 1000
SIZE = (24, 29)


def modules():
    tv = import_torchvision()
    from torchvision.transforms import v2

    return {"fastloader": T, "v1": tv.transforms, "v2": v2}


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return str(plain_folder(tmp_path_factory.mktemp("plain"), 6, size=(40, 30)))


def check_plan(root, step):
    """The step behind a resize, in front of a crop that gives all pictures one size."""
    chain = T.Compose([T.Resize(SIZE), step, T.CenterCrop(16), T.PILToTensor()])
    plan = FastLoader(ImageFolder(root, chain), 3).plan()
    assert plan.startswith("native images: "), plan


def check_pixels(step, rng, blurred=False):
    tree = counterpart(step).step(SIZE)
    recipe = native.Recipe([tree])
    pixels = np.frombuffer(rng.randbytes(math.prod(SIZE) * 3), np.uint8).reshape(*SIZE, 3)
    # Noise, and what has edges and plain parts.
    pictures = [pixels, np.sort(pixels, axis=0), pixels // 64 * 64]
    from PIL import Image

    seed = rng.getrandbits(63)
    different = 0
    for index in range(DRAWS):
        picture = pictures[index % len(pictures)]
        operations = recipe.draw(seed, index, 0, SIZE)
        found, size = native.apply_operations(
            picture.tobytes(), SIZE, operations, **as_pillow_resizes()
        )
        canvas = Canvas(Image.fromarray(picture))
        for operation in operations:
            canvas.apply(*operation)
        image = canvas.picture
        assert image.size[::-1] == tuple(size)
        made = np.frombuffer(found, np.uint8).reshape(*size, 3).astype(int)
        difference = np.abs(made - np.asarray(image).astype(int))
        assert difference.max(initial=0) <= int(blurred), (seed, index, operations)
        different += (difference != 0).mean()
    assert different / DRAWS < 0.001


@pytest.fixture
def rng():
    seed = random.getrandbits(32)
    print(f"seed {seed}")
    return random.Random(seed)


@pytest.mark.exhaustive
@pytest.mark.parametrize("module", ["fastloader", "v1", "v2"])
@pytest.mark.parametrize("name", STEPS)
def test_steps_of_torchvision(root, name, module):
    check_plan(root, STEPS[name](T if module == "fastloader" else modules()[module]))


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", STEPS)
def test_pixels_of_1000_draws(name, rng):
    check_pixels(STEPS[name](T), rng, blurred=name == "GaussianBlur")


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", TIMM)
def test_steps_of_timm(root, name, rng):
    import_timm()
    from timm.data import auto_augment
    from timm.data import transforms as timm_transforms

    step = TIMM[name](timm_transforms, auto_augment)
    check_plan(root, step)
    check_pixels(step, rng)
