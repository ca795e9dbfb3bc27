"""Pictures in one file of ``fastloader pack``, without the seek indices that a folder does not have."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path

import lmdb

from benchmarks.peers.scenarios import Settings
from benchmarks.peers.scenarios.recipes.loaders import Epochs
from benchmarks.peers.scenarios.sources import folder
from benchmarks.peers.scenarios.sources.readers import CHAIN, copied, natively
from fastloader.cli.__main__ import main
from fastloader.datasets import LMDBDataset


def versions() -> dict[str, str]:
    return {**folder.versions(), "lmdb": lmdb.__version__}


def fastloader(settings: Settings) -> Epochs:
    def write(path: Path) -> None:
        with contextlib.redirect_stdout(sys.stderr):  # the runner reads the other one
            if main(["pack", settings.root, str(path), "--no-index"]) != 0:
                raise RuntimeError(f"fastloader pack {settings.root} failed")

    return natively(LMDBDataset(copied(settings, "set.lmdb", write), CHAIN), settings)
