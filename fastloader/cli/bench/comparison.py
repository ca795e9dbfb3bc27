"""From the rounds of all contenders to ratios, held against their targets.

Predicted, two threads on photographs of 470x400, uint8 unless said otherwise:
- 3.9 times DataLoader + Pillow. Pillow decodes the whole picture (1.9 ms) and resamples (0.5 ms) in
  scalar code; only the crop is decoded here, in 0.55 of libjpeg-turbo's 1.21 ms, and vector code
  resamples it in 0.11 ms.
- 4.6 times DataLoader + torchvision in float32, which adds ToTensor and Normalize, some five passes
  over the pixels and a batch of 38 MB through shared memory.
- 3.3 times Pillow-SIMD and torchvision v2, 3.2 times DALI, 3.5 times FFCV: all but DALI decode the
  whole picture, and all with libjpeg-turbo.
- 1.95 times libjpeg-turbo's decode of whole pictures: of its time the crop's decode takes 0.41, the
  resample 0.07, reading the file 0.01, and the rest 0.03.
- With a seek index 3.9 times the fastest peer: decoding the crop takes 0.47 of libjpeg-turbo's time in
  place of 0.55, and the hash of the file 0.01 ms.
- First batch of a new loader: 1.1 steady batches, since threads share its samples.
- Scaling from one thread to two 0.98 of the bare decode's: threads share nothing but a queue.
"""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Mapping
from typing import Any

from fastloader.cli.bench.contender import Contender
from fastloader.cli.bench.measure import Timing, ratio, spread
from fastloader.cli.bench.scenarios import ON_DEVICE

Timings = Mapping[str, Timing]
Json = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Target:
    """``fast`` takes at most 1 / ``at_least`` of the time of ``slow``."""

    slow: str
    fast: str
    at_least: float | None = None  # None: there is no promise
    aim: float | None = None


LOADERS = [
    Target("dataloader-pillow", "fastloader-uint8", 3.7),
    Target("dataloader-torchvision", "fastloader-float32", 3.7),
    Target("dataloader-torchvision-v2", "fastloader-uint8", 3.1),
    Target("dataloader-pillow-simd", "fastloader-uint8", 3.1),
    Target("dali", "fastloader-uint8", 3.1),
    Target("ffcv", "fastloader-uint8", 3.1),
    Target("spdl", "fastloader-uint8"),
    Target("timm", "fastloader-float32"),
    Target("bare-decode", "fastloader-uint8", 1.9),
    Target("bare-roi", "fastloader-uint8"),
    *(Target(name, "fastloader-device") for name in ON_DEVICE if name != "fastloader-device"),
]
# What the decoder is measured against, with a seek index of each picture.
FASTEST_PEERS = ["dataloader-torchvision-v2", "dataloader-pillow-simd", "dali", "ffcv"]
WITH_INDEX_AT_LEAST = 3.7
FIRST_BATCH_AT_MOST = 2.0  # steady batches
RESIZE_AT_MOST = 1.3  # of Pillow-SIMD's time
SCALING_AT_LEAST = 0.97  # of the bare decode's
GROWTH_AT_MOST = 1.05  # of the memory after the first epoch
# Of one picture in one thread, in the order in which they happen.
STAGES = {"read@1": "read", "own-roi@1": "decode the crop", "resample@1": "resample"}


def quantiles(values: list[float]) -> Json:
    values = sorted(values)
    return {
        "mean": statistics.fmean(values),
        "median": statistics.median(values),
        "p95": values[int(0.95 * (len(values) - 1))],
    }


def compared(contenders: Mapping[str, Contender], threads: int) -> Json:
    timings = {name: contender.timing for name, contender in contenders.items()}
    cpu = {name: contender.cpu for name, contender in contenders.items()}
    return {
        "ratios": against_loaders(timings, cpu),
        "further": further_rows(contenders, timings, threads),
        "breakdown": breakdown(cpu),
    }


def against_loaders(timings: Timings, cpu: Timings) -> list[Json]:
    rows = []
    for target in LOADERS:
        if target.slow not in timings or target.fast not in timings:
            continue
        value = ratio(timings[target.slow], timings[target.fast])
        met = None if target.at_least is None else value["median"] >= target.at_least
        spent = ratio(cpu[target.slow], cpu[target.fast])
        rows.append({**dataclasses.asdict(target), "ratio": value, "met": met, "cpu_ratio": spent})
    return rows


def further_rows(contenders: Mapping[str, Contender], timings: Timings, threads: int) -> list[Json]:
    rows: list[Json] = []

    def add(
        what: str, value: Json, at_least: float | None = None, at_most: float | None = None
    ) -> None:
        met = None
        if at_least is not None:
            met = value["median"] >= at_least
        if at_most is not None:
            met = value["median"] <= at_most
        rows.append(
            {"what": what, "value": value, "at_least": at_least, "at_most": at_most, "met": met}
        )

    for name, contender in contenders.items():
        if contender.first_batches:
            pairs = zip(contender.first_batches, contender.timing.seconds, strict=True)
            add(
                f"first batch of a new loader, in steady batches: {name}",
                spread([first / (each * contender.batch_size) for first, each in pairs]),
                at_most=FIRST_BATCH_AT_MOST if name == "fastloader-uint8" else None,
            )
            steady = contender.timing.median * contender.batch_size
            cold = contender.cold_first_batch_s / steady
            add(f"first batch of a new process, in steady batches: {name}", spread([cold]))
    scaling = {
        name: [
            one / many
            for one, many in zip(timings[f"{name}@1"].seconds, timings[name].seconds, strict=True)
        ]
        for name in ("fastloader-uint8", "bare-decode", "bare-roi")
        if name in timings and f"{name}@1" in timings
    }
    if threads > 1:
        for name, values in scaling.items():
            add(f"{name}, {threads} threads against 1", spread(values))
        for limit in ("bare-decode", "bare-roi"):
            if "fastloader-uint8" in scaling and limit in scaling:
                pairs = zip(scaling["fastloader-uint8"], scaling[limit], strict=True)
                add(
                    f"scaling 1 to {threads} threads, of {limit}'s",
                    spread([mine / bare for mine, bare in pairs]),
                    at_least=SCALING_AT_LEAST if limit == "bare-decode" else None,
                )
    indexed = timings.get("fastloader-index")
    for peer in FASTEST_PEERS:
        if indexed and peer in timings:
            add(
                f"fastloader-index is faster than {peer} by",
                ratio(timings[peer], indexed),
                at_least=WITH_INDEX_AT_LEAST,
            )
    mine = timings.get("resize-fastloader@1")
    for peer in ("pillow-simd", "pillow"):
        theirs = timings.get(f"resize-{peer}@1")
        if mine and theirs:
            add(
                f"resize 340x300 to 224x224, time of {peer}'s",
                ratio(mine, theirs),
                at_most=RESIZE_AT_MOST if peer == "pillow-simd" else None,
            )
    for name in ("fastloader-uint8", "fastloader-float32"):
        held = contenders[name].memory if name in contenders else []
        if len(held) > 1 and held[0]:
            last = min(5, len(held))
            add(
                f"memory after epoch {last}, of that after epoch 1: {name}",
                spread([held[last - 1] / held[0]]),
                at_most=GROWTH_AT_MOST,
            )
    return rows


def breakdown(cpu: Timings) -> Json | None:
    """What a picture's time is made of with one decode thread, ms. CPU time, so that other work on
    the machine hardly shows."""
    if any(name not in cpu for name in (*STAGES, "fastloader-uint8@1")):
        return None
    whole = cpu["fastloader-uint8@1"].seconds
    parts = {words: cpu[name].seconds for name, words in STAGES.items()}
    # Round by round, like every difference here.
    parts["rest"] = [
        total - sum(stages) for total, *stages in zip(whole, *parts.values(), strict=True)
    ]
    if "fastloader-float32@1" in cpu:
        normalised = cpu["fastloader-float32@1"].seconds
        parts["normalise, only in float32"] = [
            more - less for more, less in zip(normalised, whole, strict=True)
        ]
    made = {name: spread([1e3 * value for value in values]) for name, values in parts.items()}
    return {"whole_ms": spread([1e3 * value for value in whole]), "parts_ms": made}
