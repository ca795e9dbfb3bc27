"""Early breaks and epochs by the thousand: memory, threads, processes and descriptors stay flat.

    python benchmarks/soak.py [--breaks 10000] [--epochs 500] [--ways none,cpu,twin,streams]
                              [--workers 0,persistent,2]

Not a matter of speed: prints the figures at ten points of each run and exits with 1 when one of them
grew. ``persistent`` is two persistent workers; ``2`` starts two processes for each break, which takes a
while, so that a hundredth of the breaks and epochs is done.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import gc
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from fastloader import FastLoader

WAYS = {
    "none": ({}, {}),
    "cpu": ({}, {"device": "cpu", "mean": (0.5,), "std": (0.5,)}),
    "twin": ({"FASTLOADER_BACKEND": "host"}, {"device": "cpu", "mean": (0.5,), "std": (0.5,)}),
    "streams": ({"FASTLOADER_BACKEND": "torch"}, {"device": "cpu", "mean": (0.5,), "std": (0.5,)}),
}
WORKERS = {
    "0": {},
    "persistent": {"num_workers": 2, "persistent_workers": True},
    "2": {"num_workers": 2},
}
MEMORY_SLACK_MIB = (
    4.0  # what malloc does not give back; one leaked batch for each break is 40 times that
)
POINTS = 10


class Pictures(torch.utils.data.Dataset[Any]):
    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> Any:
        return torch.full((1, 32, 32), index, dtype=torch.uint8), index


def figures() -> dict[str, float]:
    ctypes.CDLL(None).malloc_trim(0)
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    processes = 0
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(FileNotFoundError):  # a thread that has just ended
            processes += len((task / "children").read_text().split())
    return {
        "MiB": round(pages * os.sysconf("SC_PAGE_SIZE") / 2**20, 1),
        "threads": len(os.listdir("/proc/self/task")),
        "processes": processes,
        "descriptors": len(os.listdir("/proc/self/fd")),
    }


def settled() -> dict[str, float]:
    """What ends by itself is given the time: the least of a quarter of a second."""
    gc.collect()
    seen = [figures()]
    for _ in range(5):
        time.sleep(0.05)
        seen.append(figures())
    # The marks of forks whose children have ended are dropped at the next fork. Behind this one as many
    # are left each time: its own.
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    least = {name: min(each[name] for each in seen) for name in seen[0]}
    return {**least, "descriptors": figures()["descriptors"]}


def soak(what: str, step: Callable[[], None], times: int) -> bool:
    """Whether the figures at the end are those after the first tenth."""
    points = []
    begun = time.monotonic()
    for point in range(POINTS):
        for _ in range(times * (point + 1) // POINTS - times * point // POINTS):
            step()
        points.append(settled())
    seconds = time.monotonic() - begun
    first, last = points[0], points[-1]
    flat = all(last[name] <= first[name] for name in ("threads", "processes", "descriptors"))
    flat = flat and last["MiB"] <= first["MiB"] + MEMORY_SLACK_MIB
    print(f"{what}: {times} in {seconds:.1f} s: {'flat' if flat else 'GROWN'}")
    for name in first:
        print(f"  {name:12}", *(f"{point[name]:>8}" for point in points), flush=True)
    return flat


def run(way: str, workers: str, breaks: int, epochs: int) -> bool:
    environment, options = WAYS[way]
    for name in ("FASTLOADER_BACKEND", "FASTLOADER_NATIVE"):
        os.environ.pop(name, None)
    os.environ.update(environment)
    loader: Any = FastLoader(Pictures(), batch_size=16, shuffle=True, **options, **WORKERS[workers])

    def early_break() -> None:
        for _batch in loader:
            break

    def epoch() -> None:
        assert sum(len(label) for _, label in loader) == 64

    name = f"{way}, workers {workers}"
    flat = [soak(f"{name}, early breaks", early_break, breaks)]
    flat.append(soak(f"{name}, epochs", epoch, epochs))
    loader.close()
    return all(flat)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--breaks", type=int, default=10_000)
    parser.add_argument("--epochs", type=int, default=500)
    parser.add_argument("--ways", default=",".join(WAYS))
    parser.add_argument("--workers", default=",".join(WORKERS))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    flat = []
    for way in arguments.ways.split(","):
        for workers in arguments.workers.split(","):
            share = 100 if workers == "2" else 1
            breaks, epochs = arguments.breaks // share, arguments.epochs // share
            flat.append(run(way, workers, max(breaks, POINTS), max(epochs, POINTS)))
    sys.exit(0 if all(flat) else 1)


if __name__ == "__main__":
    main()
