"""Whether both loaders make the same pixels of the same pictures."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import torch
from torch.utils.data import DataLoader, Subset

from fastloader import FastLoader, transforms
from fastloader.datasets import ImageFolder


@dataclasses.dataclass(frozen=True)
class Comparison:
    """What came of the same pictures through both loaders, without random steps."""

    pictures: int
    equal: int  # of those, to the bit
    native: bool  # whether FastLoader's went another way than DataLoader's


def compare_pixels(folder: Path, size: int, at_most: int = 64) -> Comparison:
    """Resizes and crops some pictures of ``folder`` with both loaders."""
    chain = transforms.Compose(
        [transforms.Resize(size * 8 // 7), transforms.CenterCrop(size), transforms.PILToTensor()]
    )
    dataset = ImageFolder(folder, chain, allow_empty=True)
    step = max(1, len(dataset) // at_most)
    some = Subset(dataset, range(0, len(dataset), step)[:at_most])
    with FastLoader(some, len(some)) as loader:
        native = loader.plan().startswith("native images")
        fast = next(iter(loader))[0]
        plain = next(iter(DataLoader(some, len(some))))[0]
        equal = sum(torch.equal(one, other) for one, other in zip(fast, plain))
    return Comparison(len(some), equal, native)
