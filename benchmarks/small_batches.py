"""What a batch costs when there is nothing in it: two samples of a few bytes, on the thread that trains.
Part of overhead.py."""

from __future__ import annotations

import contextlib
import os
import time
import timeit
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from measure import interleaved, ratio
from torch.utils.data import DataLoader, Dataset, TensorDataset

from fastloader import DevicePrefetcher, FastLoader
from fastloader._core.batch.tree import flatten

BATCH_SIZE = 2
STEP = 0.0002  # seconds
MEAN = (0.485, 0.456, 0.406)
STD = (0.229, 0.224, 0.225)

# Of DataLoader's time for a batch.
GOALS = {"arrays": 1.0, "cpu, normalised": 1.5, "engine, a batch is ready": 1.5}


class Tiny(Dataset[tuple[torch.Tensor, int]]):
    def __init__(self, count: int) -> None:
        self.images = torch.randint(0, 256, (count, 3, 4, 4), dtype=torch.uint8)

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return self.images[index], index


class Prepared:
    """Batches that are there, for a pump to put into the ring ahead of the loop."""

    num_workers = 1  # so it says: the prefetcher then looks ahead

    def __init__(self, count: int) -> None:
        self.batches = list(DataLoader(Tiny(count), BATCH_SIZE))

    def __iter__(self) -> Iterator[Any]:
        return iter(self.batches)

    def __len__(self) -> int:
        return len(self.batches)


def through(loader: Iterable[Any]) -> Callable[[], None]:
    def run() -> None:
        for _ in loader:
            pass

    return run


def at_each_step(loader: Any, batches: int, ready: Callable[[], bool]) -> Callable[[], float]:
    """The seconds in ``next()`` alone, each called after a pause, as behind a training step, and not
    before ``ready()``. A thread that has slept finds its caches cold: what two loaders need can only
    be compared if both are called in this way."""

    def run() -> float:
        iterator = iter(loader)
        total = 0.0
        for _ in range(batches):
            time.sleep(STEP)
            while not ready():
                time.sleep(STEP)
            begun = time.perf_counter()
            next(iterator)
            total += time.perf_counter() - begun
        del iterator
        return total

    return run


def has_one(loader: Any) -> Callable[[], bool]:
    """Whether ``stats()`` shows a batch in the ring."""

    def ready() -> bool:
        ring = loader.stats()["ring"]
        return bool(ring["filled"] > ring["delivered"])

    return ready


@contextlib.contextmanager
def backend(name: str) -> Iterator[None]:
    before = os.environ.get("FASTLOADER_BACKEND")
    os.environ["FASTLOADER_BACKEND"] = name
    try:
        yield
    finally:
        if before is None:
            del os.environ["FASTLOADER_BACKEND"]
        else:
            os.environ["FASTLOADER_BACKEND"] = before


def measured(repeats: int, samples: int = 4000) -> dict[str, Any]:
    """{row: ratio to DataLoader of the same samples, in the same round}, and microseconds."""
    tiny = Tiny(samples)
    rows = TensorDataset(torch.rand(samples, 4), torch.arange(samples))
    normalised: dict[str, Any] = {"mean": MEAN, "std": STD}
    plain = through(DataLoader(tiny, BATCH_SIZE))
    batches = samples // BATCH_SIZE
    pairs: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
        "arrays": (
            through(DataLoader(rows, BATCH_SIZE)),
            through(FastLoader(rows, BATCH_SIZE)),
        ),
        "plain": (plain, through(FastLoader(tiny, BATCH_SIZE))),
        "cpu, normalised": (plain, through(FastLoader(tiny, BATCH_SIZE, **normalised))),
    }
    with backend("torch"):
        streams = FastLoader(tiny, BATCH_SIZE, device="cpu", **normalised)
        pairs["streams, normalised"] = plain, through(streams)
    with backend("host"):
        twin = FastLoader(tiny, BATCH_SIZE, device="cpu", **normalised)
        pairs["engine, nothing ahead"] = plain, through(twin)
        ahead = DevicePrefetcher(Prepared(samples), "cpu", **normalised)
        pairs["engine, a batch is ready"] = (
            at_each_step(DataLoader(tiny, BATCH_SIZE), batches, lambda: True),
            at_each_step(ahead, batches, has_one(ahead)),
        )
        # Cold caches against warm ones: to be read beside the row above, and without a goal.
        pairs["the same against DataLoader without pauses"] = (
            plain,
            at_each_step(ahead, batches, has_one(ahead)),
        )
    results: dict[str, Any] = {}
    for name, (theirs, ours) in pairs.items():
        timings = interleaved({"DataLoader": theirs, "FastLoader": ours}, repeats, warm_up=1)
        results[name] = {
            "ratio": ratio(timings["FastLoader"], timings["DataLoader"]),
            "goal": GOALS.get(name),
            "microseconds": {who: 1e6 * timing.median / batches for who, timing in timings.items()},
        }
    texts = [str(number) for number in range(256)]
    runs = timeit.repeat(lambda: flatten(texts), number=200, repeat=repeats)
    results["flatten of 256 strings"] = {"microseconds": 1e6 * sorted(runs)[repeats // 2] / 200}
    return results


def shown(results: dict[str, Any]) -> Iterator[str]:
    for name, row in results.items():
        spent = row["microseconds"]
        if "ratio" not in row:
            yield f"{spent:6.1f} us  {name}"
            continue
        found = row["ratio"]
        goal = "" if row["goal"] is None else f", goal {row['goal']}"
        yield (
            f"{found['median']:6.2f} of DataLoader's time ({found['min']:.2f} to {found['max']:.2f}"
            f"{goal})  {name}: {spent['FastLoader']:.1f} us a batch, DataLoader "
            f"{spent['DataLoader']:.1f}"
        )
