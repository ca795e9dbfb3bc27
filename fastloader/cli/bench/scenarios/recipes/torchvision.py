"""torchvision's ImageFolder and transforms, in FastLoader and in DataLoader: one loader changed for the
other, and nothing else."""

from __future__ import annotations

from typing import Any

import PIL
import torch

from fastloader.cli.bench.scenarios import MEAN, SIZE, STD, Settings
from fastloader.cli.bench.scenarios.recipes import loaders
from fastloader.cli.bench.scenarios.recipes.imports import import_torchvision

torchvision = import_torchvision()

from torchvision import transforms as T  # noqa: E402 - only now can it be imported everywhere
from torchvision.datasets import ImageFolder  # noqa: E402

CROPS = [T.RandomResizedCrop(SIZE), T.RandomHorizontalFlip()]
FLOATS = [T.ToTensor(), T.Normalize(MEAN, STD)]
# The chances and factors of SimCLR's paper, for pictures of 224 pixels.
SIMCLR = [
    T.RandomApply([T.ColorJitter(0.8, 0.8, 0.8, 0.2)], p=0.8),
    T.RandomGrayscale(p=0.2),
    T.RandomApply([T.GaussianBlur(23, sigma=(0.1, 2.0))], p=0.5),
]


class OwnStep:
    """What nobody knows, and costs next to nothing."""

    def __call__(self, picture: Any) -> Any:
        return picture


CHAINS: dict[str, list[Any]] = {
    "trivial-augment": [*CROPS, T.TrivialAugmentWide(), *FLOATS],
    # As in torchvision's reference script.
    "trivial-augment-erasing": [*CROPS, T.TrivialAugmentWide(), *FLOATS, T.RandomErasing(p=0.1)],
    "auto-augment": [*CROPS, T.AutoAugment(), *FLOATS],
    "rand-augment": [*CROPS, T.RandAugment(), *FLOATS],
    "simclr-view": [*CROPS, *SIMCLR, *FLOATS],
    "crop": [*CROPS, T.PILToTensor()],
    "crop-and-own-step": [*CROPS, OwnStep(), *FLOATS],
}


def versions() -> dict[str, str]:
    return {
        "torchvision": torchvision.__version__,
        "pillow": PIL.__version__,
        "torch": torch.__version__,
    }


def fastloader(settings: Settings) -> loaders.Epochs:
    return loaders.fastloader(_dataset(settings), settings)


def fastloader_python(settings: Settings) -> loaders.Epochs:
    return loaders.fastloader(_dataset(settings), settings, native=False)


def dataloader(settings: Settings) -> loaders.Epochs:
    return loaders.dataloader(_dataset(settings), settings)


def _dataset(settings: Settings) -> ImageFolder:
    return ImageFolder(settings.root, T.Compose(CHAINS[settings.recipe]))
