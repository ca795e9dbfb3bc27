"""A dataset of the user's. For FastLoader its pictures stay encoded; for DataLoader it opens each with
Pillow, once for all views. The transforms are torchvision's on both sides."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from PIL import Image
from torch.utils.data import Dataset

from fastloader import EncodedImage
from fastloader.cli.bench.scenarios import SIZE, Settings
from fastloader.cli.bench.scenarios.recipes import loaders
from fastloader.cli.bench.scenarios.recipes.torchvision import (
    CROPS,
    FLOATS,
    SIMCLR,
    torchvision,
    versions,
)

__all__ = ["dataloader", "fastloader", "fastloader_python", "versions"]

T = torchvision.transforms
SMALL = 96
# Of DINO's script, main_dino.py.
FLIP_AND_JITTER = [
    T.RandomHorizontalFlip(),
    T.RandomApply([T.ColorJitter(0.4, 0.4, 0.2, 0.1)], p=0.8),
    T.RandomGrayscale(p=0.2),
]
BICUBIC = T.InterpolationMode.BICUBIC


def dino(size: int, scale: tuple[float, float], blur: float, solarize: float = 0.0) -> Any:
    """A crop of DINO, blurred and solarized with these chances. The script blurs with Pillow. Here it is
    torchvision's blur, with the kernel of DINOv2."""
    return T.Compose(
        [
            T.RandomResizedCrop(size, scale, interpolation=BICUBIC),
            *FLIP_AND_JITTER,
            T.RandomApply([T.GaussianBlur(9, sigma=(0.1, 2.0))], p=blur),
            *([T.RandomSolarize(128, p=solarize)] if solarize else []),
            *FLOATS,
        ]
    )


VIEWS: dict[str, list[Any]] = {
    "encoded": [T.Compose([*CROPS, *FLOATS])],
    "simclr": [T.Compose([*CROPS, *SIMCLR, *FLOATS])] * 2,
    "dino": [
        dino(SIZE, (0.4, 1.0), blur=1.0),
        dino(SIZE, (0.4, 1.0), blur=0.1, solarize=0.2),
        *[dino(SMALL, (0.05, 0.4), blur=0.5)] * 8,
    ],
}


class Pictures(Dataset[Any]):
    """A view for each transform, in a list if they are several, and the class."""

    def __init__(self, settings: Settings) -> None:
        self.samples = settings.samples()
        self.transforms: list[Callable[[Any], Any]] = VIEWS[settings.recipe]

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> Any:
        path, label = self.samples[index]
        views = self.views(path)
        return (views if len(views) > 1 else views[0]), label

    def views(self, path: str) -> list[Any]:
        raise NotImplementedError


class Opened(Pictures):
    def views(self, path: str) -> list[Any]:
        picture = Image.open(path).convert("RGB")
        return [transform(picture) for transform in self.transforms]


class Encoded(Pictures):
    def views(self, path: str) -> list[Any]:
        return [EncodedImage(path, transform) for transform in self.transforms]


def fastloader(settings: Settings) -> loaders.Epochs:
    return loaders.fastloader(Encoded(settings), settings)


def fastloader_python(settings: Settings) -> loaders.Epochs:
    return loaders.fastloader(Encoded(settings), settings, native=False)


def dataloader(settings: Settings) -> loaders.Epochs:
    return loaders.dataloader(Opened(settings), settings)
