"""timm's AutoAugment and RandAugment, as steps that the native path draws and does. timm need not be
installed."""

from __future__ import annotations

from fastloader.compat.timm.auto_augment.augment_op import AugmentOp
from fastloader.compat.timm.auto_augment.auto_augment import AutoAugment, auto_augment_transform
from fastloader.compat.timm.auto_augment.rand_augment import RandAugment, rand_augment_transform

__all__ = [
    "AugmentOp",
    "AutoAugment",
    "RandAugment",
    "auto_augment_transform",
    "rand_augment_transform",
]
