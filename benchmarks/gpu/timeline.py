"""What a trace of torch's profiler says about steps: who made the host wait, when the GPU had nothing to
do."""

from __future__ import annotations

import collections
import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

STEP, CONTROL = "benchmark step", "benchmark control"

# What makes the calling thread wait for the device. An asynchronous copy to pageable memory, which
# waits too, is followed by one of these in torch.
WAITS = re.compile(r"cuda(Stream|Device|Event|Thread)Synchronize|cu(Stream|Ctx|Event)Synchronize")
WAITING_COPY = re.compile(r"cudaMemcpy(2D|3D)?(_v\d+)?$")

Json = dict[str, Any]


def read(path: Path) -> Json:
    """Of a Chrome trace in which each step is a range called STEP and, after them, one called CONTROL
    holds a synchronisation that must be seen. Counts are those of the thread that took the steps;
    ``problem`` says, in words, why they prove nothing, and is empty when they do."""
    events = [
        each
        for each in json.loads(path.read_text())["traceEvents"]
        if each.get("ph") == "X" and "dur" in each
    ]
    by_kind: dict[str, list[Json]] = collections.defaultdict(list)
    for each in events:
        by_kind[str(each.get("cat", "")).lower()].append(each)
    steps = sorted(named(by_kind["user_annotation"], STEP), key=lambda each: each["ts"])
    if not steps:
        raise RuntimeError(f"{path} holds no range {STEP!r}")
    controls = named(by_kind["user_annotation"], CONTROL)
    thread = (steps[0]["pid"], steps[0]["tid"])
    calls = by_kind["cuda_runtime"] + by_kind["cuda_driver"]
    begin, end = steps[0]["ts"], ended(steps[-1])
    steady = [each for each in calls if begin <= each["ts"] < end]
    mine = [each for each in steady if (each["pid"], each["tid"]) == thread]
    others = [each for each in steady if (each["pid"], each["tid"]) != thread]
    seen = [
        each
        for control in controls
        for each in calls
        if waits(each)
        and (each["pid"], each["tid"]) == thread
        and control["ts"] <= each["ts"] < ended(control)
    ]
    launches = sum("launch" in each["name"].lower() for each in mine)
    kernels = by_kind["kernel"]
    problem = ""
    if not kernels:
        problem = "there is no kernel in the trace"
    elif not launches:
        problem = "the trace shows no launch on the thread that took the steps"
    elif not seen:
        problem = "the trace does not show the synchronisation that was made on purpose"
    found: Json = {
        "steps": len(steps),
        "kernels": len(kernels),
        "launches": launches,
        "host_waits": counted(mine),
        "host_waits_of_other_threads": counted(others),
        "control_waits": len(seen),
        "problem": problem,
        "gpu_idle_share": None,
        "gpu_idle_share_with_copies": None,
    }
    if kernels:
        # The profiler's start may have drained the device: from the third step on.
        since = max(steps[min(2, len(steps) - 1)]["ts"], min(each["ts"] for each in kernels))
        until = max(ended(each) for each in kernels)
        copies = by_kind["gpu_memcpy"] + by_kind["gpu_memset"]
        found["gpu_idle_share"] = idle_share(kernels, since, until)
        found["gpu_idle_share_with_copies"] = idle_share(kernels + copies, since, until)
    return found


def named(events: Iterable[Json], name: str) -> list[Json]:
    return [each for each in events if each["name"] == name]


def ended(event: Json) -> float:
    return float(event["ts"]) + float(event["dur"])


def waits(event: Json) -> bool:
    return bool(WAITS.match(event["name"]) or WAITING_COPY.match(event["name"]))


def counted(events: Iterable[Json]) -> dict[str, int]:
    return dict(collections.Counter(each["name"] for each in events if waits(each)))


def idle_share(work: Iterable[Json], since: float, until: float) -> float | None:
    """Of the time in between, in which no event was at work; None when there is no such time."""
    if until <= since:
        return None
    busy, reached = 0.0, since
    for each in sorted(work, key=lambda each: float(each["ts"])):
        begin, end = max(float(each["ts"]), reached), min(ended(each), until)
        if end > begin:
            busy += end - begin
            reached = end
    return 1 - busy / (until - since)
