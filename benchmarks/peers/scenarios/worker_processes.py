"""torch's DataLoader with worker processes that stay."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils.data import DataLoader

from benchmarks.peers.scenarios import MEAN, STD, Settings

Batches = Iterator[tuple[torch.Tensor, torch.Tensor]]


def epochs(dataset: Any, settings: Settings) -> Callable[[], Iterator[int]]:
    loader = _loader(dataset, settings)
    return lambda: (len(labels) for _images, labels in loader)


def on_device(dataset: Any, settings: Settings) -> Callable[[], Batches]:
    """As torch's documentation has it: pinned by the loader, copied without waiting, normalised on the
    device where the dataset has not done it."""
    assert settings.device is not None
    device = torch.device(settings.device)
    loader = _loader(dataset, settings, pin_memory=device.type != "cpu")

    def epoch() -> Batches:
        batches = iter(loader)  # workers are forked before the device is first used
        mean, std = (
            torch.tensor(each, device=device).view(1, 3, 1, 1) * 255 for each in (MEAN, STD)
        )
        for images, labels in batches:
            images = images.to(device, non_blocking=True)
            labels = labels.to(device, non_blocking=True)
            if images.dtype == torch.uint8:
                images = images.float().sub_(mean).div_(std)
            yield images.to(torch.bfloat16, memory_format=torch.channels_last), labels

    return epoch


def _loader(dataset: Any, settings: Settings, pin_memory: bool = False) -> DataLoader[Any]:
    return DataLoader(
        dataset,
        batch_size=settings.batch_size,
        shuffle=True,
        num_workers=settings.threads,
        persistent_workers=True,
        pin_memory=pin_memory,
    )
