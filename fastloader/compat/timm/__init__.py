"""timm's loader: ``create_loader`` and what belongs to it. timm itself is needed only for augmentations
that the native path does not know.

from fastloader.compat.timm import create_loader, ImageDataset
"""

from __future__ import annotations

from fastloader.compat.timm.dataset import ImageDataset
from fastloader.compat.timm.loader import (
    IMAGENET_DEFAULT_MEAN,
    IMAGENET_DEFAULT_STD,
    MultiEpochsDataLoader,
    PrefetchLoader,
    create_loader,
)
from fastloader.compat.timm.mixup import FastCollateMixup, Mixup, fast_collate
from fastloader.compat.timm.samplers import OrderedDistributedSampler, RepeatAugSampler

__all__ = [
    "IMAGENET_DEFAULT_MEAN",
    "IMAGENET_DEFAULT_STD",
    "FastCollateMixup",
    "ImageDataset",
    "Mixup",
    "MultiEpochsDataLoader",
    "OrderedDistributedSampler",
    "PrefetchLoader",
    "RepeatAugSampler",
    "create_loader",
    "fast_collate",
]
