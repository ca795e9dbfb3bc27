"""Pictures in files: a folder for each class, and a list of them."""

from __future__ import annotations

import csv
from pathlib import Path

import torch

from benchmarks.peers.scenarios import Settings, stages
from benchmarks.peers.scenarios.recipes.loaders import Epochs
from benchmarks.peers.scenarios.sources.readers import CHAIN, copied, natively
from fastloader.datasets import ImageFolder, ListImages


def versions() -> dict[str, str]:
    return {**stages.versions(), "torch": torch.__version__}


def folder(settings: Settings) -> Epochs:
    return natively(ImageFolder(settings.root, CHAIN), settings)


def listed(settings: Settings) -> Epochs:
    def write(path: Path) -> None:
        with path.open("w", newline="") as file:
            csv.writer(file).writerows([("path", "label"), *settings.samples()])

    return natively(ListImages(copied(settings, "list.csv", write), CHAIN), settings)
