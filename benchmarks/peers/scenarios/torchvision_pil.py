"""What most training scripts run."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import PIL
import torch
import torchvision
from torchvision import transforms as T
from torchvision.datasets import ImageFolder

from benchmarks.peers.scenarios import MEAN, SIZE, STD, Settings, worker_processes


def versions() -> dict[str, str]:
    return {
        "torchvision": torchvision.__version__,
        "pillow": PIL.__version__,
        "torch": torch.__version__,
    }


def loader(settings: Settings) -> Callable[[], Iterator[int]]:
    return worker_processes.epochs(_pictures(settings), settings)


def on_device(settings: Settings) -> Callable[[], worker_processes.Batches]:
    return worker_processes.on_device(_pictures(settings), settings)


def _pictures(settings: Settings) -> ImageFolder:
    steps = [
        T.RandomResizedCrop(SIZE),
        T.RandomHorizontalFlip(),
        T.ToTensor(),
        T.Normalize(MEAN, STD),
    ]
    return ImageFolder(settings.root, T.Compose(steps))
