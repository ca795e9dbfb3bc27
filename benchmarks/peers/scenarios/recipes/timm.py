"""timm's create_loader, and fastloader's of the same name and arguments. Both deliver normalised
float32 batches on the CPU, and both leave out the incomplete batch. Both have a prefetcher, which is
their default: without it timm is slower, since its workers then hand on floats."""

from __future__ import annotations

from typing import Any

import PIL
import torch

from benchmarks.peers.scenarios import SIZE, Settings
from benchmarks.peers.scenarios.recipes import import_torchvision, loaders
from fastloader.compat import timm as ours

import_torchvision()

import timm  # noqa: E402 - it imports torchvision
import timm.data  # noqa: E402

# Those of timm's training script that differ from create_loader's own.
SCRIPT = {"interpolation": "random"}
OPTIONS: dict[str, dict[str, Any]] = {
    "timm-default": {"color_jitter": 0.4},
    "timm-rand": {"auto_augment": "rand-m9-mstd0.5-inc1", "re_prob": 0.25, "re_mode": "pixel"},
}


def versions() -> dict[str, str]:
    return {"timm": timm.__version__, "pillow": PIL.__version__, "torch": torch.__version__}


def fastloader(settings: Settings) -> loaders.Epochs:
    loader = _made(ours, settings)
    return loaders.watched(loader, loader.loader, settings)


def fastloader_python(settings: Settings) -> loaders.Epochs:
    loader = _made(ours, settings)
    loader.loader.native = False
    return loaders.watched(loader, loader.loader, settings, native=False)


def dataloader(settings: Settings) -> loaders.Epochs:
    return loaders.Epochs(_made(timm.data, settings))


def _made(package: Any, settings: Settings) -> Any:
    return package.create_loader(
        package.ImageDataset(settings.root),
        input_size=(3, SIZE, SIZE),
        batch_size=settings.batch_size,
        is_training=True,
        num_workers=settings.threads,
        persistent_workers=settings.threads > 0,
        device=torch.device("cpu"),
        **SCRIPT,
        **OPTIONS[settings.recipe],
    )
