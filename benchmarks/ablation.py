"""What of the training time is lost to waiting: dataset size x preparation x training x loader.

    python benchmarks/ablation.py [--batches 4 32] [--prepare 5 20 60] [--train 5 20 60] [--threads 2]
        [--work sleep|busy] [--repeats 3] [--out DIR]

A batch takes ``prepare`` ms to make, divided among its samples, and ``train`` ms to use. Making is a
sleep (as if waiting for storage, so that threads scale on any machine) or, with --work busy, work that
keeps the GIL. Training is a sleep, like a GPU's step seen from the CPU. Contenders: a plain loop in
one thread, prefetch_generator's BackgroundGenerator around it (ours, of the same name), DataLoader and
FastLoader with ``threads`` worker processes, FastLoader with as many worker threads. Every epoch
begins with a new iterator, starting its workers included. Lost is the share of an epoch's time that
the loop waits in ``next()``; the ideal loader needs max(prepare / threads, train) for a batch and
loses what that is above ``train``. Rounds are interleaved. Writes ablation.json and ablation.png.

Predicted, asleep, two threads:
- The plain loop loses prepare / (prepare + train), whatever the size.
- BackgroundGenerator loses 1 - train / prepare where preparing takes longer (one thread), else little
  more than its first batch.
- With 32 batches, worker processes of either loader are within 0.1 of the ideal, and equal to each
  other, since a sample costs the same; with 4 batches, starting them (some 30 ms) and the two batches
  made first dominate: 0.3 or more above the ideal where batches are short.
- Worker threads start in under a millisecond: within 0.05 of the ideal for 32 batches, and for 4
  batches better than processes everywhere.

Measured, on two idle cores: as predicted, but where both take 5 ms. There 32 batches lose 0.31
(DataLoader), 0.24 (FastLoader) and 0.07 (threads): an epoch is 160 ms, of which starting processes takes
40 to 70, not 30; and eight sleeps for a batch overshoot, so that 5 ms are 5.6 (which the plain loop's
0.53 shows, too), a tenth of the time that BackgroundGenerator's one thread cannot make up for (0.14).
"""

from __future__ import annotations

import argparse
import functools
import itertools
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
from matplotlib.figure import Figure
from measure import RESULTS, machine, spread, write
from torch.utils.data import DataLoader, Dataset

from fastloader import FastLoader
from fastloader.compat.prefetch_generator import BackgroundGenerator

SAMPLES = 4  # in a batch

Cell = dict[str, Any]


def spend(seconds: float, busy: bool) -> None:
    if not busy:
        time.sleep(seconds)
        return
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass


class Prepared(Dataset[torch.Tensor]):
    def __init__(self, batches: int, prepare: float, busy: bool) -> None:
        self.count = batches * SAMPLES
        self.each, self.busy = prepare / SAMPLES, busy

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> torch.Tensor:
        spend(self.each, self.busy)
        return torch.tensor(index)


def contenders(threads: int) -> dict[str, Callable[[Prepared], Iterable[Any]]]:
    plain = functools.partial(DataLoader, batch_size=SAMPLES)
    fast = functools.partial(FastLoader, batch_size=SAMPLES, num_workers=threads)
    return {
        "plain loop": plain,
        "BackgroundGenerator": lambda dataset: BackgroundGenerator(iter(plain(dataset))),
        "DataLoader": functools.partial(plain, num_workers=threads),
        "FastLoader": fast,
        "FastLoader, threads": functools.partial(fast, worker_backend="thread"),
    }


def lost(make: Callable[[Prepared], Iterable[Any]], dataset: Prepared, train: float) -> float:
    """The share of one epoch's time that the loop waits. Making the iterator is waiting too: with
    DataLoader it starts the workers; and so is the end, which stops them."""
    begun = asked = time.perf_counter()
    batches = iter(make(dataset))
    waited = 0.0
    while True:
        batch = next(batches, None)
        waited += time.perf_counter() - asked
        if batch is None:
            return waited / (time.perf_counter() - begun)
        time.sleep(train)
        asked = time.perf_counter()


def ideal(prepare: float, train: float, threads: int) -> float:
    batch = max(prepare / threads, train)
    return (batch - train) / batch


def cell(batches: int, prepare: float, train: float, arguments: argparse.Namespace) -> Cell:
    dataset = Prepared(batches, prepare / 1e3, arguments.work == "busy")
    made = contenders(arguments.threads)
    shares: dict[str, list[float]] = {name: [] for name in made}
    for number in range(arguments.repeats):
        order = list(made)
        if number % 2:
            order.reverse()
        for name in order:
            shares[name].append(lost(made[name], dataset, train / 1e3))
    return {
        "batches": batches,
        "prepare_ms": prepare,
        "train_ms": train,
        "ideal": ideal(prepare, train, arguments.threads),
        "lost": {name: spread(values) for name, values in shares.items()},
    }


def draw(results: dict[str, Any], file: Path) -> None:
    """A row of heat maps for each size, a column for each contender, the ideal last."""
    cells = results["cells"]
    sizes, prepares, trains = (
        sorted({each[key] for each in cells}) for key in ("batches", "prepare_ms", "train_ms")
    )
    names = [*cells[0]["lost"], "ideal"]
    width, height = 2.3 * len(names), 2.5 * len(sizes) + 1.2
    figure = Figure(figsize=(width, height), layout="constrained")
    grid = figure.subplots(len(sizes), len(names), squeeze=False, sharex=True, sharey=True)
    picture = None
    for row, size in enumerate(sizes):
        for column, name in enumerate(names):
            axes = grid[row][column]
            shares = [[0.0] * len(trains) for _ in prepares]
            for each in cells:
                if each["batches"] == size:
                    value = each["ideal"] if name == "ideal" else each["lost"][name]["median"]
                    at = prepares.index(each["prepare_ms"]), trains.index(each["train_ms"])
                    shares[at[0]][at[1]] = value
                    colour = "white" if value > 0.55 else "black"
                    text = f"{100 * value:.0f} %"
                    axes.text(at[1], at[0], text, ha="center", va="center", color=colour)
            picture = axes.imshow(
                shares, cmap="Blues", vmin=0, vmax=1, origin="lower", aspect="auto"
            )
            axes.set_xticks(range(len(trains)), [f"{value:g}" for value in trains])
            axes.set_yticks(range(len(prepares)), [f"{value:g}" for value in prepares])
            if row == 0:
                axes.set_title(name, fontsize=10)
            if row == len(sizes) - 1:
                axes.set_xlabel("training a batch, ms")
            if column == 0:
                axes.set_ylabel(f"{size} batches in an epoch\npreparing a batch, ms")
    bar = figure.colorbar(picture, ax=grid.ravel().tolist(), pad=0.01)
    bar.set_label("share of the epoch lost to waiting")
    bar.set_ticks([0, 0.25, 0.5, 0.75, 1], labels=["0", "25 %", "50 %", "75 %", "100 %"])
    machine = results["machine"]
    figure.suptitle(
        f"Training time lost to waiting, {results['threads']} threads or workers, preparation "
        f"{'asleep' if results['work'] == 'sleep' else 'busy'}\n"
        f"{machine['cpu']}, {machine['cores']} cores, torch {machine['torch']}, {machine['date']}",
        fontsize=11,
    )
    figure.savefig(file, dpi=130)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--batches", type=int, nargs="+", default=[4, 32], help="in an epoch")
    parser.add_argument("--prepare", type=float, nargs="+", default=[5, 20, 60], help="ms a batch")
    parser.add_argument("--train", type=float, nargs="+", default=[5, 20, 60], help="ms a batch")
    parser.add_argument("--threads", type=int, default=2, help="or worker processes")
    parser.add_argument("--work", choices=["sleep", "busy"], default="sleep")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the results")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    cells = []
    for batches, prepare, train in itertools.product(
        arguments.batches, arguments.prepare, arguments.train
    ):
        made = cell(batches, prepare, train, arguments)
        cells.append(made)
        shares = ", ".join(f"{name} {each['median']:.2f}" for name, each in made["lost"].items())
        print(
            f"{batches} batches, prepare {prepare:g} ms, train {train:g} ms: {shares}; "
            f"ideal {made['ideal']:.2f}",
            flush=True,
        )
    results = {
        "threads": arguments.threads,
        "work": arguments.work,
        "samples_in_a_batch": SAMPLES,
        "repeats": arguments.repeats,
        "cells": cells,
    }
    written = write("ablation", results, arguments.out)
    plot = written.with_suffix(".png")
    draw({"machine": machine(), **results}, plot)
    print(f"written: {written}, {plot}")


if __name__ == "__main__":
    main()
