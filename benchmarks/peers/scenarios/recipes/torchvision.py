"""torchvision's ImageFolder and transforms, in FastLoader and in DataLoader: one loader changed for the
other, and nothing else."""

from __future__ import annotations

from typing import Any

import PIL
import torch

from benchmarks.peers.scenarios import MEAN, SIZE, STD, Settings
from benchmarks.peers.scenarios.recipes import import_torchvision, loaders

torchvision = import_torchvision()

from torchvision import transforms as T  # noqa: E402 - only now can it be imported everywhere
from torchvision.datasets import ImageFolder  # noqa: E402


class OwnStep:
    """What nobody knows, and costs next to nothing."""

    def __call__(self, picture: Any) -> Any:
        return picture


def crops(library: Any) -> list[Any]:
    return [library.RandomResizedCrop(SIZE), library.RandomHorizontalFlip()]


def simclr(library: Any) -> list[Any]:
    """With the chances and factors of SimCLR's paper, for pictures of 224 pixels."""
    return [
        library.RandomApply([library.ColorJitter(0.8, 0.8, 0.8, 0.2)], p=0.8),
        library.RandomGrayscale(p=0.2),
        library.RandomApply([library.GaussianBlur(23, sigma=(0.1, 2.0))], p=0.5),
    ]


def chains(library: Any, floats: list[Any]) -> dict[str, list[Any]]:
    """The steps of each recipe, of torchvision.transforms or of its v2, which has the same names.
    ``floats``: the last ones, from pixels to normalised floats."""
    first = crops(library)
    return {
        "trivial-augment": [*first, library.TrivialAugmentWide(), *floats],
        # As in torchvision's reference script.
        "trivial-augment-erasing": [
            *first,
            library.TrivialAugmentWide(),
            *floats,
            library.RandomErasing(p=0.1),
        ],
        "auto-augment": [*first, library.AutoAugment(), *floats],
        "rand-augment": [*first, library.RandAugment(), *floats],
        "simclr-view": [*first, *simclr(library), *floats],
        "crop": [*first, library.PILToTensor()],
        "crop-and-own-step": [*first, OwnStep(), *floats],
    }


FLOATS = [T.ToTensor(), T.Normalize(MEAN, STD)]
CHAINS = chains(T, FLOATS)


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
