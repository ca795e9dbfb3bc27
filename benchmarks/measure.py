"""What the scripts here share: fastloader.cli.bench's measuring, made-up photographs, the results."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from fastloader.cli.bench import measure
from fastloader.cli.bench.measure import Timing, interleaved, machine, ratio, spread

__all__ = [
    "RESULTS",
    "Timing",
    "interleaved",
    "machine",
    "make_photographs",
    "ratio",
    "spread",
    "write",
]

RESULTS = Path(__file__).parent / "results"


def write(name: str, results: dict[str, Any], folder: Path = RESULTS) -> Path:
    return measure.write(name, results, folder)


def make_photographs(
    folder: Path, count: int, height: int, width: int, rng: np.random.Generator
) -> None:
    """Smooth pictures with some noise: they decode about as photographs do."""
    folder.mkdir(parents=True)
    y, x = np.mgrid[0:height, 0:width]
    for number in range(count):
        planes = [127 + 90 * np.sin(x / rng.uniform(9, 40) + y / 17) for _ in range(3)]
        image = np.stack(planes, -1) + rng.normal(0, 8, (height, width, 3))
        picture = Image.fromarray(image.clip(0, 255).astype(np.uint8))
        picture.save(folder / f"{number:05}.jpg", quality=90)
