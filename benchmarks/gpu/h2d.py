"""Host to device: the ring against bare pinned copies of the same sizes.

From the first FILLED slot to the last ticket, over ``h2d_count`` batches that lie in their slots
already, with everything that a loader does for a batch but decoding it: pump, prefetch thread, credits,
reaper, next(). "bytes" delivers the images as they are; "normalised" what training takes, images in
bfloat16 and channels_last with their labels, whose kernel runs beside the next copy, on a stream of its
own.
"""

from __future__ import annotations

import time
from typing import Any

import torch
from ceilings import PinnedCopy
from device import Device
from plan import Plan
from slots import Contents, MemoryLoader, images_alone, pair

from benchmarks.measure import interleaved, ratio

AT_LEAST = 0.95
PREDICTED = {
    "bytes": "0.98 from 64 pictures on: a batch costs two Python threads some 60 us, beside the copy "
    "of 9.6 MB (180 us at 55 GB/s); with 8 pictures (22 us) they are the limit, 0.3",
    "normalised": "0.98, as for bytes: the kernel of a batch (115 MB at 2.7 TB/s, 43 us, for 256 "
    "pictures) runs on a stream of its own while the next copy (700 us) crosses the link; on one stream "
    "with the copies it would be 0.93, since the link would rest meanwhile",
}

Json = dict[str, Any]


def measure(device: Device, plan: Plan) -> Json:
    results: Json = {}
    for variant, structure, dtype in (
        ("bytes", images_alone, None),
        ("normalised", pair, torch.bfloat16),
    ):
        results[variant] = {}
        for batch in plan.h2d_batches:
            contents = Contents(batch, plan.side, structure)
            results[variant][str(batch)] = against_bare(
                device, plan, contents, dtype, channels_last=dtype is not None
            )
    return results


def against_bare(
    device: Device, plan: Plan, contents: Contents, dtype: torch.dtype | None, channels_last: bool
) -> Json:
    loader = MemoryLoader(device, contents, dtype, channels_last)
    bare = PinnedCopy(device, contents.slot_bytes)
    try:
        timings = interleaved(
            {
                "bare": lambda: bare.run(plan.h2d_count),
                "ring": lambda: one_pass(device, loader, plan.h2d_count),
            },
            plan.h2d_repeats,
            warm_up=1,
        )
        ring = loader.ring()
    finally:
        loader.close()
    if ring["copied_bytes"]:
        raise RuntimeError(f"{ring['copied_bytes']} bytes were copied into slots: not in place")
    moved = contents.slot_bytes * plan.h2d_count
    return {
        "batch_bytes": contents.slot_bytes,
        "batches": plan.h2d_count,
        "pinned": ring["pinned"],
        "why_not_pinned": ring["why_not_pinned"],
        "gb_per_s": {name: moved / timing.median / 1e9 for name, timing in timings.items()},
        "seconds": {name: timing.seconds for name, timing in timings.items()},
        "of_bare": ratio(timings["bare"], timings["ring"]),
    }


def one_pass(device: Device, loader: MemoryLoader, count: int) -> float:
    device.synchronize()
    batches, source = loader.iterate(count)
    delivered = 0
    for _batch in batches:
        delivered += 1
    device.synchronize()  # the current stream waits for the last ticket
    seconds = time.perf_counter() - source.first_filled
    if delivered != count:
        raise RuntimeError(f"{delivered} of {count} batches arrived")
    return seconds
