"""Loader overhead: FastLoader against DataLoader on in-memory pictures, no decode.

    python benchmarks/overhead.py [--repeats 7] [--only small]

Scenarios: 3x224x224 samples, batch 64, uint8 and float32, 0 and 2 workers; FastLoader as a plain
DataLoader (device=None), delivering to the CPU (device="cpu"), and normalising (mean, std) against a
DataLoader whose batches the loop normalises the way users write it. Each pair runs interleaved.
Predicted: 1.0 where nothing is asked for, and above 1 where the loop normalises.

Then what a batch costs by itself, as a share of DataLoader's time: batches of 2 tiny samples, 0 workers
(small_batches.py, with the goals). ``--only small`` measures these alone and writes nothing.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable
from typing import Any

import small_batches
import torch
from measure import interleaved, ratio, write
from torch.utils.data import DataLoader, Dataset

from fastloader import FastLoader

MEAN = (0.485, 0.456, 0.406)
STD = (0.229, 0.224, 0.225)


class Pictures(Dataset[tuple[torch.Tensor, int]]):
    def __init__(self, count: int, dtype: torch.dtype) -> None:
        self.images = torch.randint(0, 256, (256, 3, 224, 224), dtype=torch.uint8).to(dtype)
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return self.images[index % 256], index


def epoch(loader: Iterable[Any], use: Callable[[torch.Tensor], Any]) -> Callable[[], None]:
    def run() -> None:
        for images, _labels in loader:
            use(images)

    return run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--only", choices=["small"])
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    small = small_batches.measured(arguments.repeats)
    for line in small_batches.shown(small):
        print(line)
    if arguments.only:
        return
    m = (torch.tensor(MEAN) * 255).view(1, 3, 1, 1)
    s = (torch.tensor(STD) * 255).view(1, 3, 1, 1)
    touch = torch.numel  # the loader's own time is what is measured

    results: dict[str, Any] = {
        "batch_size": 64,
        "timings": {},
        "ratios": {},
        "small_batches": small,
    }
    for dtype, count in ((torch.uint8, 6400), (torch.float32, 3200)):
        for workers in (0, 2):
            dataset = Pictures(count, dtype)
            common: dict[str, Any] = {"batch_size": 64, "num_workers": workers}
            name = f"{str(dtype).removeprefix('torch.')}, {workers} workers"
            pairs = {
                f"{name}, device=None": (
                    epoch(DataLoader(dataset, **common), touch),
                    epoch(FastLoader(dataset, **common), touch),
                ),
                f"{name}, device='cpu'": (
                    epoch(DataLoader(dataset, **common), touch),
                    epoch(FastLoader(dataset, **common, device="cpu"), touch),
                ),
            }
            if dtype is torch.uint8:
                pairs[f"{name}, normalised"] = (
                    epoch(DataLoader(dataset, **common), lambda x: x.float().sub_(m).div_(s)),
                    epoch(FastLoader(dataset, **common, mean=MEAN, std=STD), touch),
                )
            for scenario, (theirs, ours) in pairs.items():
                timings = interleaved(
                    {"DataLoader": theirs, "FastLoader": ours}, arguments.repeats, warm_up=1
                )
                value = ratio(timings["DataLoader"], timings["FastLoader"])
                results["ratios"][scenario] = value
                results["timings"][scenario] = {
                    who: {"images_per_s": count / timing.median, **timing.as_json()}
                    for who, timing in timings.items()
                }
                print(
                    f"{value['median']:6.2f} x ({value['min']:.2f} to {value['max']:.2f})  {scenario}: "
                    f"{count / timings['FastLoader'].median:.0f} img/s, DataLoader "
                    f"{count / timings['DataLoader'].median:.0f}"
                )
    print("written:", write("overhead", results))


if __name__ == "__main__":
    main()
