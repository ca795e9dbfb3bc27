"""torch's DataLoader over a dataset as users write it with Pillow alone. Also Pillow-SIMD's."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import numpy as np
import PIL
import torch
from PIL import Image
from torch.utils.data import Dataset

from benchmarks.peers.scenarios import SIZE, Settings, random_box, worker_processes


def versions() -> dict[str, str]:
    from PIL import features

    return {
        "pillow": PIL.__version__,
        "torch": torch.__version__,
        "libjpeg-turbo": str(features.version("libjpeg_turbo")),
    }


class Pictures(Dataset[tuple[torch.Tensor, int]]):
    """torchvision's RandomResizedCrop and RandomHorizontalFlip without torchvision."""

    def __init__(self, samples: list[tuple[str, int]]) -> None:
        self.samples = samples

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        path, label = self.samples[index]
        with open(path, "rb") as file:
            image = Image.open(file).convert("RGB")
        return cropped(image), label


def cropped(image: Image.Image) -> torch.Tensor:
    """A random crop of 224 pixels, flipped half of the time: uint8, (3, 224, 224)."""
    left, top, width, height = random_box(*image.size)
    image = image.crop((left, top, left + width, top + height))
    image = image.resize((SIZE, SIZE), Image.Resampling.BILINEAR)
    if random.random() < 0.5:
        image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    return torch.from_numpy(np.array(image)).permute(2, 0, 1)


def loader(settings: Settings) -> Callable[[], Iterator[int]]:
    return worker_processes.epochs(Pictures(settings.samples()), settings)


def on_device(settings: Settings) -> Callable[[], worker_processes.Batches]:
    return worker_processes.on_device(Pictures(settings.samples()), settings)


def resize(settings: Settings) -> Callable[[], Iterator[int]]:
    pixels = np.random.default_rng(0).integers(0, 256, (300, 340, 3), dtype=np.uint8)
    image = Image.fromarray(pixels)

    def epoch() -> Iterator[int]:
        for _ in range(20):
            for _ in range(20):
                image.resize((SIZE, SIZE), Image.Resampling.BILINEAR)
            yield 20

    return epoch
