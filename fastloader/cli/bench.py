"""Runs ``fastloader bench``: the user's pictures through FastLoader and DataLoader, side by side."""

from __future__ import annotations

import importlib
import statistics
from pathlib import Path
from typing import Any

from torch.utils.data import DataLoader, Subset

from fastloader import FastLoader
from fastloader import transforms as T
from fastloader.cli.tune import Rate, Step, measure_in_turn
from fastloader.datasets import ImageFolder

SIZE = 224
OURS = "FastLoader"
THEIRS = "DataLoader, the same dataset with Pillow"
TORCHVISION = "DataLoader, torchvision's ImageFolder"


def bench(folder: Path, workers: int, rounds: int, batch_size: int, pictures: int) -> None:
    """Prints how fast each loader makes crops of the folder's pictures, round by round.

    Raises:
        TuneError: if a loader fails.
        OSError, ValueError: for a folder without pictures, or an epoch of a single batch.
    """
    if pictures <= batch_size:
        raise ValueError(
            f"an epoch of {pictures} pictures is a single batch of {batch_size}, too few to tell a "
            "rate: give more --pictures or a smaller --batch-size"
        )
    found = ImageFolder(str(folder))
    # From all parts of the folder; one of few pictures gives each as often as that takes.
    indices = [number * len(found) // pictures for number in range(pictures)]
    loaders, missing = _loaders(folder, indices, workers, batch_size)
    rates: dict[str, list[Rate]] = {name: [] for name in loaders}
    turns = []
    for number in range(rounds + 1):
        for name in list(loaders) if number % 2 == 0 else reversed(loaders):
            rates[name].append(Rate())
            turns.append((loaders[name], rates[name][-1]))
    measure_in_turn(turns, [None] * len(turns), str(folder), Step())
    for each in rates.values():
        del each[0]  # it had the files read for the first time, and workers begun
    print(
        f"{folder}: {min(pictures, len(found))} of {len(found)} pictures, {pictures} in an epoch; "
        f"RandomResizedCrop({SIZE}) and flip, batches of {batch_size}, {workers} threads or worker "
        f"processes, medians of {rounds} rounds, in brackets the smallest and the largest.\n"
    )
    print(f"FastLoader's plan: {loaders[OURS].plan()}\n")
    _print_table(rates)
    if missing:
        print(f"\nNot compared: {missing}")
    print(
        "\nOther loaders, training recipes and other places of pictures: python -m benchmarks.peers, in "
        "a checkout of fastloader."
    )
    loaders[OURS].close()


def _loaders(
    folder: Path, indices: list[int], workers: int, batch_size: int
) -> tuple[dict[str, Any], str]:
    """Makes all loaders, and says which one is missing, with the reason. FastLoader is the last: the
    workers of the others are forked before it has threads."""
    options: dict[str, Any] = {"batch_size": batch_size, "shuffle": True, "num_workers": workers}
    plain = {**options, "persistent_workers": True}
    ours = ImageFolder(str(folder), _crops(T))
    loaders: dict[str, Any] = {THEIRS: DataLoader(Subset(ours, indices), **plain)}
    missing = ""
    try:
        torchvision = importlib.import_module("torchvision")
        images = torchvision.datasets.ImageFolder(str(folder), _crops(torchvision.transforms))
        loaders[TORCHVISION] = DataLoader(Subset(images, indices), **plain)
    except Exception as error:  # a broken package raises whatever it likes
        missing = f"torchvision ({type(error).__name__}: {error})"
    loaders[OURS] = FastLoader(Subset(ours, indices), **options)
    return loaders, missing


def _crops(library: Any) -> Any:
    """Makes the transform, of fastloader or of torchvision."""
    return library.Compose(
        [
            library.RandomResizedCrop(SIZE),
            library.RandomHorizontalFlip(),
            library.PILToTensor(),
        ]
    )


def _print_table(rates: dict[str, list[Rate]]) -> None:
    rows = [("loader", "pictures/s", "first batch, ms", "FastLoader is faster by")]
    for name in reversed(rates):
        speeds = [each.per_s for each in rates[name]]
        first = statistics.median(each.first_batch_s for each in rates[name])
        ratios = [
            mine.per_s / theirs.per_s for mine, theirs in zip(rates[OURS], rates[name], strict=True)
        ]
        faster = "" if name == OURS else f"{_spread(ratios, '.2f')}"
        rows.append((name, _spread(speeds, ".0f"), f"{1000 * first:.0f}", faster))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        print(
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        )


def _spread(values: list[float], form: str) -> str:
    return f"{statistics.median(values):{form}} ({min(values):{form}} to {max(values):{form}})"
