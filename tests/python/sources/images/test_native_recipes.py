"""Recipes on the native path: `plan()` says so, and Pillow, given what `replay()` lists, makes every
picture again, bit for bit, on every way to deliver."""

import random

import numpy as np
import pytest
from pictures import any_picture, open_as_torchvision, plain_folder, random_folder

from fastloader import FastLoader
from fastloader import transforms as T
from fastloader.datasets import ImageFolder

JITTER = T.ColorJitter(0.4, 0.4, 0.4, 0.1)
HEAD = [T.RandomResizedCrop(48), T.RandomHorizontalFlip()]

# name: steps. Blurs of torchvision's may differ by 1 in very few values.
RECIPES = {
    "jitter": [*HEAD, T.ColorJitter(0.4, 0.4, 0.4)],
    "rand augment": [*HEAD, T.RandAugment()],
    "trivial augment": [*HEAD, T.TrivialAugmentWide(fill=(1, 2, 3))],
    "auto augment": [*HEAD, T.AutoAugment()],
    "auto augment cifar": [*HEAD, T.AutoAugment(T.AutoAugmentPolicy.CIFAR10)],
    "auto augment svhn": [*HEAD, T.AutoAugment(T.AutoAugmentPolicy.SVHN)],
    "aug mix": [*HEAD, T.AugMix()],
    "simclr": [
        T.RandomResizedCrop(48),
        T.RandomApply([JITTER], 0.8),
        T.RandomGrayscale(0.2),
        T.RandomApply([T.GaussianBlur(5)], 0.5),
        T.RandomHorizontalFlip(),
    ],
    "cifar": [T.Resize((32, 32)), T.RandomCrop(32, 4), T.RandomHorizontalFlip()],
    "crop behind resize": [T.Resize(50), T.RandomCrop(40, pad_if_needed=True)],
    "warps": [
        T.Resize((60, 45)),
        T.RandomAffine(30, (0.1, 0.2), (0.7, 1.3), (-10, 10, -5, 5), T.BILINEAR)
        if hasattr(T, "BILINEAR")
        else T.RandomAffine(30, (0.1, 0.2), (0.7, 1.3), (-10, 10, -5, 5), "bilinear"),
        T.RandomPerspective(),
        T.RandomRotation(20, "bicubic", fill=(9, 8, 7)),
    ],
    "rotation first": [T.RandomRotation(45, expand=True), T.RandomResizedCrop(40, (0.3, 1))],
    "jitter first": [JITTER, T.RandomResizedCrop(40)],
    "crop first": [T.CenterCrop(20), T.Resize((12, 10))],
    "resize twice": [T.Resize((20, 30)), T.Resize((12, 10), "bicubic")],
    "flip first": [T.RandomHorizontalFlip(1), T.RandomResizedCrop(16)],
    "flips twice": [*HEAD, T.RandomVerticalFlip(), T.RandomHorizontalFlip()],
    "order and choice": [
        *HEAD,
        T.RandomOrder([T.RandomInvert(), T.RandomPosterize(3), T.RandomSolarize(100)]),
        T.RandomChoice([T.RandomEqualize(), T.RandomAutocontrast(), T.RandomAdjustSharpness(3)]),
    ],
    "compose in compose": [T.Compose([*HEAD, T.Compose([T.Grayscale(3)])]), T.Pad(3, 7)],
    "lanczos": [T.Resize(30, "lanczos"), T.CenterCrop(24)],
    "nearest": [T.Resize((30, 31), "nearest"), T.RandomInvert()],
}
BLURRED = ("simclr",)


@pytest.fixture(scope="module")
def everything(tmp_path_factory):
    """Every kind of file in random sizes, other ones on every run; a failure names the seed."""
    seed = random.randrange(1 << 32)
    root = random_folder(tmp_path_factory.mktemp(f"pictures{seed}"), seed, each=4, others=True)
    return str(root)


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    return str(plain_folder(tmp_path_factory.mktemp("plain"), 20, size=(90, 70)))


def redone(dataset, loader, index):
    picture = open_as_torchvision(dataset.samples[index][0])
    return np.asarray(T.apply(picture, loader.replay(index)["steps"]))


def check(found, wanted, blurred):
    assert found.shape == wanted.shape
    if not blurred:
        assert np.array_equal(found, wanted)
        return
    difference = np.abs(found.astype(int) - wanted.astype(int))
    assert difference.max(initial=0) <= 1 and (difference != 0).mean() < 0.01


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", RECIPES)
def test_pillow_redoes_every_picture(everything, name):
    dataset = ImageFolder(everything, T.Compose(RECIPES[name]), is_valid_file=any_picture)
    loader = FastLoader(dataset, 7, num_workers=2)
    assert loader.plan().startswith("native images: "), loader.plan()
    seen = 0
    for images, _labels in loader:
        for pixels in images:
            made = pixels.permute(1, 2, 0).numpy()
            check(made, redone(dataset, loader, seen), name in BLURRED)
            seen += 1
    assert seen == len(dataset)
