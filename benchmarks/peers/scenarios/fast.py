"""FastLoader's native path."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from benchmarks.peers.scenarios import MEAN, SIZE, STD, Settings, stages
from benchmarks.peers.scenarios.worker_processes import Batches
from fastloader import FastLoader
from fastloader import transforms as T
from fastloader._core.machine import extension
from fastloader.cli.__main__ import main
from fastloader.datasets import ImageFolder

CROPS = [T.RandomResizedCrop(SIZE), T.RandomHorizontalFlip()]


def versions() -> dict[str, str]:
    return {**stages.versions(), "torch": torch.__version__}


def uint8(settings: Settings) -> Callable[[], Iterator[int]]:
    return _loader(settings, CROPS)


def indexed(settings: Settings) -> Callable[[], Iterator[int]]:
    if extension.load() is None:
        raise ImportError("fastloader's native module is not in use")
    path = Path(f"{settings.root}.fastloader-index")
    if not path.exists():  # new loaders find it made
        with contextlib.redirect_stdout(sys.stderr):  # the runner reads the other one
            if main(["index", settings.root, "--out", str(path)]) != 0:
                raise RuntimeError(f"fastloader index {settings.root} failed")
    return _loader(settings, CROPS, path)


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


def _loader(
    settings: Settings, steps: list[Any], index: Path | None = None
) -> Callable[[], Iterator[int]]:
    loader = _made(settings, steps, index)
    return lambda: (len(labels) for _images, labels in loader)


def _made(
    settings: Settings, steps: list[Any], index: Path | None = None, **delivery: Any
) -> FastLoader[Any]:
    loader: FastLoader[Any] = FastLoader(
        ImageFolder(settings.root, T.Compose(steps), index=index),
        batch_size=settings.batch_size,
        shuffle=True,
        num_workers=settings.threads,
        **delivery,
    )
    if "native" not in (plan := str(loader.plan())):
        raise RuntimeError(f"this is not the native path: {plan}")
    return loader
