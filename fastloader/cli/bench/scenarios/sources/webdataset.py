"""WebDataset over the tar shards, with torch's DataLoader, as its documentation has it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib.metadata import version

import PIL
import torch
import webdataset
from torch.utils.data import DataLoader, default_collate

from fastloader.cli.bench.scenarios import Settings
from fastloader.cli.bench.scenarios.pillow import cropped
from fastloader.cli.bench.scenarios.sources.tar import shards

BUFFER = 1000  # samples


def versions() -> dict[str, str]:
    return {
        "webdataset": version("webdataset"),
        "pillow": PIL.__version__,
        "torch": torch.__version__,
    }


def dataloader(settings: Settings) -> Callable[[], Iterator[int]]:
    paths = shards(settings)
    dataset = (
        webdataset.WebDataset(paths, shardshuffle=len(paths))
        .shuffle(BUFFER)
        .decode("pilrgb")
        .to_tuple("jpg", "cls")
        .map_tuple(cropped, int)
        .batched(settings.batch_size, collation_fn=default_collate)
    )
    loader = DataLoader(
        dataset,
        batch_size=None,  # workers make whole batches
        num_workers=settings.threads,
        persistent_workers=settings.threads > 0,
    )
    return lambda: (len(labels) for _images, labels in loader)
