"""Batches from worker processes: FastLoader's shared slots against DataLoader's shared memory files.

    python benchmarks/workers.py [--repeats 7] [--only NAME]

Scenarios, all with 2 workers: in-memory 3x224x224 samples, batch 64, in float32 and uint8, where the
loop does nothing, and where it reads every element; and what might be slower: a collate_fn of the
user's own, every batch kept (so that slots run out), batches of a few numbers, batches of text,
samples that are rows of one tensor and are not batched. And the first batch with 8 spawned workers.

Predicted: 1.8 x or more for float32, 2 x or more for uint8, more than 1 for a collate_fn of the user's
own, and 1.0 (never under 0.97) for the rest.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import torch
from measure import interleaved, ratio, write
from torch.utils.data import DataLoader, Dataset

from fastloader import FastLoader


class Pictures(Dataset[tuple[torch.Tensor, int]]):
    def __init__(self, count: int, dtype: torch.dtype) -> None:
        self.images = torch.randint(0, 256, (256, 3, 224, 224), dtype=torch.uint8).to(dtype)
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return self.images[index % 256], index


class Numbers(Dataset[tuple[torch.Tensor, int]]):
    def __len__(self) -> int:
        return 64000

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return torch.full((8,), float(index)), index


class Text(Dataset[str]):
    def __len__(self) -> int:
        return 25600

    def __getitem__(self, index: int) -> str:
        return f"{index} " * 500


def own_collate(samples: list[tuple[torch.Tensor, int]]) -> dict[str, Any]:
    images, labels = zip(*samples, strict=True)
    return {"images": torch.stack(images), "labels": torch.tensor(labels)}


def nothing(batch: Any) -> None:
    pass


def read(batch: Any) -> None:
    batch[0].sum()


def epoch(loader: Any, use: Callable[[Any], Any]) -> Callable[[], None]:
    def run() -> None:
        for batch in loader:
            use(batch)

    return run


def keep(loader: Any) -> Callable[[], None]:
    return lambda: list(loader) and None


def first_batch(loader: Any) -> Callable[[], None]:
    return lambda: next(iter(loader)) and None


def scenarios() -> dict[str, tuple[Dataset[Any], dict[str, Any], Callable[[Any], Any]]]:
    """Name: (dataset, arguments besides two workers, what is timed)."""
    floats = Pictures(3200, torch.float32)
    ints = Pictures(12800, torch.uint8)
    few = Pictures(1600, torch.uint8)
    by_64: dict[str, Any] = {"batch_size": 64}
    spawned = {"num_workers": 8, "multiprocessing_context": "spawn", "batch_size": 16}
    return {
        "float32": (floats, by_64, lambda loader: epoch(loader, nothing)),
        "float32, read": (floats, by_64, lambda loader: epoch(loader, read)),
        "uint8": (ints, by_64, lambda loader: epoch(loader, nothing)),
        "uint8, read": (ints, by_64, lambda loader: epoch(loader, read)),
        "own collate_fn": (
            floats,
            {**by_64, "collate_fn": own_collate},
            lambda loader: epoch(loader, nothing),
        ),
        "every batch kept": (ints, by_64, keep),
        "few numbers": (Numbers(), by_64, lambda loader: epoch(loader, nothing)),
        "text": (Text(), by_64, lambda loader: epoch(loader, nothing)),
        "not batched": (few, {"batch_size": None}, lambda loader: epoch(loader, nothing)),
        "first batch, 8 spawned workers": (few, spawned, first_batch),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--only", default="")
    arguments = parser.parse_args()
    torch.set_num_threads(1)

    results: dict[str, Any] = {"ratios": {}, "timings": {}, "ring": {}}
    for name, (dataset, extra, timed) in scenarios().items():
        if arguments.only not in name:
            continue
        options: dict[str, Any] = {"num_workers": 2, **extra}
        ours: FastLoader[Any] = FastLoader(dataset, **options)
        timings = interleaved(
            {"DataLoader": timed(DataLoader(dataset, **options)), "FastLoader": timed(ours)},
            arguments.repeats,
            warm_up=1,
        )
        value = ratio(timings["DataLoader"], timings["FastLoader"])
        counted = ours.stats()["workers"]
        results["ratios"][name] = value
        results["timings"][name] = {who: each.as_json() for who, each in timings.items()}
        results["ring"][name] = {key: counted[key] for key in ("slots_used", "why")}
        print(
            f"{value['median']:6.2f} x ({value['min']:.2f} to {value['max']:.2f})  {name}: "
            f"{timings['FastLoader'].median:.2f} s, DataLoader {timings['DataLoader'].median:.2f} s; "
            f"{counted['slots_used']} slots used, {counted['fallbacks']} fallbacks"
        )
        ours.close()
    if not arguments.only:
        print("written:", write("workers", results))


if __name__ == "__main__":
    main()
