"""timm's create_loader with the same augmentation and nothing more."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import PIL
import timm
import torch
from timm.data import ImageDataset, create_loader

from fastloader.bench.scenarios import MEAN, SIZE, STD, Settings


def versions() -> dict[str, str]:
    return {"timm": timm.__version__, "pillow": PIL.__version__, "torch": torch.__version__}


def loader(settings: Settings) -> Callable[[], Iterator[int]]:
    batches = create_loader(
        ImageDataset(settings.root),
        input_size=(3, SIZE, SIZE),
        batch_size=settings.batch_size,
        is_training=True,
        color_jitter=None,
        interpolation="bilinear",
        mean=MEAN,
        std=STD,
        num_workers=settings.threads,
        use_prefetcher=False,
        device=torch.device("cpu"),
    )
    return lambda: (len(labels) for _images, labels in batches)
