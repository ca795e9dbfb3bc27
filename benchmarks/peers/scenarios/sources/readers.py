"""What the contenders that read with FastLoader share."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.peers.scenarios import NATIVE, SIZE, Settings
from benchmarks.peers.scenarios.recipes.loaders import Epochs, options
from fastloader import FastLoader
from fastloader import transforms as T

CHAIN = T.Compose([T.RandomResizedCrop(SIZE), T.RandomHorizontalFlip()])


def natively(dataset: Any, settings: Settings) -> Epochs:
    """FastLoader over a dataset that its decode threads read by themselves."""
    confine_to_threads(settings)
    loader: FastLoader[Any] = FastLoader(dataset, **options(settings))
    return Epochs(loader, loader, NATIVE)


def confine_to_threads(settings: Settings) -> None:
    """Has this process run on as many processors as there are threads, as all readers that are compared
    do. Where workers fetch what is decoded, FastLoader has a decode thread for each processor."""
    if settings.threads and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: settings.threads])


def copied(settings: Settings, name: str, write: Callable[[Path], None]) -> Path:
    """The copy of the pictures of this name, a file or a folder, which ``write`` makes if there is none.
    One that was begun and not ended does not count."""
    path = Path(settings.work, name)
    if not path.exists():
        with tempfile.TemporaryDirectory(dir=settings.work) as unfinished:
            write(Path(unfinished, name))
            os.rename(Path(unfinished, name), path)
    return path
