"""FastLoader's native path."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from fastloader import FastLoader
from fastloader import transforms as T
from fastloader.cli.bench.scenarios import MEAN, SIZE, STD, Settings, stages
from fastloader.cli.bench.scenarios.worker_processes import Batches
from fastloader.datasets import ImageFolder

CROPS = [T.RandomResizedCrop(SIZE), T.RandomHorizontalFlip()]


def versions() -> dict[str, str]:
    return {**stages.versions(), "torch": torch.__version__}


def uint8(settings: Settings) -> Callable[[], Iterator[int]]:
    return _loader(settings, CROPS)


def float32(settings: Settings) -> Callable[[], Iterator[int]]:
    return _loader(settings, [*CROPS, T.ToTensor(), T.Normalize(MEAN, STD)])


def on_device(settings: Settings) -> Callable[[], Batches]:
    loader = _made(
        settings,
        CROPS,
        device=settings.device,
        mean=MEAN,
        std=STD,
        dtype=torch.bfloat16,
        channels_last=True,
    )
    return lambda: iter(loader)


def _loader(settings: Settings, steps: list[Any]) -> Callable[[], Iterator[int]]:
    loader = _made(settings, steps)
    return lambda: (len(labels) for _images, labels in loader)


def _made(settings: Settings, steps: list[Any], **delivery: Any) -> FastLoader[Any]:
    loader: FastLoader[Any] = FastLoader(
        ImageFolder(settings.root, T.Compose(steps)),
        batch_size=settings.batch_size,
        shuffle=True,
        num_workers=settings.threads,
        **delivery,
    )
    if "native" not in (plan := str(loader.plan())):
        raise RuntimeError(f"this is not the native path: {plan}")
    return loader
