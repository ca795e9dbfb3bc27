"""What next() takes when the batch is ready."""

from __future__ import annotations

import time
from typing import Any

import torch
from device import Device
from plan import Plan
from slots import Contents, MemoryLoader, mapping, pair

AT_MOST_US = 30.0
PREDICTED = (
    "45 us in the median, which misses the goal, for a tuple as for a dict: on the twin it is 85 us of "
    "Python on a 2.1 GHz core with cold caches, of which a faster one takes half. More than half of it "
    "is offering memory for a later batch, where torch's allocator adds 3 us for each output and for a "
    "buffer. 90 us at 99 %, when the pump wakes in the middle and wants the GIL"
)

Json = dict[str, Any]


def measure(device: Device, plan: Plan) -> Json:
    return {
        name: calls(device, plan, Contents(plan.next_batch, plan.side, structure))
        for name, structure in (("tuple", pair), ("dict", mapping))
    }


def calls(device: Device, plan: Plan, contents: Contents) -> Json:
    loader = MemoryLoader(device, contents, torch.bfloat16, channels_last=True)
    taken: list[float] = []
    try:
        lead = 10
        batches, _source = loader.iterate(lead + plan.next_calls)
        for _ in range(lead):
            next(batches)
        before = loader.ring()
        for _ in range(plan.next_calls):
            # Long enough for the ring to be full again. The loop lets go of its batch, too.
            time.sleep(plan.next_pause_s)
            begin = time.perf_counter()
            batch = next(batches)
            taken.append(1e6 * (time.perf_counter() - begin))
            del batch
        after = loader.ring()
        batches.close()
        device.synchronize()
    finally:
        loader.close()
    asked = after["asked"] - before["asked"]
    taken.sort()
    return {
        "calls": len(taken),
        "median": taken[len(taken) // 2],
        "p99": taken[int(0.99 * (len(taken) - 1))],
        "min": taken[0],
        "max": taken[-1],
        # Batches that were in the ring when next() came, and what it waited for one all the same.
        "found": (after["found"] - before["found"]) / max(asked, 1),
        "waited_us": 1e6 * (after["consumer_wait_s"] - before["consumer_wait_s"]) / len(taken),
    }
