"""timm's create_loader with the same augmentation and nothing more."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import PIL
import timm
import torch
from timm.data import ImageDataset, create_loader

from benchmarks.peers.scenarios import MEAN, SIZE, STD, Settings
from benchmarks.peers.scenarios.worker_processes import Batches


def versions() -> dict[str, str]:
    return {"timm": timm.__version__, "pillow": PIL.__version__, "torch": torch.__version__}


def loader(settings: Settings) -> Callable[[], Iterator[int]]:
    batches = _loader(settings, use_prefetcher=False, device=torch.device("cpu"))
    return lambda: (len(labels) for _images, labels in batches)


def on_device(settings: Settings) -> Callable[[], Batches]:
    device = torch.device(settings.device or "cpu")
    batches = _loader(
        settings,
        use_prefetcher=True,
        device=device,
        img_dtype=torch.bfloat16,
        pin_memory=device.type != "cpu",
    )

    def epoch() -> Batches:
        for images, labels in batches:
            # As timm's own train.py with --channels-last.
            yield images.contiguous(memory_format=torch.channels_last), labels

    return epoch


def _loader(settings: Settings, **delivery: Any) -> Any:
    return create_loader(
        ImageDataset(settings.root),
        input_size=(3, SIZE, SIZE),
        batch_size=settings.batch_size,
        is_training=True,
        color_jitter=None,
        interpolation="bilinear",
        mean=MEAN,
        std=STD,
        num_workers=settings.threads,
        **delivery,
    )
