"""Every transform that the native path promises, by its name, from fastloader, torchvision (v1 and v2)
and timm: `plan()` says native, and for 1000 draws of its parameters the native pixels are Pillow's."""

import math
import random

import numpy as np
import pytest
from pictures import import_timm, import_torchvision, plain_folder

from fastloader import FastLoader
from fastloader import transforms as T
from fastloader._core.machine import extension
from fastloader.datasets import ImageFolder
from fastloader.transforms._pillow.canvas import Canvas
from fastloader.transforms._reader.counterpart import counterpart

native = extension.load()
pytestmark = pytest.mark.skipif(native is None, reason="needs the native module")

DRAWS = 1000
SIZE = (24, 29)
INTERPOLATIONS = ("nearest", "bilinear", "bicubic", "box", "hamming", "lanczos")


def modes(m):
    from_torchvision = getattr(m, "InterpolationMode", None)
    return {
        name: name if from_torchvision is None else from_torchvision(name)
        for name in INTERPOLATIONS
    }


# name: what makes the transform of a module, which is ours or one of torchvision's
STEPS = {
    **{
        f"RandomCrop {mode}": lambda m, mode=mode: m.RandomCrop((20, 31), 2, True, 7, mode)
        for mode in ("constant", "edge", "reflect", "symmetric")
    },
    "RandomCrop sides": lambda m: m.RandomCrop(24, (1, 2, 3, 4), fill=(1, 2, 3)),
    **{
        f"Pad {mode}": lambda m, mode=mode: m.Pad((3, 1), 9, mode)
        for mode in ("constant", "edge", "reflect", "symmetric")
    },
    **{
        f"RandomRotation {name}": lambda m, name=name: m.RandomRotation(60, modes(m)[name], fill=5)
        for name in ("nearest", "bilinear", "bicubic")
    },
    "RandomRotation about a centre": lambda m: m.RandomRotation((90, 90), center=(3, 4)),
    **{
        f"RandomAffine {name}": lambda m, name=name: m.RandomAffine(
            30, (0.2, 0.1), (0.6, 1.5), (-20, 20, -10, 10), modes(m)[name], (3, 2, 1), (7, 9)
        )
        for name in ("nearest", "bilinear", "bicubic")
    },
    "RandomAffine about the middle": lambda m: m.RandomAffine(180, (0.3, 0.3), shear=15),
    **{
        f"RandomPerspective {name}": lambda m, name=name: m.RandomPerspective(
            0.6, 0.9, modes(m)[name], 4
        )
        for name in ("nearest", "bilinear", "bicubic")
    },
    **{
        f"Resize {name}": lambda m, name=name: m.Resize((13, 40), modes(m)[name])
        for name in INTERPOLATIONS
    },
    **{
        f"RandomResizedCrop {name}": lambda m, name=name: m.RandomResizedCrop(
            16, interpolation=modes(m)[name]
        )
        for name in INTERPOLATIONS
    },
    "Resize shorter": lambda m: m.Resize(17, max_size=20),
    "CenterCrop": lambda m: m.CenterCrop((11, 40)),
    "RandomHorizontalFlip": lambda m: m.RandomHorizontalFlip(),
    "RandomVerticalFlip": lambda m: m.RandomVerticalFlip(),
    "ColorJitter": lambda m: m.ColorJitter(0.4, (0.2, 1.9), 0.8, 0.3),
    "RandomGrayscale": lambda m: m.RandomGrayscale(0.5),
    "Grayscale": lambda m: m.Grayscale(3),
    "RandomInvert": lambda m: m.RandomInvert(),
    "RandomPosterize": lambda m: m.RandomPosterize(3),
    "RandomSolarize": lambda m: m.RandomSolarize(99),
    "RandomAdjustSharpness": lambda m: m.RandomAdjustSharpness(2.5),
    "RandomAutocontrast": lambda m: m.RandomAutocontrast(),
    "RandomEqualize": lambda m: m.RandomEqualize(),
    "GaussianBlur": lambda m: m.GaussianBlur((5, 3)),
    "RandAugment": lambda m: m.RandAugment(3, 11),
    "TrivialAugmentWide": lambda m: m.TrivialAugmentWide(),
    **{
        f"AutoAugment {policy}": lambda m, policy=policy: m.AutoAugment(m.AutoAugmentPolicy(policy))
        for policy in ("imagenet", "cifar10", "svhn")
    },
    "AugMix": lambda m: m.AugMix(),
    "AugMix of": lambda m: m.AugMix(9, 4, 2, 0.5, False, modes(m)["bicubic"], [3, 2, 1]),
    "RandomApply": lambda m: m.RandomApply([m.RandomInvert(1), m.RandomHorizontalFlip(1)], 0.5),
    "RandomChoice": lambda m: m.RandomChoice([m.RandomInvert(1), m.RandomPosterize(2, 1)]),
    "RandomOrder": lambda m: m.RandomOrder([m.RandomPosterize(4), m.RandomSolarize(60)]),
    "Compose in Compose": lambda m: m.Compose([m.Compose([m.RandomInvert()]), m.Pad(1)]),
}
TIMM = {
    "RandomResizedCropAndInterpolation": lambda t, a: t.RandomResizedCropAndInterpolation(
        16, interpolation="random"
    ),
    "RandomCropOrPad": lambda t, a: t.RandomCropOrPad((30, 20), (1, 2, 3)),
    "RandomCropOrPad reflect": lambda t, a: t.RandomCropOrPad((30, 20), padding_mode="reflect"),
    "CenterCropOrPad": lambda t, a: t.CenterCropOrPad((20, 40), 7),
    "RandomPad": lambda t, a: t.RandomPad((40, 40), (3, 2, 1)),
    "ResizeKeepRatio": lambda t, a: t.ResizeKeepRatio(
        20, random_scale_prob=0.5, random_aspect_prob=0.5
    ),
    "TrimBorder": lambda t, a: t.TrimBorder(3),
    **{
        name: lambda t, a, name=name: a.rand_augment_transform(name, HPARAMS)
        for name in (
            "rand-m9-mstd0.5-inc1",
            "rand-m7-n3-mstd0.5",
            "rand-m15-mmax20-p0.7",
            "rand-m9-t1-mstd101",
        )
    },
    **{
        name: lambda t, a, name=name: a.auto_augment_transform(name, HPARAMS)
        for name in ("original", "originalr-mstd0.5", "v0", "v0r-mstd0.5", "3a")
    },
    **{
        name: lambda t, a, name=name: a.augment_and_mix_transform(name, HPARAMS)
        for name in ("augmix-m5-w4-d2", "augmix-m5-w4-d2-b1", "augmix-w1-a0.2-mstd1")
    },
}
HPARAMS = {"translate_const": 10, "img_mean": (124, 116, 104)}


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
        found, size = native.apply_operations(picture.tobytes(), SIZE, operations)
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
