"""The transforms of torchvision that the native image path knows, under torchvision's names.

They describe what to do: a loader reads them and does it in C++. Called on a Pillow image, they do the
same with Pillow, and so they work in a plain DataLoader. The distribution is torchvision's, but the
draws are not: one number from torch's default generator seeds a counter-based generator.
"""

from __future__ import annotations

from fastloader.transforms._apply import apply
from fastloader.transforms.geometry import (
    CenterCrop,
    Pad,
    RandomAffine,
    RandomCrop,
    RandomHorizontalFlip,
    RandomPerspective,
    RandomResizedCrop,
    RandomRotation,
    RandomVerticalFlip,
    Resize,
)
from fastloader.transforms.pixels import (
    ColorJitter,
    GaussianBlur,
    Grayscale,
    RandomAdjustSharpness,
    RandomAutocontrast,
    RandomEqualize,
    RandomGrayscale,
    RandomInvert,
    RandomPosterize,
    RandomSolarize,
)
from fastloader.transforms.policies import (
    AugMix,
    AutoAugment,
    AutoAugmentPolicy,
    RandAugment,
    TrivialAugmentWide,
)
from fastloader.transforms.structure import Compose, RandomApply, RandomChoice, RandomOrder
from fastloader.transforms.tensors import CutMix, MixUp, RandomErasing, named_steps
from fastloader.transforms.transform import Normalize, PILToTensor, ToTensor

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
