"""WebDataset over the tar shards, with torch's DataLoader, as its documentation has it."""

from __future__ import annotations

from importlib.metadata import version

import PIL
import torch
import webdataset
from torch.utils.data import DataLoader, default_collate

from benchmarks.peers.scenarios import Settings
from benchmarks.peers.scenarios.pillow import cropped
from benchmarks.peers.scenarios.recipes.loaders import Epochs, options
from benchmarks.peers.scenarios.sources.tar import shards

BUFFER = 1000  # samples


def versions() -> dict[str, str]:
    return {
        "webdataset": version("webdataset"),
        "pillow": PIL.__version__,
        "torch": torch.__version__,
    }


def dataloader(settings: Settings) -> Epochs:
    paths = shards(settings)
    dataset = (
        webdataset.WebDataset(paths, shardshuffle=len(paths))
        .shuffle(BUFFER)
        .decode("pilrgb")
        .to_tuple("jpg", "cls")
        .map_tuple(cropped, int)
        .batched(settings.batch_size, collation_fn=default_collate)
    )
    # Its workers make whole batches.
    return Epochs(DataLoader(dataset, **{**options(settings), "batch_size": None, "shuffle": None}))
