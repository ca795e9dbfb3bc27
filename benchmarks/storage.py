"""One LMDB file against a folder of files, page cache warm and cold, shuffled and in order; and how much
of a producer's and a consumer's time BackgroundGenerator overlaps.

    python benchmarks/storage.py --data DIR [--threads 2] [--repeats 5]

The same pictures on the native path, RandomResizedCrop-224 + flip. Warm: the epochs after the first of
one loader. Cold: the first epoch of a new loader over a new dataset, after the kernel was asked to drop
its caches (/proc/sys/vm/drop_caches, as root), so that directories and inodes are read again, too;
otherwise the files' pages alone (posix_fadvise), which spares the folder a part of its work. What stands
under "cold_by" says which. Predicted: warm 1.0 to 1.05 (no open and read per picture, of 25 microseconds
in 1100), cold 1.2 or more: the records of a batch are asked for at once, a batch or two ahead, while a
file is only known when a thread opens it; BackgroundGenerator within 1.02 of the ideal.
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


DROP_CACHES = "/proc/sys/vm/drop_caches"
CAN_DROP = os.access(DROP_CACHES, os.W_OK)


def forget(paths: list[str]) -> None:
    """Drops the pages of files that no process has mapped."""
    if CAN_DROP:
        os.sync()
        with open(DROP_CACHES, "w") as file:
            file.write("3")
        return
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

    def opened(dataset: Any, shuffle: bool) -> Any:
        loader: Any = FastLoader(
            dataset, batch_size=64, shuffle=shuffle, num_workers=arguments.threads
        )
        assert loader.plan().startswith("native images"), loader.plan()
        return loader

    def epoch(loader: Any) -> float:
        begun = time.perf_counter()
        for _batch in loader:
            pass
        return time.perf_counter() - begun

    def warm(make: Callable[[], Any], shuffle: bool) -> Callable[[], float]:
        loader: list[Any] = []  # made in the round that warms up

        def run() -> float:
            if not loader:
                loader.append(opened(make(), shuffle))
            epoch(loader[0])  # those of others may have taken its pages
            return epoch(loader[0])

        return run

    def cold(make: Callable[[], Any], shuffle: bool, paths: list[str]) -> Callable[[], float]:
        def run() -> float:
            gc.collect()
            forget(paths)
            return epoch(opened(make(), shuffle))

        return run

    def folder() -> Any:
        return ImageFolder(arguments.data, CHAIN)

    def lmdb() -> Any:
        return LMDBDataset(packed, CHAIN)

    contenders = {}
    for order, shuffle in (("shuffled", True), ("in order", False)):
        contenders[f"folder, {order}, warm"] = warm(folder, shuffle)
        contenders[f"LMDB, {order}, warm"] = warm(lmdb, shuffle)
    warm_timings = interleaved(contenders, arguments.repeats, warm_up=1)
    # By themselves, since a file that a warm loader has mapped would not be dropped.
    contenders = {}
    for order, shuffle in (("shuffled", True), ("in order", False)):
        contenders[f"folder, {order}, cold"] = cold(folder, shuffle, files)
        contenders[f"LMDB, {order}, cold"] = cold(lmdb, shuffle, [packed])
    timings = {**warm_timings, **interleaved(contenders, arguments.repeats, warm_up=1)}
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
        "cold_by": "drop_caches" if CAN_DROP else "posix_fadvise",
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
