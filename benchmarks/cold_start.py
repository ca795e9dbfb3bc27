"""Folders that are not in the page cache: with threads that read ahead, and without.

    python benchmarks/cold_start.py --data DIR [--threads 2] [--repeats 5] [--copies 12]

The same pictures on the native path, RandomResizedCrop-224 + flip, shuffled; each a few times under
other names, so that an epoch lasts long enough. Cold: the first epoch of a new loader, after the kernel
was asked to drop its caches (/proc/sys/vm/drop_caches), which needs root. Slow: each read of a file
takes 5 ms longer, as with a network file system; a hook for tests, so it needs pip install -e .

"Without" is FASTLOADER_READ_AHEAD=0. "The limit" is the rate if no thread ever waited: what the kernel
does for a cold file and not for a warm one (the disk's requests, pages for the cache) takes processor
time, which the decode threads then lack. It is measured beside: a plain loop reads all files, cold and
warm. Predicted: the limit 0.96 (40 of 900 microseconds a picture), cold 0.95 of warm with reading
ahead; slow 6 times the rate, since 5 ms of waiting on two threads become none, and decoding remains;
LMDB the same, which asks for its records ahead by itself.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import io
import os
import random
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from measure import interleaved, ratio, spread, write

import fastloader
from fastloader import FastLoader
from fastloader import transforms as T
from fastloader._core.pictures.store import FolderStore
from fastloader.cli.__main__ import main as command_line
from fastloader.datasets import ImageFolder, LMDBDataset

CHAIN = T.Compose([T.RandomResizedCrop(224), T.RandomHorizontalFlip()])
DROP_CACHES = "/proc/sys/vm/drop_caches"
SECONDS = 0.005


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", required=True, help="a folder of class folders")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--copies", type=int, default=12)
    arguments = parser.parse_args()
    if not os.access(DROP_CACHES, os.W_OK):
        raise SystemExit(f"only root may write to {DROP_CACHES}")
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch, "photographs")
        for path, _ in ImageFolder(arguments.data).samples:
            original = Path(path)
            target = folder / original.parent.name
            target.mkdir(parents=True, exist_ok=True)
            for copy in range(arguments.copies):
                shutil.copyfile(original, target / f"{copy}-{original.name}")
        packed = Path(scratch, "set.lmdb")
        with contextlib.redirect_stdout(io.StringIO()):
            if command_line(["pack", str(folder), str(packed)]):
                raise SystemExit(f"packing {folder} failed")
        measure(arguments, folder, packed)


def drop_caches() -> None:
    os.sync()
    Path(DROP_CACHES).write_text("3")


def measure(arguments: argparse.Namespace, folder: Path, packed: Path) -> None:
    def epoch(loader: Any) -> float:
        begun = time.perf_counter()
        for _batch in loader:
            pass
        return time.perf_counter() - begun

    def opened(make: Callable[[], Any]) -> Any:
        return FastLoader(make(), batch_size=64, shuffle=True, num_workers=arguments.threads)

    def ahead(wish: str, run: Callable[[], float]) -> Callable[[], float]:
        def with_wish() -> float:
            os.environ["FASTLOADER_READ_AHEAD"] = wish
            try:
                return run()
            finally:
                del os.environ["FASTLOADER_READ_AHEAD"]

        return with_wish

    def photographs() -> Any:
        return ImageFolder(folder, CHAIN)

    def records() -> Any:
        return LMDBDataset(packed, CHAIN)

    def cold(make: Callable[[], Any]) -> Callable[[], float]:
        def run() -> float:
            gc.collect()
            loader = opened(make)
            next(iter(loader))  # what a process reads and makes once
            del loader
            gc.collect()
            loader = opened(make)
            drop_caches()
            return epoch(loader)

        return run

    def warm() -> float:
        loader = opened(photographs)
        epoch(loader)
        return epoch(loader)

    def slow() -> float:
        plain = FolderStore.opened
        FolderStore.opened = _throttled  # type: ignore[method-assign]
        try:
            loader = opened(photographs)
            epoch(loader)
            return epoch(loader)
        finally:
            FolderStore.opened = plain  # type: ignore[method-assign]

    def reading(is_cold: bool) -> Callable[[], float]:
        """The processor time of a loop that only reads the files."""
        paths = [path for path, _label in ImageFolder(folder).samples]
        room = bytearray(max(map(os.path.getsize, paths)))

        def run() -> float:
            random.shuffle(paths)
            if is_cold:
                drop_caches()
            begun = time.process_time()
            for path in paths:
                with open(path, "rb", buffering=0) as file:
                    file.readinto(room)
            return time.process_time() - begun

        return run

    timings = interleaved(
        {
            "warm": ahead("", warm),
            "warm, without": ahead("0", warm),
            "cold": ahead("", cold(photographs)),
            "cold, without": ahead("0", cold(photographs)),
            "slow": ahead("", slow),
            "slow, without": ahead("0", slow),
            "LMDB, cold": ahead("", cold(records)),
            "LMDB, cold, without": ahead("0", cold(records)),
            "reading alone, cold": reading(True),
            "reading alone, warm": reading(False),
        },
        arguments.repeats,
        warm_up=1,
    )
    count = len(ImageFolder(folder).samples)
    warm_s, cold_cpu, warm_cpu = (
        timings[name].seconds for name in ("warm", "reading alone, cold", "reading alone, warm")
    )
    more_s = [(a - b) / arguments.threads for a, b in zip(cold_cpu, warm_cpu, strict=True)]
    # A ratio above 1: the second one of the two is faster.
    ratios = {
        "cold of warm": ratio(timings["warm"], timings["cold"]),
        "limit": spread([warm / (warm + each) for warm, each in zip(warm_s, more_s, strict=True)]),
        "cold without of warm": ratio(timings["warm"], timings["cold, without"]),
        "warm of without": ratio(timings["warm, without"], timings["warm"]),
        "slow of without": ratio(timings["slow, without"], timings["slow"]),
        "LMDB of without": ratio(timings["LMDB, cold, without"], timings["LMDB, cold"]),
    }
    for name, timing in timings.items():
        print(f"{count / timing.median:8.0f} img/s  {name}")
    for name, value in ratios.items():
        print(f"{value['median']:8.2f} ({value['min']:.2f} to {value['max']:.2f})  {name}")
    results = {
        "pictures": count,
        "threads": arguments.threads,
        "slow_seconds": SECONDS,
        "io_uring": fastloader.build_info()["io_uring"],
        "timings": {
            name: {"images_per_s": count / timing.median, **timing.as_json()}
            for name, timing in timings.items()
        },
        "ratios": ratios,
    }
    print("written:", write("cold_start", results))


_opened = FolderStore.opened


def _throttled(self: Any, native: Any) -> Any:
    if not native.__test_hooks__:
        raise SystemExit("the slow disk is a test hook: install fastloader with pip install -e .")
    store = _opened(self, native)
    store.source = native.DelayedSource(store.source, SECONDS)
    return store


if __name__ == "__main__":
    main()
