"""The recipes of torchvision.py and encoded.py in DataLoader with torchvision v2: its own decoder gives
tensors, and the transforms of v2 change them. Its binary is needed for that."""

from __future__ import annotations

from typing import Any

import torch
from torchvision.io import ImageReadMode, decode_image, read_file
from torchvision.transforms import v2

from benchmarks.peers.scenarios import MEAN, STD, Settings
from benchmarks.peers.scenarios.recipes import encoded, loaders
from benchmarks.peers.scenarios.recipes.torchvision import chains
from benchmarks.peers.scenarios.torchvision_v2 import versions

__all__ = ["dataloader", "versions"]

FLOATS = [v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, STD)]
VIEWS: dict[str, list[Any]] = {
    **{name: [v2.Compose(steps)] for name, steps in chains(v2, FLOATS).items()},
    **encoded.all_views(v2, FLOATS),
}


class Decoded(encoded.Pictures):
    def views(self, path: str) -> list[Any]:
        picture = decode_image(read_file(path), ImageReadMode.RGB)
        return [transform(picture) for transform in VIEWS[self.recipe]]


def dataloader(settings: Settings) -> loaders.Epochs:
    return loaders.dataloader(Decoded(settings), settings)
