"""The stages of a loader's path, and what each has taken."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

LOOP = "the training loop's thread"


@dataclasses.dataclass(frozen=True)
class Stage:
    """``seconds`` of thread time, summed over ``threads`` (0: the device), for ``count`` pictures or
    batches, as ``unit`` says. ``where`` says who works."""

    name: str
    seconds: float
    count: int
    unit: str
    where: str
    threads: int = 1

    @property
    def each_ms(self) -> float:
        """Milliseconds for one picture or batch."""
        return 1000 * self.seconds / self.count if self.count else 0.0

    def as_dict(self) -> dict[str, Any]:
        return {**dataclasses.asdict(self), "each_ms": self.each_ms}


def find_stages(loader: Any) -> list[Stage]:
    """Those of the path that ``loader`` has taken, in the order of a sample's way; the training loop's
    waiting is the last."""
    statistics = loader._runtime.delivery.statistics
    stages = [*_pictures(loader), *_arrays(loader), *_python(loader), *_delivered(loader)]
    stages.append(
        Stage("wait", statistics.wait_s, statistics.batches, "batch", "the training loop")
    )
    return stages


def _pictures(loader: Any) -> Iterator[Stage]:
    source = loader._runtime.source
    if source is None:
        return
    located, batches = loader._runtime.delivery.statistics.total("locate")
    if batches:
        who = "the pump" if loader._runtime.delivery.path == "engine" else LOOP
        yield Stage("locate", located, batches, "batch", who)
    times = source.times()
    count = int(times.get("pictures", 0))
    if not count:
        return
    # Rows are timed on a sample of the pictures; see csrc/pipeline/stage_times.h.
    share = times["resize"] / times["looked_at"] if times["looked_at"] else 0.0
    made = [
        ("read", times["read"]),
        ("decode", times["decode"] * (1 - share)),
        ("resample", times["decode"] * share),
    ]
    if source.wish.normalization is not None:
        made.append(("normalise", times["finish"]))
    elif source.wish.planar:
        made.append(("collate", times["finish"]))
    for name, seconds in made:
        yield Stage(name, seconds, count, "picture", "decode threads", source.quota.threads)


def _arrays(loader: Any) -> Iterator[Stage]:
    memory = loader._runtime.array_memory
    if memory.gathered:
        threads = 1 if loader._runtime.arrays is None else loader._runtime.arrays.threads
        yield Stage("collate", memory.gather_s, memory.gathered, "batch", "gather threads", threads)


def _python(loader: Any) -> Iterator[Stage]:
    workers = loader.num_workers
    if workers and loader.worker_backend == "process":
        rings = loader._runtime.rings
        if rings.fetched:
            fetch = rings.fetch_s - rings.collate_s
            yield Stage("fetch", fetch, rings.fetched, "batch", "worker processes", workers)
            yield Stage(
                "collate", rings.collate_s, rings.fetched, "batch", "worker processes", workers
            )
        return
    seconds, count = loader._runtime.delivery.statistics.total("fetch")
    if count:
        where = "worker threads" if workers else LOOP
        yield Stage("fetch", seconds, count, "batch", where, max(1, workers))


def _delivered(loader: Any) -> Iterator[Stage]:
    delivery = loader._runtime.delivery
    ring = delivery.ring_stats()
    if ring:
        count = int(ring["filled"])
        if ring["copied_bytes"]:
            thread = "the pump" if loader.num_workers else LOOP
            yield Stage("pack", ring["pack_s"], count, "batch", thread)
        yield Stage("copy", ring["device_s"], count, "batch", "the device, normalising too", 0)
    for name in ("copy", "normalise"):
        seconds, count = delivery.statistics.total(name)
        if count:
            yield Stage(name, seconds, count, "batch", LOOP)
