"""torchvision's own JPEG decoder and its tensor transforms, uint8 throughout."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
import torchvision
from torch.utils.data import Dataset
from torchvision.io import ImageReadMode, decode_image, read_file
from torchvision.transforms import v2

from benchmarks.peers.scenarios import SIZE, Settings, worker_processes

# Its binary may be missing or of another torch, and torchvision only says so when it is called.
if not hasattr(torch.ops.image, "decode_image"):
    raise ImportError("torchvision's image library (image.so) cannot be loaded here")


def versions() -> dict[str, str]:
    return {"torchvision": torchvision.__version__, "torch": torch.__version__}


class Pictures(Dataset[tuple[torch.Tensor, int]]):
    def __init__(self, samples: list[tuple[str, int]]) -> None:
        self.samples = samples
        self.transform = v2.Compose(
            [v2.RandomResizedCrop(SIZE, antialias=True), v2.RandomHorizontalFlip()]
        )

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        path, label = self.samples[index]
        return self.transform(decode_image(read_file(path), ImageReadMode.RGB)), label


def loader(settings: Settings) -> Callable[[], Iterator[int]]:
    return worker_processes.epochs(Pictures(settings.samples()), settings)


def on_device(settings: Settings) -> Callable[[], worker_processes.Batches]:
    return worker_processes.on_device(Pictures(settings.samples()), settings)
