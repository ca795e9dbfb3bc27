"""What a collate_fn mixes, in the batches of a dataset of pictures."""

from __future__ import annotations

import dataclasses

from fastloader._core.batch.augmentation import Mixing
from fastloader._core.pictures.native_images import NativeImages
from fastloader.errors import NotNative
from fastloader.transforms.tensors import Rolled


def checked_mixing(pictures: NativeImages, mixing: Mixing | Rolled) -> Mixing | Rolled:
    """The mixing for these pictures: of bytes, if their chain ends in bytes.

    Raises:
        NotNative: for what cannot be mixed, or not natively.
    """
    chain = pictures.chain
    if isinstance(mixing, Mixing):
        if chain.floating:
            raise NotNative("collate_fn mixes bytes, and the transform ends in floats")
        if mixing.multi_label:
            raise NotNative("collate_fn mixes dense targets, and the dataset has classes")
    else:
        mixing = dataclasses.replace(mixing, before_normalize=not chain.floating)
    targets = pictures.targets
    if len(targets) and not 0 <= targets.min() <= targets.max() < (mixing.num_classes or 0):
        raise NotNative(
            f"collate_fn mixes {mixing.num_classes} classes, and the dataset has others: "
            f"{targets.min()} to {targets.max()}"
        )
    return mixing
