"""What the tests of erasing and mixing share."""

import torch

from fastloader import DevicePrefetcher
from fastloader._core.batch.augmentation import Mixing, RandomErasing
from support import MEAN, STD, random_images

CLASSES = 7

ERASINGS = {
    "none": None,
    "const": RandomErasing(0.8, max_count=3),
    "rand": RandomErasing(0.8, mode="rand", max_count=3),
    "pixel": RandomErasing(0.8, mode="pixel", max_count=3, num_splits=3),
}


def mixing(mode, **options):
    options = {"mixup_alpha": 0.8, "cutmix_alpha": 1.0, "num_classes": CLASSES, **options}
    return Mixing(mode=mode, **options)


MIXINGS = {
    "none": None,
    **{mode: mixing(mode) for mode in ("batch", "pair", "elem")},
    **{f"{mode} bytes": mixing(mode, before_normalize=True) for mode in ("batch", "pair")},
    **{f"{mode} bytes": mixing(mode, before_normalize=True) for mode in ("elem", "half")},
    "minmax": mixing("elem", cutmix_minmax=(0.2, 0.9), mixup_alpha=0),
}


KINDS = [(e, m) for e in ERASINGS for m in MIXINGS if not e == m == "none"]


def delivered(batches, augmentation, seed=3, device="cpu", **options):
    torch.manual_seed(seed)
    options = {"mean": MEAN, "std": STD, **options}
    with DevicePrefetcher(batches, device, **options) as delivery:
        delivery._delivery.augment(augmentation)
        return [list(batch) for batch in delivery]


def batches_of(count, batch, height, width, channels=3):
    labels = torch.arange(count * batch).remainder(CLASSES).view(count, batch)
    images = random_images(count + batch, count, batch, channels, height, width)
    return [[images[i], labels[i]] for i in range(count)]
