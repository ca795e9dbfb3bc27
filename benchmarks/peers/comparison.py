"""From the rounds of all contenders to ratios, held against what is promised of them.

Ratios are taken round by round: what slows the machine down for a while slows both sides.
"""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Iterable, Mapping
from typing import Any

from benchmarks.measure import ratio, spread
from benchmarks.peers.contender import Contender
from benchmarks.peers.scenarios import Row

Json = dict[str, Any]

# What the decoder is measured against, with a seek index of each picture.
FASTEST_PEERS = ["dataloader-torchvision-v2", "dataloader-pillow-simd", "dali", "ffcv"]
WITH_INDEX_AT_LEAST = 3.7
FIRST_BATCH_AT_MOST = 2.0  # steady batches
RESIZE_AT_MOST = 1.3  # of Pillow-SIMD's time
SCALING_AT_LEAST = 0.97  # of the bare decode's
GROWTH_AT_MOST = 1.05  # of the memory after the first epoch
# Of one picture in one thread, in the order in which they happen.
STAGES = {"read@1": "read", "own-roi@1": "decode the crop", "resample@1": "resample"}


def compared(
    rows: Iterable[Row], contenders: Mapping[str, Contender], judged: bool = True
) -> list[Json]:
    """Those rows whose contenders were measured. ``judged``: whether it is said of each if it keeps its
    promise."""
    found = []
    for row in rows:
        if row.slow not in contenders or row.fast not in contenders:
            continue
        slow, fast = contenders[row.slow], contenders[row.fast]
        value = ratio(slow.timing, fast.timing)
        met = value["median"] >= row.at_least if judged and row.at_least is not None else None
        spent = ratio(slow.cpu, fast.cpu)
        found.append({**dataclasses.asdict(row), "ratio": value, "cpu_ratio": spent, "met": met})
    return found


def by_name(rows: Iterable[Json]) -> dict[str, Json]:
    return {row["name"]: row for row in rows}


def quantiles(values: list[float]) -> Json:
    values = sorted(values)
    return {
        "mean": statistics.fmean(values),
        "median": statistics.median(values),
        "p95": values[int(0.95 * (len(values) - 1))],
    }


def further_rows(contenders: Mapping[str, Contender], threads: int) -> list[Json]:
    """What else there is of loaders over plain crops: first batches, how they scale, their memory."""
    rows: list[Json] = []
    timings = {name: contender.timing for name, contender in contenders.items()}

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


def breakdown(contenders: Mapping[str, Contender]) -> Json | None:
    """What a picture's time is made of with one decode thread, ms. CPU time, so that other work on
    the machine hardly shows."""
    cpu = {name: contender.cpu for name, contender in contenders.items()}
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


def groups_of(results: Json) -> dict[str, Json]:
    """Those whose rounds were interleaved, by name: each recipe, or each set of pictures; the pictures
    as they are have no name. All have ``ratios``, ``contenders``, ``skipped`` and ``failed``."""
    groups = results.get("recipes") or {"": results, **results.get("sets", {})}
    found = {}
    for name, each in groups.items():
        ratios = each["ratios"]
        found[name] = {
            **each,
            "ratios": list(ratios.values()) if isinstance(ratios, dict) else ratios,
            "contenders": each["contenders"] if "contenders" in each else each["scenarios"],
        }
    return found
