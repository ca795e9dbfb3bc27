"""torchvision's CIFAR10 over files in its format, which hold the bench's photographs at 32x32."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from PIL import Image

from benchmarks.peers.scenarios import Settings
from benchmarks.peers.scenarios.recipes import loaders
from benchmarks.peers.scenarios.recipes.torchvision import FLOATS, torchvision, versions

__all__ = ["dataloader", "fastloader", "fastloader_python", "versions"]

T = torchvision.transforms
EDGE = 32
# A picture of 32x32 is made in no time, and an epoch of 1000 would be over before it has begun. This
# many for each picture of the bench are CIFAR10's 50000 with the default of --pictures.
TIMES = 50


class Cifar(torchvision.datasets.CIFAR10):
    """CIFAR10 without the checksums of its files."""

    train_list: ClassVar = [(name, None) for name, _sum in torchvision.datasets.CIFAR10.train_list]
    test_list: ClassVar[list[Any]] = []
    meta: ClassVar = {**torchvision.datasets.CIFAR10.meta, "md5": None}


def fastloader(settings: Settings) -> loaders.Epochs:
    return loaders.fastloader(_dataset(settings), settings)


def fastloader_python(settings: Settings) -> loaders.Epochs:
    return loaders.fastloader(_dataset(settings), settings, native=False)


def dataloader(settings: Settings) -> loaders.Epochs:
    return loaders.dataloader(_dataset(settings), settings)


def _dataset(settings: Settings) -> Cifar:
    chain = [T.RandomCrop(EDGE, padding=4), T.RandomHorizontalFlip(), *FLOATS]
    meta = Path(settings.work, Cifar.base_folder, Cifar.meta["filename"])
    if not meta.exists():  # the first contender writes them for all
        _write(settings, meta)
    return Cifar(settings.work, transform=T.Compose(chain))


def _write(settings: Settings, meta: Path) -> None:
    meta.parent.mkdir(parents=True, exist_ok=True)
    pixels: dict[Path, Any] = {}
    rows, labels = [], []
    for path, label in settings.samples():
        photograph = Path(path).resolve()
        if photograph not in pixels:
            pixels[photograph] = _row(photograph)
        rows.append(pixels[photograph])
        labels.append(label % 10)
    parts = [name for name, _sum in Cifar.train_list]
    for number, name in enumerate(parts):
        share = np.array_split(np.arange(TIMES * len(rows)), len(parts))[number] % len(rows)
        entry = {
            "data": np.stack([rows[each] for each in share]),
            "labels": [labels[each] for each in share],
        }
        (meta.parent / name).write_bytes(pickle.dumps(entry))
    meta.write_bytes(pickle.dumps({Cifar.meta["key"]: [f"class {number}" for number in range(10)]}))


def _row(photograph: Path) -> Any:
    """The pixels as CIFAR10's files have them: a plane of each colour, one behind the other."""
    with Image.open(photograph) as file:
        small = file.convert("RGB").resize((EDGE, EDGE), Image.Resampling.BOX)
    return np.asarray(small).transpose(2, 0, 1).reshape(-1)
