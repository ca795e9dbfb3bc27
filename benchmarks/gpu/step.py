"""The training step with FastLoader against the same step with one batch again and again, in pairs.

Two inputs: batches that lie in the ring's slots (no work for the CPU but delivery), and JPEGs decoded by
all threads. Free-running is the loader without a step.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from device import Device
from plan import Plan
from slots import Contents, MemoryLoader, pair
from training import Batch, Training, endless

from benchmarks.measure import ratio
from benchmarks.peers.scenarios import Settings, fast

AT_MOST = 1.01
FREE_AT_LEAST = 1.3
PREDICTED = (
    "memory 1.002, pictures 1.005: the normalise kernel of the next batch (58 MB, 20 us) takes its "
    "share of a step of some 45 ms, and the decode threads may keep the launching thread from its core "
    "for a moment, of which the launches' lead hides most. Free-running 20 times the step's rate from "
    "memory, 2 to 3 times from pictures (16 threads at 400 to 500 a second). No host waits."
)

Json = dict[str, Any]


def measure(device: Device, plan: Plan, settings: Settings) -> Json:
    """``settings``: where the JPEGs are and how many threads decode them."""
    inputs: dict[str, Callable[[], Json]] = {
        "memory": lambda: from_memory(device, plan),
        "pictures": lambda: compared(device, plan, endless(fast.on_device(settings))),
    }
    return {name: run() for name, run in inputs.items()}


def from_memory(device: Device, plan: Plan) -> Json:
    contents = Contents(plan.batch, 32 if plan.name == "rehearsal" else 224, pair)
    loader = MemoryLoader(device, contents, torch.bfloat16, channels_last=True)
    try:
        batches, _source = loader.iterate(1 << 40)
        return compared(device, plan, batches)
    finally:
        loader.close()


def compared(device: Device, plan: Plan, batches: Iterator[Batch]) -> Json:
    training = Training(device, plan, batches, plan.lead)
    free = free_running(device, plan, batches)
    loader, cached = training.pairs(plan.pairs)
    return {
        "batch": plan.batch,
        "seconds": {"loader": loader.seconds, "cached": cached.seconds},
        "images_per_s": plan.batch / loader.median,
        "of_cached": ratio(loader, cached),
        "free_images_per_s": plan.batch / free,
        "free_running": cached.median / free,
        "trace": training.trace(),
    }


def free_running(device: Device, plan: Plan, batches: Iterator[Batch]) -> float:
    """Seconds for a batch, with no step."""
    for _ in range(plan.lead):
        next(batches)
    device.synchronize()
    begin = time.perf_counter()
    for _ in range(plan.free_batches):
        next(batches)
    device.synchronize()
    return (time.perf_counter() - begin) / plan.free_batches


def photographs(data: Path | None, plan: Plan, work: Path) -> tuple[Path, str, int]:
    """A folder for an epoch, what is in it, and how many different pictures that are."""
    from benchmarks.peers import suite

    found = suite.photographs(data or suite.made(work / "made", plan.distinct_pictures))
    epoch = work / "epoch"
    distinct = suite.link(found, epoch, plan.epoch_batches * plan.batch)
    return epoch, data.name if data else "generated pictures", distinct
