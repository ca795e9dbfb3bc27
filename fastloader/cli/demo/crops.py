"""What FastLoader cut from some pictures, epoch by epoch, for ``fastloader demo`` to draw."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from fastloader import FastLoader
from fastloader.cli.demo.training import make_dataset
from fastloader.transforms._pillow import regular_file

EPOCHS = 3
_PICTURES = 6
_LONGEST_SIDE = 400  # of an original as it is shown

Pixels = NDArray[np.uint8]
Box = tuple[float, float, float, float]  # left, top, width, height


@dataclasses.dataclass(frozen=True)
class Crop:
    """What became of a picture in one epoch. ``box`` is in the pixels of the original as it is shown;
    None if FastLoader did not take its native path."""

    pixels: Pixels
    box: Box | None
    mirrored: bool


@dataclasses.dataclass(frozen=True)
class Cropped:
    """A picture, its class, and its crops by epoch."""

    original: Pixels
    name: str
    crops: list[Crop]


def crop_some(folder: Path, size: int, seed: int) -> list[Cropped]:
    """Takes pictures from all over ``folder`` in a batch, once in each of `EPOCHS`."""
    dataset = make_dataset(folder, size)
    count = min(_PICTURES, len(dataset))
    chosen = [number * len(dataset) // count for number in range(count)]
    found = []
    for index in chosen:
        path, label = dataset.samples[index]
        with regular_file(path) as opened, Image.open(opened) as file:
            whole = file.width
            shown = file.convert("RGB")
            shown.thumbnail((_LONGEST_SIDE, _LONGEST_SIDE))
        made = Cropped(np.asarray(shown), dataset.classes[label], [])
        found.append((index, shown.width / whole, made))

    generator = torch.Generator().manual_seed(seed)
    with FastLoader(dataset, count, sampler=chosen, num_workers=1, generator=generator) as loader:
        for _ in range(EPOCHS):
            images, _ = next(iter(loader))
            for (index, scale, picture), pixels in zip(found, images):
                box, mirrored = _replayed(loader, index, scale)
                kept = pixels.permute(1, 2, 0).contiguous().numpy()
                picture.crops.append(Crop(kept, box, mirrored))
    return [picture for _, _, picture in found]


def _replayed(loader: FastLoader[object], index: int, scale: float) -> tuple[Box | None, bool]:
    try:
        drawn = loader.replay(index)
    except ValueError:  # the Python path draws where nobody sees it
        return None, False
    left, top, width, height = (scale * side for side in drawn["box"])
    return (left, top, width, height), bool(drawn["hflip"])
