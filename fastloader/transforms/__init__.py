"""The transforms of torchvision that the native image path knows, under torchvision's names.

They describe what to do: a loader reads them and does it in C++. Called on a Pillow image, they do the
same with Pillow, and so they work in a plain DataLoader. The distribution is torchvision's, but the
draws are not: one number from torch's default generator seeds a counter-based generator.
"""

from __future__ import annotations

from fastloader.transforms.steps.apply import apply
from fastloader.transforms.steps.conversion import Normalize, PILToTensor, ToTensor
from fastloader.transforms.steps.crop import CenterCrop, RandomResizedCrop
from fastloader.transforms.steps.flip import RandomHorizontalFlip, RandomVerticalFlip
from fastloader.transforms.steps.resize import Resize
from fastloader.transforms.steps.structure import Compose

__all__ = [
    "CenterCrop",
    "Compose",
    "Normalize",
    "PILToTensor",
    "RandomHorizontalFlip",
    "RandomResizedCrop",
    "RandomVerticalFlip",
    "Resize",
    "ToTensor",
    "apply",
]
