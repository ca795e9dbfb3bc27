"""What most training scripts run."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import PIL
import torch
import torchvision
from torchvision import transforms as T
from torchvision.datasets import ImageFolder

from fastloader.bench.scenarios import MEAN, SIZE, STD, Settings
from fastloader.bench.scenarios.worker_processes import epochs


def versions() -> dict[str, str]:
    return {
        "torchvision": torchvision.__version__,
        "pillow": PIL.__version__,
        "torch": torch.__version__,
    }


def loader(settings: Settings) -> Callable[[], Iterator[int]]:
    steps = [
        T.RandomResizedCrop(SIZE),
        T.RandomHorizontalFlip(),
        T.ToTensor(),
        T.Normalize(MEAN, STD),
    ]
    return epochs(ImageFolder(settings.root, T.Compose(steps)), settings)
