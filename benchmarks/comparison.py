"""From the rounds of all contenders to ratios, targets, and the tables."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Mapping
from typing import Any

from contender import Contender
from measure import Timing, ratio

Timings = Mapping[str, Timing]
Json = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Target:
    """``fast`` takes at most 1 / ``at_least`` of the time of ``slow``."""

    slow: str
    fast: str
    at_least: float | None = None  # None: nobody promised anything
    aim: float | None = None


LOADERS = [
    Target("dataloader-pillow", "fastloader-uint8", 1.9, 2.3),
    Target("dataloader-torchvision", "fastloader-float32", 2.8, 3.5),
    Target("dataloader-torchvision-v2", "fastloader-uint8", 1.7, 2.2),
    Target("dataloader-pillow-simd", "fastloader-uint8", 1.7, 2.2),
    Target("dali", "fastloader-uint8", 1.7, 2.2),
    Target("ffcv", "fastloader-uint8", 1.7, 2.2),
    Target("spdl", "fastloader-uint8"),
    Target("timm", "fastloader-float32"),
    Target("bare-decode", "fastloader-uint8", 1.08, 1.25),
    Target("bare-roi", "fastloader-uint8"),
]
FIRST_BATCH_AT_MOST = 2.0  # steady batches
RESIZE_AT_MOST = 1.3  # of Pillow-SIMD's time
SCALING_AT_LEAST = 0.97  # of the bare decode's
GROWTH_AT_MOST = 1.05  # of the memory after the first epoch
# Of one picture in one thread, in the order in which they happen.
STAGES = {"read@1": "read", "bare-roi@1": "decode the crop", "resample@1": "resample"}


def spread(values: list[float]) -> Json:
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}


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
            add(
                f"first batch of a new loader, in steady batches: {name}",
                spread(contender.first_batches),
                at_most=FIRST_BATCH_AT_MOST if contender.scenario.peer == "fastloader" else None,
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


def markdown(results: Json) -> str:
    """The whole of the results for a reader."""
    return "\n\n".join(
        part
        for part in (
            _head(results),
            _speeds(results),
            _peers(results["scenarios"]),
            _further(results["further"]),
            _made_of(results["breakdown"]),
            _memory(results["scenarios"]),
            _missing("Skipped", results["skipped"]),
            _missing("Failed", results["failed"]),
        )
        if part
    )


def _head(results: Json) -> str:
    machine, settings = results["machine"], results["settings"]
    text = (
        f"# Peers, {machine['date']}\n\n{machine['cpu']}, {machine['cores']} cores, "
        f"{machine['isa']}. {settings['data']}: {settings['distinct_pictures']} photographs, "
        f"{settings['pictures']} in an epoch, batch {settings['batch_size']}, "
        f"RandomResizedCrop-224 and flip, {settings['threads']} threads or worker processes, "
        f"{settings['repeats']} rounds, page cache warm. Ratios are medians over the rounds, in "
        "brackets the smallest and the largest."
    )
    if results["busy"]:
        text += (
            f"\n\n**Preliminary**: the machine was busy with other work (load "
            f"{settings['load_before']:.1f} before the first round)."
        )
    return text


def _speeds(results: Json) -> str:
    ratios = {row["slow"]: row for row in results["ratios"]}
    lines = []
    for name, each in results["scenarios"].items():
        speed, row = each["pictures_per_s"], ratios.get(name)
        lines.append(
            [
                name,
                each["label"],
                each["output"],
                f"{speed['median']:.0f} ({speed['min']:.0f} to {speed['max']:.0f})",
                f"{1e3 * statistics.median(each['cpu_s_per_picture']):.2f}",
                "" if row is None else _times(row["ratio"]),
                "" if row is None else f"{row['cpu_ratio']['median']:.2f} x",
                "" if row is None else _promise("at least", row["at_least"], row["met"]),
            ]
        )
    head = ["scenario", "what", "output", "pictures/s", "CPU ms/picture", "FastLoader is faster by"]
    head += ["and takes less CPU by", "target"]
    return _table(head, lines)


def _peers(scenarios: Json) -> str:
    """Each peer once: its versions, and what to know of it."""
    lines = {}
    for each in scenarios.values():
        versions = ", ".join(f"{name} {value}" for name, value in each["versions"].items())
        remark = f" ({each['remark']})" if each["remark"] else ""
        lines.setdefault(each["peer"], f"- {each['peer']}: {versions}{remark}")
    return "\n".join(lines.values())


def _further(rows: list[Json]) -> str:
    lines = []
    for row in rows:
        bound = "at least" if row["at_least"] is not None else "at most"
        limit = row["at_least"] if row["at_least"] is not None else row["at_most"]
        lines.append([row["what"], _times(row["value"]), _promise(bound, limit, row["met"])])
    return _table(["what", "measured", "target"], lines) if lines else ""


def _made_of(made: Json | None) -> str:
    if made is None:
        return ""
    whole = made["whole_ms"]["median"]
    lines = [
        [name, f"{value['median']:.3f}", f"{100 * value['median'] / whole:.0f} %"]
        for name, value in made["parts_ms"].items()
    ]
    lines.append(["fastloader-uint8@1", f"{whole:.3f}", "100 %"])
    note = (
        "What one picture's time is made of: CPU time with one decode thread. The stages are measured "
        "one at a time from memory; in the loader each row is resized while it is in cache, so the "
        "rest, which holds also the thread that consumes, may be negative."
    )
    return note + "\n\n" + _table(["stage", "ms", "share"], lines)


def _memory(scenarios: Json) -> str:
    lines = []
    for name, each in scenarios.items():
        if each["memory"] and each["output"]:
            shown = [
                f"{each['memory'][epoch - 1] / 1e6:.0f}" if epoch <= len(each["memory"]) else ""
                for epoch in (1, 2, 5)
            ]
            lines.append([name, *shown])
    head = ["memory of its own with workers, MB", "epoch 1", "epoch 2", "epoch 5"]
    return _table(head, lines) if lines else ""


def _missing(head: str, reasons: dict[str, str]) -> str:
    # Of a traceback, its last line says most.
    lines = [f"- {name}: {reason.strip().splitlines()[-1]}" for name, reason in reasons.items()]
    return f"{head}:\n\n" + "\n".join(lines) if lines else ""


def _times(value: Json) -> str:
    return f"{value['median']:.2f} x ({value['min']:.2f} to {value['max']:.2f})"


def _promise(bound: str, limit: float | None, met: bool | None) -> str:
    return "" if limit is None else f"{bound} {limit} x: {'met' if met else 'NOT MET'}"


def _table(head: list[str], lines: list[list[str]]) -> str:
    rows = [head, ["---"] * len(head), *lines]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)
