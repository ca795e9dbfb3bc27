"""A folder of pictures as a map-style dataset, decoded with Pillow, the way training scripts do it."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch.utils.data import Dataset

SUFFIXES = {".jpg", ".jpeg", ".png", ".webp", ".bmp", ".ppm", ".tif", ".tiff", ".gif"}


class FolderDataset(Dataset[tuple[torch.Tensor, int]]):
    """(uint8 picture of shape (3, size, size), class) for every picture below ``folder``.

    The class is the first folder below ``folder``, as in torchvision's ImageFolder, however deep the
    picture lies; pictures directly in ``folder`` are a class of their own. Each picture is cropped at
    random (8% to 100% of the area, as torchvision's RandomResizedCrop) and mirrored half the time,
    drawing from torch's generator.

    Raises:
        FileNotFoundError: ``folder`` is no folder, or holds no picture.
    """

    def __init__(self, folder: Path, size: int, smallest_crop: float = 0.08) -> None:
        self.samples = list(find_pictures(folder))
        self.classes = sorted({name for _, name in self.samples})
        self._numbers = {name: number for number, name in enumerate(self.classes)}
        self._size = size
        self._smallest_crop = smallest_crop

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        path, name = self.samples[index]
        try:
            with Image.open(path) as file:
                picture = file.convert("RGB")
        except (OSError, ValueError, SyntaxError) as error:
            raise OSError(f"cannot read the picture {path}: {error}") from error
        picture = picture.resize(
            (self._size, self._size), Image.Resampling.BILINEAR, box=self._random_box(picture)
        )
        if torch.rand(()) < 0.5:
            picture = picture.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        # A copy: Pillow's memory is read-only, which torch warns about.
        pixels = torch.from_numpy(np.array(picture))
        return pixels.permute(2, 0, 1), self._numbers[name]

    def _random_box(self, picture: Image.Image) -> tuple[float, float, float, float]:
        width, height = picture.size
        shares = torch.rand(4, dtype=torch.float64).tolist()
        area = width * height * (self._smallest_crop + shares[0] * (1 - self._smallest_crop))
        aspect = math.exp(math.log(3 / 4) + shares[1] * math.log(16 / 9))
        wide = min(width, max(1, round(math.sqrt(area * aspect))))
        high = min(height, max(1, round(math.sqrt(area / aspect))))
        left, top = round(shares[2] * (width - wide)), round(shares[3] * (height - high))
        return left, top, left + wide, top + high


def find_pictures(folder: Path) -> Iterator[tuple[str, str]]:
    """(path, class) of every picture below ``folder``, in the same order on every machine."""
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder} is not a folder")
    found = False
    for parent, folders, files in os.walk(folder, followlinks=True):
        folders.sort()
        inside = Path(parent).relative_to(folder).parts
        for file in sorted(files):
            if os.path.splitext(file)[1].lower() in SUFFIXES and not file.startswith("."):
                found = True
                yield os.path.join(parent, file), inside[0] if inside else folder.name
    if not found:
        raise FileNotFoundError(
            f"there is no picture in {folder} or below it; looked for {', '.join(sorted(SUFFIXES))}"
        )
