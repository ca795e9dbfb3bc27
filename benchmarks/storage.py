"""One LMDB file against a folder of files, page cache warm and cold, shuffled and in order; and how much
of a producer's and a consumer's time BackgroundGenerator overlaps.

    python benchmarks/storage.py --data DIR [--threads 2] [--repeats 5]

The same pictures on the native path, RandomResizedCrop-224 + flip. Cold: the kernel is asked to drop the
files' pages before each epoch (posix_fadvise), and every round opens its data set anew. Predicted: warm
1.0 to 1.05 (no open and read per picture, of 25 microseconds in 1100), cold well above 1 where the disk
is the limit; BackgroundGenerator within 1.02 of the ideal.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import io
import os
import tempfile
import time
from collections.abc import Callable
from typing import Any

import torch
from measure import interleaved, ratio, write

from fastloader import FastLoader
from fastloader import transforms as T
from fastloader.cli.__main__ import main as command_line
from fastloader.compat.prefetch_generator import BackgroundGenerator
from fastloader.datasets import ImageFolder, LMDBDataset

CHAIN = T.Compose([T.RandomResizedCrop(224), T.RandomHorizontalFlip()])


def forget(paths: list[str]) -> None:
    """Drops the pages of files that nobody has mapped."""
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", required=True, help="a folder of class folders")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as scratch:
        packed = os.path.join(scratch, "set.lmdb")
        with contextlib.redirect_stdout(io.StringIO()):
            if command_line(["pack", arguments.data, packed]):
                raise SystemExit(f"packing {arguments.data} failed")
        measure(arguments, packed)


def measure(arguments: argparse.Namespace, packed: str) -> None:
    files = [path for path, _ in ImageFolder(arguments.data).samples]

    def epoch(make: Callable[[], Any], shuffle: bool, cold: list[str]) -> Callable[[], float]:
        def run() -> float:
            gc.collect()
            forget(cold)
            dataset = make()
            loader = FastLoader(
                dataset, batch_size=64, shuffle=shuffle, num_workers=arguments.threads
            )
            assert loader.plan().startswith("native images"), loader.plan()
            begun = time.perf_counter()
            for _batch in loader:
                pass
            return time.perf_counter() - begun

        return run

    contenders = {}
    for order, shuffle in (("shuffled", True), ("in order", False)):
        for cache in ("warm", "cold"):
            contenders[f"folder, {order}, {cache}"] = epoch(
                lambda: ImageFolder(arguments.data, CHAIN),
                shuffle,
                files if cache == "cold" else [],
            )
            contenders[f"LMDB, {order}, {cache}"] = epoch(
                lambda: LMDBDataset(packed, CHAIN), shuffle, [packed] if cache == "cold" else []
            )
    timings = interleaved(contenders, arguments.repeats, warm_up=1)
    ratios = {
        name.removeprefix("LMDB, "): ratio(timings[name.replace("LMDB", "folder")], timings[name])
        for name in timings
        if name.startswith("LMDB")
    }
    for name, timing in timings.items():
        print(f"{len(files) / timing.median:8.0f} img/s  {name}")
    for name, value in ratios.items():
        print(
            f"{value['median']:8.2f} x  LMDB against folder, {name} "
            f"({value['min']:.2f} to {value['max']:.2f})"
        )
    overlap = background_overlap(arguments.repeats)
    print(
        f"{overlap['median']:8.3f} of the ideal time: BackgroundGenerator, 0.1 s producer and consumer"
    )
    results = {
        "pictures": len(files),
        "threads": arguments.threads,
        "timings": {
            name: {"images_per_s": len(files) / timing.median, **timing.as_json()}
            for name, timing in timings.items()
        },
        "ratios": ratios,
        "background_generator_of_ideal": overlap,
    }
    print("written:", write("storage", results))


def background_overlap(repeats: int) -> dict[str, float]:
    """The package's documented example, ten items: total time over that of perfect overlap."""

    def produce() -> Any:
        for number in range(10):
            time.sleep(0.1)
            yield number

    shares = []
    for _ in range(repeats):
        begun = time.perf_counter()
        for _item in BackgroundGenerator(produce()):
            time.sleep(0.1)
        shares.append((time.perf_counter() - begun) / (0.1 * 11))
    shares.sort()
    return {"median": shares[len(shares) // 2], "min": shares[0], "max": shares[-1]}


if __name__ == "__main__":
    main()
