"""The chains that compat.timm makes for options are those of the installed timm's create_transform, step
by step."""

import inspect
import types

import pytest
import torch

from fastloader import transforms
from fastloader.compat import timm as ours
from fastloader.compat.timm.transforms import create_transform, what_needs_timm
from fastloader.transforms._reader.counterpart import counterpart
from fastloader.transforms.steps.transform import RecipeTransform

STAND_INS = ("ColorJitter", "GaussianBlur", "RandomApply", "RandomGrayscale")


@pytest.fixture(autouse=True)
def stand_ins(monkeypatch):
    """Classes that only keep what they are made of, for those that are none of timm's affair."""
    for name in STAND_INS:
        kind = type(name, (), {"__init__": _keep})
        monkeypatch.setattr(transforms, name, kind, raising=False)


def _keep(self, *arguments, **options):
    self.made_of = arguments, options


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
    """A step of either as plain values that can be compared."""
    read = step if isinstance(step, RecipeTransform) else counterpart(step)
    if read is not None and type(read).__module__.startswith("fastloader.compat"):
        return read.step(None)
    name = type(step).__name__.removeprefix("Maybe").removesuffix("AndInterpolation")
    if hasattr(step, "made_of"):
        return (name, *_stand_in(name, *step.made_of))
    return (name, *DESCRIPTIONS[name](step))


def _stand_in(name, arguments, options):
    if name == "RandomApply":
        return [described(each) for each in arguments[0]], options["p"]
    if name == "ColorJitter":
        return [*arguments, *[0] * (4 - len(arguments))]
    return [options.get("kernel_size", options.get("p"))]


def numbers(values):
    """One number, a sequence or a tensor, as a list."""
    values = values.tolist() if isinstance(values, torch.Tensor) else values
    return list(values) if isinstance(values, list | tuple) else [values]


def pair(size):
    return numbers(size) * (2 // len(numbers(size)))


def filter_of(step):
    filter = step.interpolation
    return "random" if isinstance(filter, tuple) else getattr(filter, "value", filter)


def most(step):
    """The factors of torchvision's ColorJitter."""
    edges = (step.brightness, step.contrast, step.saturation)
    factors = [0 if each is None else round(each[1] - 1, 6) for each in edges]
    return [*factors, 0 if step.hue is None else step.hue[1]]


DESCRIPTIONS = {
    "RandomResizedCrop": lambda step: (
        pair(step.size), numbers(step.scale), numbers(step.ratio), filter_of(step)
    ),
    "RandomHorizontalFlip": lambda step: [step.p],
    "RandomVerticalFlip": lambda step: [step.p],
    "Resize": lambda step: (numbers(step.size), filter_of(step)),
    "CenterCrop": lambda step: [pair(step.size)],
    "PILToTensor": lambda step: (),
    "ToTensor": lambda step: (),
    "Normalize": lambda step: (
        [round(each, 6) for each in numbers(step.mean)], [round(each, 6) for each in numbers(step.std)]
    ),
    "ColorJitter": most,
    "RandomGrayscale": lambda step: [step.p],
    "RandomApply": lambda step: ([described(each) for each in step.transforms], step.p),
    "GaussianBlur": lambda step: [step.kernel_size[0]],
}  # fmt: skip


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
    "3-augment by rand": {"auto_augment": "rand-t3a", "interpolation": "random"},
    "rkrc": {"train_crop_mode": "rkrc", "color_jitter": None},
    "rkrr": {"train_crop_mode": "rkrr", "interpolation": "random", "auto_augment": "v0"},
    "rkrr of": {"train_crop_mode": "rkrr", "scale": (0.5, 0.9), "ratio": (0.7, 1.4)},
    "rrc of": {"train_crop_mode": "rrc", "scale": [0.5, 0.9], "ratio": (0.7, 1.4)},
    "no prefetcher": {"use_prefetcher": False, "auto_augment": "rand", "color_jitter": None},
    "no_aug": {"no_aug": True, "interpolation": "random", "auto_augment": "rand"},
}


@pytest.mark.parametrize("size", [24, (20, 29), (3, 27, 22)], ids=str)
@pytest.mark.parametrize("name", TRAININGS)
def test_training_chains(theirs, name, size):
    options = complete(is_training=True, **TRAININGS[name])
    assert what_needs_timm(options) == ("", "")
    mine = create_transform(size, options)
    assert type(mine) is transforms.Compose
    same(mine, theirs.create_transform(size, **options))


EVALUATIONS = {
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
        "auto_augment='augmix-m5'": {**training, "auto_augment": "augmix-m5"},
        "auto_augment='rand'": {**training, "auto_augment": "rand", "mean": (0.1, 0.2, 0.3, 0.4)},
        "num_aug_splits": {**training, "separate": True},
        "re_prob=0.2": {**training, "re_prob": 0.2, "use_prefetcher": False},
        "tf_preprocessing=True": {"tf_preprocessing": True},
        "interpolation='hamming'": {"interpolation": "hamming"},
    }.items():
        assert what_needs_timm(complete(**options))[0] == needed


def test_without_the_transforms_of_colours_timm_is_needed(monkeypatch):
    without = types.SimpleNamespace()
    monkeypatch.setattr("fastloader.compat.timm.transforms.transforms", without)
    for name, value in (
        ("color_jitter", 0.4),
        ("grayscale_prob", 0.1),
        ("gaussian_blur_prob", 0.1),
    ):
        options = complete(**{"is_training": True, "color_jitter": None, name: value})
        assert what_needs_timm(options)[0] == f"{name}={value}"


def test_values_that_timm_refuses(theirs):
    for options in (
        {"auto_augment": "rand-q3"},
        {"auto_augment": "v7"},
        {"train_crop_mode": "rcc"},
        {"color_jitter": (0.1, 0.2)},
    ):
        options = complete(is_training=True, **options)
        with pytest.raises((AssertionError, ValueError)):
            theirs.create_transform(24, **options)
        with pytest.raises(ValueError):
            create_transform(24, options)
