"""The whole of the results as Markdown. What the project has set itself as a target stands in the JSON
alone: a reader wants to know what came out."""

from __future__ import annotations

import statistics
from typing import Any

Json = dict[str, Any]


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
            _scaling(results),
            *(_set(each) for each in results.get("sets", {}).values()),
            missing("Skipped", results["skipped"]),
            missing("Failed", results["failed"]),
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
        f"{settings['repeats']} rounds, page cache warm{_where(settings)}. "
        "Ratios are medians over the rounds, in brackets the smallest and the largest."
    )
    return text + preliminary(results)


def preliminary(results: Json) -> str:
    if not results["busy"]:
        return ""
    load = results["settings"]["load_before"]
    return (
        "\n\n**Preliminary**: the machine was busy with other work (load "
        f"{load:.1f} before the first round)."
    )


def _where(settings: Json) -> str:
    device = settings.get("device")
    return "" if device is None else f", into the memory of {device}"


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
                "" if row is None else times(row["ratio"]),
                "" if row is None else f"{row['cpu_ratio']['median']:.2f} x",
            ]
        )
    head = ["scenario", "what", "output", "pictures/s", "CPU ms/picture", "FastLoader is faster by"]
    head += ["and takes less CPU by"]
    return table(head, lines)


def _peers(scenarios: Json) -> str:
    """Each peer once: its versions, and what to know of it."""
    lines: dict[str, str] = {}
    for each in scenarios.values():
        versions = ", ".join(f"{name} {value}" for name, value in each["versions"].items())
        remark = f" ({each['remark']})" if each["remark"] else ""
        lines.setdefault(each["peer"], f"- {each['peer']}: {versions}{remark}")
    return "\n".join(lines.values())


def _further(rows: list[Json]) -> str:
    lines = [[row["what"], times(row["value"])] for row in rows]
    return table(["what", "measured"], lines) if lines else ""


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
    return note + "\n\n" + table(["stage", "ms", "share"], lines)


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
    return table(head, lines) if lines else ""


def _scaling(results: Json) -> str:
    speeds = results["scaling"]
    counts = sorted({int(count) for each in speeds.values() for count in each})
    lines = [
        [name, *(f"{each[str(n)]['median']:.0f}" if str(n) in each else "" for n in counts)]
        for name, each in speeds.items()
    ]
    return table(["pictures/s with threads", *map(str, counts)], lines) if lines else ""


def _set(results: Json) -> str:
    """The loaders over pictures that were written again."""
    kilobytes = results["bytes_per_picture"] / 1e3
    head = f"## The same pictures as {results['label']}: {kilobytes:.0f} kB each"
    gone = missing("Failed", results["failed"])
    return "\n\n".join(part for part in (head, _speeds(results), gone) if part)


def missing(head: str, reasons: dict[str, str]) -> str:
    # Of a traceback, its last line says most.
    lines = [f"- {name}: {reason.strip().splitlines()[-1]}" for name, reason in reasons.items()]
    return f"{head}:\n\n" + "\n".join(lines) if lines else ""


def times(value: Json) -> str:
    return f"{value['median']:.2f} x ({value['min']:.2f} to {value['max']:.2f})"


def table(head: list[str], lines: list[list[str]]) -> str:
    rows = [head, ["---"] * len(head), *lines]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)
