"""What is compared: one scenario per loader, each run in its own process.

A scenario is a function ``make(settings)`` in a module of its peer's name. It constructs the loader
and returns a function that starts an epoch: an iterator that yields each batch's number of pictures.
With a device, loaders yield the batches, (images, labels), as they lie in its memory.
Importing the module imports the peer, so what is missing shows there and nowhere else. Here and in the
tables of what is compared (``crops.py``, ``recipes.py``, ``places.py``) is the standard library alone.
"""

from __future__ import annotations

import dataclasses
import math
import random
from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

SIZE = 224
MEAN = (0.485, 0.456, 0.406)
STD = (0.229, 0.224, 0.225)
# Who makes the pictures.
NATIVE = "native"
ENCODED = "on the decode threads"  # what a dataset leaves encoded
PYTHON = "in Python"
EVERY = "all"  # in the place of names

Entry = TypeVar("Entry")


def random_box(width: int, height: int) -> tuple[int, int, int, int]:
    """(left, top, width, height), drawn as torchvision's RandomResizedCrop does."""
    for _ in range(10):
        area = width * height * random.uniform(0.08, 1)
        aspect = math.exp(random.uniform(math.log(3 / 4), math.log(4 / 3)))
        w, h = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
        if 0 < w <= width and 0 < h <= height:
            return random.randint(0, width - w), random.randint(0, height - h), w, h
    w, h = min(width, round(height * 4 / 3)), min(height, round(width * 4 / 3))
    return (width - w) // 2, (height - h) // 2, w, h


@dataclasses.dataclass(frozen=True)
class Settings:
    """What every scenario is told. ``root`` is a folder of class folders with JPEGs."""

    root: str
    work: str  # an empty folder that the scenario may fill
    threads: int  # or worker processes
    batch_size: int
    device: str | None = None  # None: batches stay where the loader makes them
    recipe: str = ""  # which, of those in recipes.py
    mongodb: str = ""  # the URI of the server and database that have the pictures
    collection: str = ""  # in which of its collections
    processor: int | None = None  # on which those run who ask that server

    def samples(self) -> list[tuple[str, int]]:
        """(path, class) in torchvision's order."""
        folders = sorted(folder for folder in Path(self.root).iterdir() if folder.is_dir())
        return [
            (str(path), number)
            for number, folder in enumerate(folders)
            for path in sorted(folder.iterdir())
        ]


@dataclasses.dataclass(frozen=True)
class Scenario:
    label: str
    peer: str  # what --python and --only call it
    module: str
    function: str
    output: str = ""  # of the loaders
    remark: str = ""
    # Batches to take before the clock starts: those that are made ahead between epochs.
    lead: int = 0
    threads: int | None = None  # whatever --threads says


def with_threads(scenario: Scenario, count: int) -> Scenario:
    label = f"{scenario.label}, {count} thread{'s' if count > 1 else ''}"
    return dataclasses.replace(scenario, label=label, threads=count)


@dataclasses.dataclass(frozen=True)
class Row:
    """Says how many times as fast ``fast`` is as ``slow``. ``name`` is what results and the documents'
    figures call it, ``what`` what tables and plots do. ``at_least`` is what is promised; None: there is
    no promise, and the ratio stands beside the others."""

    name: str
    what: str
    fast: str
    slow: str
    at_least: float | None = None


def named(table: Mapping[str, Entry], names: list[str]) -> dict[str, Entry]:
    """The entries of these names, in the table's order."""
    return {name: each for name, each in table.items() if {name, EVERY} & set(names)}
