"""Datasets of arrays: FastLoader against DataLoader and against indexing the arrays by hand.

    python benchmarks/arrays.py [--repeats 7]

Scenarios: a TensorDataset of 200000x64 float32, and with labels, batch 1024, shuffled; uint8 pictures
3x224x224 in memory and in a memmap, batch 64, shuffled. By hand is ``X[perm[a:b]]``, the permutation
drawn anew for each epoch. Each scenario runs interleaved, with one thread of torch's: on a machine
that others use as well, its thread pool would wait for them and flatter us.
Predicted: rows of 256 bytes 20 to 30 x DataLoader and 0.8 x the time by hand or better, since rows are
asked for ahead of the copy; pictures 1.5 to 3 x DataLoader (both wait for memory, DataLoader copies
one by one into fresh pages) and about the time by hand.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from measure import interleaved, ratio, write
from torch.utils.data import DataLoader, TensorDataset

from fastloader import FastLoader


def epoch(loader: Any) -> Callable[[], None]:
    def run() -> None:
        for _batch in loader:
            pass

    return run


def by_hand(tensors: tuple[torch.Tensor, ...], batch: int) -> Callable[[], None]:
    def run() -> None:
        order = torch.randperm(len(tensors[0]))
        for begin in range(0, len(order), batch):
            picked = order[begin : begin + batch]
            _batch = [tensor[picked] for tensor in tensors]

    return run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=7)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    results: dict[str, Any] = {"timings": {}, "ratios": {}}
    with tempfile.TemporaryDirectory() as folder:
        rows, labels = torch.randn(200_000, 64), torch.randint(0, 10, (200_000,))
        pictures = torch.randint(0, 256, (2000, 3, 224, 224), dtype=torch.uint8)
        path = Path(folder) / "pictures.bin"
        pictures.numpy().tofile(path)
        mapped = torch.from_numpy(np.memmap(path, np.uint8, "r+", shape=tuple(pictures.shape)))
        scenarios: dict[str, tuple[tuple[torch.Tensor, ...], int]] = {
            "200000x64 float32": ((rows,), 1024),
            "200000x64 float32 and labels": ((rows, labels), 1024),
            "2000 uint8 pictures in memory": ((pictures,), 64),
            "2000 uint8 pictures in a memmap": ((mapped,), 64),
        }
        for scenario, (tensors, batch) in scenarios.items():
            dataset = TensorDataset(*tensors)
            options: dict[str, Any] = {"batch_size": batch, "shuffle": True}
            timings = interleaved(
                {
                    "DataLoader": epoch(DataLoader(dataset, **options)),
                    "by hand": by_hand(tensors, batch),
                    "FastLoader": epoch(FastLoader(dataset, **options)),
                    "FastLoader, 2 threads": epoch(FastLoader(dataset, num_workers=2, **options)),
                },
                arguments.repeats,
                warm_up=1,
            )
            results["timings"][scenario] = {
                who: {"rows_per_s": len(tensors[0]) / timing.median, **timing.as_json()}
                for who, timing in timings.items()
            }
            for who in ("FastLoader", "FastLoader, 2 threads"):
                faster = ratio(timings["DataLoader"], timings[who])
                time_by_hand = ratio(timings[who], timings["by hand"])
                results["ratios"][f"{scenario}, {who}"] = {
                    "times_dataloader": faster,
                    "of_the_time_by_hand": time_by_hand,
                }
                print(
                    f"{scenario}, {who}: {faster['median']:.1f} x DataLoader ({faster['min']:.1f} to "
                    f"{faster['max']:.1f}), {time_by_hand['median']:.2f} of the time by hand "
                    f"({time_by_hand['min']:.2f} to {time_by_hand['max']:.2f})"
                )
    print("written:", write("arrays", results))


if __name__ == "__main__":
    main()
