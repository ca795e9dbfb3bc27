"""The chains that compat.timm makes for options are those of the installed timm's create_transform, step
by step."""

import inspect

import pytest
import torch

from fastloader import transforms
from fastloader.compat import timm as ours
from fastloader.compat.timm.transforms import create_transform, what_needs_timm
from fastloader.transforms._reader.chain import counterpart

pytestmark = pytest.mark.covering


def complete(**options):
    """With the defaults of create_loader."""
    defaults = {
        name: parameter.default
        for name, parameter in inspect.signature(ours.create_loader).parameters.items()
    }
    names = (
        "is_training", "no_aug", "train_crop_mode", "scale", "ratio", "hflip", "vflip",
        "color_jitter", "color_jitter_prob", "grayscale_prob", "gaussian_blur_prob", "auto_augment",
        "interpolation", "mean", "std", "crop_pct", "crop_mode", "crop_border_pixels", "re_prob",
        "re_mode", "re_count", "tf_preprocessing", "use_prefetcher",
    )  # fmt: skip
    found = {name: defaults[name] for name in names}
    return {**found, "re_num_splits": 0, "separate": False, **options}


def described(step):
    """A step of either as what can be compared: our trees, and the ends of chains by their names."""
    name = type(step).__name__.removeprefix("Maybe")
    if name in ("PILToTensor", "ToTensor"):
        return name
    if name == "Normalize":
        return name, *(
            torch.as_tensor(each, dtype=torch.float32).tolist() for each in (step.mean, step.std)
        )
    return type(counterpart(step)), counterpart(step).step((57, 43))


def same(mine, their):
    mine, their = ([described(step) for step in side.transforms] for side in (mine, their))
    assert mine == their


TRAININGS = {
    "defaults": {},
    "no jitter": {"color_jitter": None},
    "jitter of four": {"color_jitter": (0.1, 0.2, 0.3, 0.4), "color_jitter_prob": 0.8},
    "jitter of three": {"color_jitter": [0.1, 0.2, 0.3]},
    "like SimCLR": {"color_jitter_prob": 0.8, "grayscale_prob": 0.2, "gaussian_blur_prob": 0.5},
    "grayscale": {"color_jitter": None, "grayscale_prob": 0.2, "hflip": 0.0, "vflip": 0.3},
    "randaugment": {"auto_augment": "rand-m9-mstd0.5-inc1"},
    "randaugment, bicubic": {"auto_augment": "rand-m9-n3", "interpolation": "bicubic"},
    "randaugment, random": {"auto_augment": "rand-m9-tweights", "interpolation": "random"},
    "translations": {"auto_augment": "original", "mean": (0.1, 0.999, 1.2), "std": (1, 1, 1)},
    "3-augment": {"auto_augment": "3a", "color_jitter": 0.3},
    "augmix": {"auto_augment": "augmix-m5-w4-d2", "mean": (0.1, 0.2, 0.3)},
    "augmix blended": {"auto_augment": "augmix-b1-a0.5-mstd1", "interpolation": "random"},
    "3-augment by rand": {"auto_augment": "rand-t3a", "interpolation": "random"},
    "rkrc": {"train_crop_mode": "rkrc", "color_jitter": None},
    "rkrr": {"train_crop_mode": "rkrr", "interpolation": "random", "auto_augment": "v0"},
    "rkrr of": {"train_crop_mode": "rkrr", "scale": (0.5, 0.9), "ratio": (0.7, 1.4)},
    "rrc of": {"train_crop_mode": "rrc", "scale": [0.5, 0.9], "ratio": (0.7, 1.4)},
    "lanczos": {"interpolation": "lanczos"},
    "rkrc by hamming": {"train_crop_mode": "rkrc", "interpolation": "hamming"},
    "no prefetcher": {"use_prefetcher": False, "auto_augment": "rand", "color_jitter": None},
    "no_aug": {"no_aug": True, "interpolation": "random", "auto_augment": "rand"},
}


@pytest.mark.exhaustive
@pytest.mark.parametrize("size", [24, (20, 29), (3, 27, 22)], ids=str)
@pytest.mark.parametrize("name", TRAININGS)
def test_training_chains(theirs, name, size):
    options = complete(is_training=True, **TRAININGS[name])
    assert what_needs_timm(options) == ""
    mine = create_transform(size, options)
    assert type(mine) is transforms.Compose
    same(mine, theirs.create_transform(size, **options))


EVALUATIONS = {
    "nearest": {"interpolation": "nearest"},
    "box": {"interpolation": "box", "crop_mode": "squash"},
    "lanczos": {"interpolation": "lanczos", "crop_mode": "border"},
    "border": {"crop_mode": "border"},
    "trimmed": {"crop_border_pixels": 4},
    "trimmed and squashed": {"crop_border_pixels": 4, "crop_mode": "squash"},
    "trimmed with a border": {"crop_border_pixels": 1, "crop_mode": "border", "crop_pct": 1.0},
}


@pytest.mark.parametrize("size", [24, (20, 29)], ids=str)
@pytest.mark.parametrize("name", EVALUATIONS)
def test_evaluation_chains(theirs, name, size):
    options = complete(**EVALUATIONS[name])
    same(create_transform(size, options), theirs.create_transform(size, **options))


def test_what_still_needs_timm():
    training = {"is_training": True, "color_jitter": None}
    for needed, options in {
        "": {"auto_augment": None},
        "auto_augment='rand'": {**training, "auto_augment": "rand", "mean": (0.1, 0.2, 0.3, 0.4)},
        "num_aug_splits": {**training, "separate": True},
        "re_prob=0.2": {**training, "re_prob": 0.2, "use_prefetcher": False},
        "tf_preprocessing=True": {"tf_preprocessing": True},
    }.items():
        assert what_needs_timm(complete(**options)) == needed


def test_values_that_timm_refuses(theirs):
    for options in (
        {"auto_augment": "rand-q3"},
        {"auto_augment": "v7"},
        {"auto_augment": "augmix-q3"},
        {"train_crop_mode": "rcc"},
        {"color_jitter": (0.1, 0.2)},
    ):
        options = complete(is_training=True, **options)
        with pytest.raises((AssertionError, ValueError)):
            theirs.create_transform(24, **options)
        with pytest.raises(ValueError):
            create_transform(24, options)
