"""num_workers="auto" and depth="auto" against every fixed setting of a grid, in different situations.

    python benchmarks/autotune.py [--repeats 4] [--only "NAME;..."] [--pictures 2400] [--out DIR]

Made-up photographs of 500 x 375, CenterCrop-224, batch 32, normalised float32 on the CPU; "device": the
same through the ring of the host twin. Fixed: 1, 2 and 4 threads with depth 3, and 2, 4 and 8 with depth
12. Situations: no step ("decoding"); steps that sleep, as a GPU's do seen from the CPU, as
long ("equal step") and three times as long ("long step") as two threads need for a batch; steps that
keep a processor busy as long ("busy step"); bursts of 9 quick steps between long pauses, equal in the
mean ("uneven"); a storage that takes 4 ms for a picture whatever is asked for beside it, with no step
("slow storage") and with one that sleeps ("slow storage, step"). A dataset in Python, where workers are
all there is to choose ("Python").

Each measurement is one epoch, its first batch included. Every loader has had two epochs before, and
"auto" as many, 12 at most, as it takes until three in a row end with the same choice; how many, and what
the first took against the first of the best fixed setting, is told. Rounds are interleaved. The best
fixed setting is the one with the smallest median: the luckiest of six, which flatters it by some of the
spread of a single one.

Predicted: within 5 % of the best everywhere. All processors win where decoding is what takes the time;
fewer threads change nothing where the step is; only "slow storage" gains by more threads than
processors, by a factor of 3 or more; only "uneven" by depth.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from measure import interleaved, make_photographs, ratio, write
from torch.utils.data import ConcatDataset, Dataset

from fastloader import FastLoader
from fastloader._core.pictures.store import FolderStore
from fastloader.datasets import ImageFolder
from fastloader.transforms import CenterCrop, Compose

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
BATCH = 32
FIXED = ((1, 3), (2, 3), (4, 3), (2, 12), (4, 12), (8, 12))  # threads, depth
LIMIT = 1.05
FILES = 200


class Rows(Dataset[tuple[torch.Tensor, int]]):
    """A sample takes some Python."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        total = 0
        for each in range(4000):
            total += each
        return torch.full((3, 32, 32), total % 255, dtype=torch.uint8), index


def spin(seconds: float) -> None:
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


def steps(kind: str, batch_s: float) -> Callable[[int], None]:
    """What the loop does with batch number ``n``; two threads need ``batch_s`` for one."""
    if kind == "busy":
        return lambda n: spin(batch_s)
    if kind == "uneven":
        return lambda n: time.sleep(batch_s * (7.75 if n % 10 == 9 else 0.25))
    factor = {"none": 0.0, "equal": 1.0, "long": 3.0}[kind]
    return lambda n: time.sleep(batch_s * factor) if factor else None


# name: (step, storage is slow, through the twin)
SITUATIONS: dict[str, tuple[str, bool, bool]] = {
    "decoding": ("none", False, False),
    "equal step": ("equal", False, False),
    "long step": ("long", False, False),
    "busy step": ("busy", False, False),
    "uneven": ("uneven", False, False),
    "slow storage": ("none", True, False),
    "slow storage, step": ("equal", True, False),
    "decoding, device": ("none", False, True),
    "equal step, device": ("equal", False, True),
    "uneven, device": ("uneven", False, True),
    "Python": ("none", False, False),
}


def make_loader(name: str, dataset: Any, **options: Any) -> FastLoader[Any]:
    """``options``: num_workers and depth."""
    _, slow, twin = SITUATIONS[name]
    opened = FolderStore.opened

    def throttled(self: Any, native: Any) -> Any:
        files = opened(self, native)
        if not native.__test_hooks__:
            raise SystemExit(
                "the slow disk is a test hook: install fastloader with pip install -e ."
            )
        files.source = native.DelayedSource(files.source, 0.004)
        return files

    # Both are looked up when a loader is made, or its first epoch.
    os.environ["FASTLOADER_BACKEND"] = "host" if twin else ""
    FolderStore.opened = throttled if slow else opened  # type: ignore[method-assign]
    try:
        loader: FastLoader[Any] = FastLoader(
            dataset, BATCH, shuffle=True, device="cpu", mean=MEAN, std=STD, **options
        )
        run(loader, lambda n: None, 1)
        return loader
    finally:
        os.environ.pop("FASTLOADER_BACKEND")
        FolderStore.opened = opened  # type: ignore[method-assign]


def run(loader: Any, step: Callable[[int], None], batches: int | None = None) -> float:
    begun = time.perf_counter()
    for number, _ in enumerate(loader):
        step(number)
        if number + 1 == batches:
            break
    return time.perf_counter() - begun


def settle(loader: Any, step: Callable[[int], None]) -> int:
    """Epochs, after the first, until three in a row have ended with the same choice."""
    ended: list[dict[str, int]] = []
    while len(ended) < 12 and not (len(ended) >= 3 and ended[-1] == ended[-2] == ended[-3]):
        run(loader, step)
        choices = loader.stats()["auto"]
        ended.append({name: choice["chosen"] for name, choice in choices.items()})
    return len(ended)


def batch_seconds(dataset: Any) -> float:
    """Of two threads that decode."""
    loader: FastLoader[Any] = FastLoader(
        dataset, BATCH, num_workers=2, device="cpu", mean=MEAN, std=STD
    )
    return min(run(loader, lambda n: None) for _ in range(3)) / len(loader)


def compare(name: str, dataset: Any, batch_s: float, repeats: int) -> dict[str, Any]:
    step = steps(SITUATIONS[name][0], batch_s)
    loaders = {}
    for threads, depth in FIXED:
        if name == "Python" and depth > 3:
            continue
        named = f"{threads} threads, depth {depth}"
        loaders[named] = make_loader(name, dataset, num_workers=threads, depth=depth)
        if len(loaders) == 2:  # in the middle: at the ends of a round a loader runs after a pause
            loaders["auto"] = make_loader(name, dataset, num_workers="auto", depth="auto")
    first = {each: run(loader, step) for each, loader in loaders.items()}
    settled = settle(loaders["auto"], step)
    timings = interleaved(
        {each: lambda loader=loader: run(loader, step) for each, loader in loaders.items()},  # type: ignore[misc]
        repeats,
        warm_up=1,
    )
    chosen = loaders["auto"].stats()["auto"]
    for loader in loaders.values():
        loader.close()
    fixed = {each: timing for each, timing in timings.items() if each != "auto"}
    best = min(fixed, key=lambda each: fixed[each].median)
    return {
        "auto_over_best": ratio(timings["auto"], fixed[best]),
        "medians_ratio": timings["auto"].median / fixed[best].median,
        "first_epoch_over_best": first["auto"] / first[best],
        "epochs_to_settle": settled,
        "best": best,
        "worst_over_best": max(each.median for each in fixed.values()) / fixed[best].median,
        "chosen": chosen,
        "timings": {each: timing.as_json() for each, timing in timings.items()},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=4)
    parser.add_argument("--pictures", type=int, default=2400)
    parser.add_argument("--only", default=";".join(SITUATIONS), metavar="NAME;...")
    parser.add_argument("--out", type=Path, help="folder for the results")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    results: dict[str, Any] = {"limit": LIMIT, "situations": {}}
    with tempfile.TemporaryDirectory() as root:
        make_photographs(Path(root) / "all", FILES, 375, 500, np.random.default_rng(0))
        folder = ImageFolder(root, Compose([CenterCrop(224)]))
        dataset: Any = ConcatDataset([folder] * -(-arguments.pictures // FILES))
        fewer: Any = ConcatDataset(
            [folder] * -(-arguments.pictures // FILES // 3)
        )  # one thread waits
        batch_s = batch_seconds(dataset)
        results["batch_ms_of_two_threads"] = 1e3 * batch_s
        for name in arguments.only.split(";"):
            samples = fewer if SITUATIONS[name][1] else dataset
            if name == "Python":
                samples = Rows(4 * arguments.pictures)
            found = compare(name, samples, batch_s, arguments.repeats)
            results["situations"][name] = found
            against = found["auto_over_best"]
            picked = ", ".join(f"{key} {each['chosen']}" for key, each in found["chosen"].items())
            print(
                f"{name:<20} {against['median']:.3f} of the best's time "
                f"({against['min']:.3f} to {against['max']:.3f}), first epoch "
                f"{found['first_epoch_over_best']:.2f}, settled after {found['epochs_to_settle']}; "
                f"chose {picked}; best: {found['best']}; "
                f"the worst takes {found['worst_over_best']:.2f}",
                flush=True,
            )
    worst = max(each["auto_over_best"]["median"] for each in results["situations"].values())
    results["worst_auto_over_best"] = worst
    middle = statistics.median(
        each["auto_over_best"]["median"] for each in results["situations"].values()
    )
    results["median_auto_over_best"] = middle
    print(f"auto takes {middle:.3f} of the best fixed setting's time, {worst:.3f} at worst")
    print("written:", write("autotune", results, *([arguments.out] if arguments.out else [])))


if __name__ == "__main__":
    main()
