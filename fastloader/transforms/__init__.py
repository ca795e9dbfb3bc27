"""The transforms of torchvision that the native image path knows, under torchvision's names.

They describe what to do: a loader reads them and does it in C++. Called on a Pillow image, they do the
same with Pillow, and so they work in a plain DataLoader. The distribution is torchvision's, but the
draws are not: one number from torch's default generator seeds a counter-based generator.
"""

from __future__ import annotations

from fastloader.transforms.steps.apply import apply
from fastloader.transforms.steps.conversion import Normalize, PILToTensor, ToTensor
from fastloader.transforms.steps.geometry.crop import CenterCrop, Pad, RandomCrop, RandomResizedCrop
from fastloader.transforms.steps.geometry.flip import RandomHorizontalFlip, RandomVerticalFlip
from fastloader.transforms.steps.geometry.resize import Resize
from fastloader.transforms.steps.geometry.warp import (
    RandomAffine,
    RandomPerspective,
    RandomRotation,
)
from fastloader.transforms.steps.pixels.colour import ColorJitter, Grayscale, RandomGrayscale
from fastloader.transforms.steps.pixels.sharpness import GaussianBlur, RandomAdjustSharpness
from fastloader.transforms.steps.pixels.tones import (
    RandomAutocontrast,
    RandomEqualize,
    RandomInvert,
    RandomPosterize,
    RandomSolarize,
)
from fastloader.transforms.steps.policies.aug_mix import AugMix
from fastloader.transforms.steps.policies.auto_augment import AutoAugment, AutoAugmentPolicy
from fastloader.transforms.steps.policies.rand_augment import RandAugment, TrivialAugmentWide
from fastloader.transforms.steps.structure import Compose, RandomApply, RandomChoice, RandomOrder
from fastloader.transforms.steps.tensors.erasing import RandomErasing
from fastloader.transforms.steps.tensors.mixing import CutMix, MixUp
from fastloader.transforms.steps.tensors.named_steps import named_steps

__all__ = [
    "AugMix",
    "AutoAugment",
    "AutoAugmentPolicy",
    "CenterCrop",
    "ColorJitter",
    "Compose",
    "CutMix",
    "GaussianBlur",
    "Grayscale",
    "MixUp",
    "Normalize",
    "PILToTensor",
    "Pad",
    "RandAugment",
    "RandomAdjustSharpness",
    "RandomAffine",
    "RandomApply",
    "RandomAutocontrast",
    "RandomChoice",
    "RandomCrop",
    "RandomEqualize",
    "RandomErasing",
    "RandomGrayscale",
    "RandomHorizontalFlip",
    "RandomInvert",
    "RandomOrder",
    "RandomPerspective",
    "RandomPosterize",
    "RandomResizedCrop",
    "RandomRotation",
    "RandomSolarize",
    "RandomVerticalFlip",
    "Resize",
    "ToTensor",
    "TrivialAugmentWide",
    "apply",
    "named_steps",
]
