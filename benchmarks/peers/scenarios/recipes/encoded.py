"""A dataset of the user's. For FastLoader its pictures stay encoded; for DataLoader it opens each with
Pillow, once for all views. The transforms are torchvision's on both sides."""

from __future__ import annotations

from typing import Any

from PIL import Image
from torch.utils.data import Dataset

from benchmarks.peers.scenarios import SIZE, Settings
from benchmarks.peers.scenarios.recipes import loaders
from benchmarks.peers.scenarios.recipes.torchvision import (
    FLOATS,
    crops,
    simclr,
    torchvision,
    versions,
)
from fastloader import EncodedImage

__all__ = ["dataloader", "fastloader", "fastloader_python", "versions"]

SMALL = 96


def dino(library: Any, floats: list[Any]) -> list[Any]:
    """The views of DINO's script, main_dino.py. The script blurs with Pillow. Here it is torchvision's
    blur, with the kernel of DINOv2."""
    flip_and_jitter = [
        library.RandomHorizontalFlip(),
        library.RandomApply([library.ColorJitter(0.4, 0.4, 0.2, 0.1)], p=0.8),
        library.RandomGrayscale(p=0.2),
    ]

    def view(size: int, scale: tuple[float, float], blur: float, solarize: float = 0.0) -> Any:
        """A crop, blurred and solarized with these chances."""
        return library.Compose(
            [
                library.RandomResizedCrop(size, scale, interpolation=BICUBIC),
                *flip_and_jitter,
                library.RandomApply([library.GaussianBlur(9, sigma=(0.1, 2.0))], p=blur),
                *([library.RandomSolarize(128, p=solarize)] if solarize else []),
                *floats,
            ]
        )

    return [
        view(SIZE, (0.4, 1.0), blur=1.0),
        view(SIZE, (0.4, 1.0), blur=0.1, solarize=0.2),
        *[view(SMALL, (0.05, 0.4), blur=0.5)] * 8,
    ]


def all_views(library: Any, floats: list[Any]) -> dict[str, list[Any]]:
    """The transforms of each recipe's views, of torchvision.transforms or of its v2."""
    first = crops(library)
    return {
        "encoded": [library.Compose([*first, *floats])],
        "simclr": [library.Compose([*first, *simclr(library), *floats])] * 2,
        "dino": dino(library, floats),
    }


BICUBIC = torchvision.transforms.InterpolationMode.BICUBIC
VIEWS = all_views(torchvision.transforms, FLOATS)


class Pictures(Dataset[Any]):
    """A view for each transform, in a list if they are several, and the class."""

    def __init__(self, settings: Settings) -> None:
        self.samples = settings.samples()
        self.recipe = settings.recipe

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
        return [transform(picture) for transform in VIEWS[self.recipe]]


class Encoded(Pictures):
    def views(self, path: str) -> list[Any]:
        return [EncodedImage(path, transform) for transform in VIEWS[self.recipe]]


def fastloader(settings: Settings) -> loaders.Epochs:
    return loaders.fastloader(Encoded(settings), settings)


def fastloader_python(settings: Settings) -> loaders.Epochs:
    return loaders.fastloader(Encoded(settings), settings, native=False)


def dataloader(settings: Settings) -> loaders.Epochs:
    return loaders.dataloader(Opened(settings), settings)
