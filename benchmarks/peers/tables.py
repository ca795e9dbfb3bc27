"""The whole of the results as Markdown. What the project has set itself as a target stands in the JSON
alone: a reader wants to know what came out."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from typing import Any

from benchmarks.peers.comparison import groups_of

Json = dict[str, Any]


def markdown(results: Json) -> str:
    """The whole of the results for a reader."""
    groups = groups_of(results)
    parts = [
        _head(results),
        *(_of_pictures(each) for each in groups.values()),
        _ratios(groups),
        _speeds(groups),
        _further(results.get("further", [])),
        _made_of(results.get("breakdown")),
        _memory(results.get("scenarios", {})),
        _scaling(results.get("scaling", {})),
        _mongodb(results["settings"].get("mongodb")),
        _what_ran(groups),
        *(_missing(word, groups) for word in ("skipped", "failed")),
    ]
    return "\n\n".join(part for part in parts if part)


def _head(results: Json) -> str:
    machine, settings = results["machine"], results["settings"]
    title, made = "Peers", "RandomResizedCrop-224 and flip, "
    about = ""
    if "recipes" in results:
        title, made = "Recipes", ""
        about = (
            " Ratios say how many times as fast FastLoader is as a DataLoader over the original dataset "
            "and transforms, on Pillow's pictures."
        )
    elif "sources" in results:
        title, made = "Where pictures lie", made + "uint8, "
        where = "; ".join(f"{name}: {label}" for name, label in results["sources"].items())
        about = f" The same photographs as {where}."
    device = settings.get("device")
    text = (
        f"# {title}, {machine['date']}\n\n{machine['cpu']}, {machine['cores']} cores, "
        f"{machine['isa']}. {settings['data']}: {settings['distinct_pictures']} photographs, "
        f"{settings['pictures']} in an epoch, batch {settings['batch_size']}, {made}"
        f"{settings['threads']} threads or worker processes, {settings['repeats']} rounds, page cache "
        f"warm{'' if device is None else f', into the memory of {device}'}.{about} Ratios are medians "
        "over the rounds, in brackets the smallest and the largest."
    )
    if results["busy"]:
        text += (
            "\n\n**Preliminary**: the machine was busy with other work (load "
            f"{settings['load_before']:.1f} before the first round)."
        )
    return text


def _of_pictures(group: Json) -> str:
    if "bytes_per_picture" not in group:
        return ""
    kilobytes = group["bytes_per_picture"] / 1e3
    return f"The same pictures as {group['label']}: {kilobytes:.0f} kB each."


def _ratios(groups: dict[str, Json]) -> str:
    lines = [
        [name, row["what"], _times(row["ratio"]), f"{row['cpu_ratio']['median']:.2f} x"]
        for name, group in groups.items()
        for row in group["ratios"]
    ]
    return _table(["of", "what", "times as fast", "takes less CPU by"], lines)


def _speeds(groups: dict[str, Json]) -> str:
    lines = []
    for group, name, each in _contenders(groups):
        speed, first = each["pictures_per_s"], each["first_batch_s"]
        lines.append(
            [
                group,
                name,
                each["label"],
                each["output"],
                f"{speed['median']:.0f} ({speed['min']:.0f} to {speed['max']:.0f})",
                f"{1e3 * statistics.median(each['cpu_s_per_picture']):.2f}",
                f"{1e3 * statistics.median(first):.0f}" if first else "",
            ]
        )
    head = ["of", "contender", "what", "output", "pictures/s", "CPU ms/picture"]
    return _table([*head, "first batch of a new loader, ms"], lines)


def _further(rows: list[Json]) -> str:
    return _table(["what", "measured"], [[row["what"], _times(row["value"])] for row in rows])


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
    return _table(head, lines)


def _scaling(speeds: Json) -> str:
    counts = sorted({int(count) for each in speeds.values() for count in each})
    lines = [
        [name, *(f"{each[str(n)]['median']:.0f}" if str(n) in each else "" for n in counts)]
        for name, each in speeds.items()
    ]
    return _table(["pictures/s with threads", *map(str, counts)], lines)


def _mongodb(about: Json | None) -> str:
    if about is None:
        return ""
    where = about["server_processor"]
    placed = "wherever it is" if where is None else f"on processor {where}"
    return (
        f"MongoDB: {about['server']}, {placed}; those who ask it on processor "
        f"{about['client_processor']}. The CPU time is theirs, without the server's."
    )


def _what_ran(groups: dict[str, Json]) -> str:
    """Each peer's versions once, what to know of contenders, and FastLoader's plans."""
    versions: dict[str, Json] = {}
    remarks: dict[str, str] = {}
    plans = []
    for group, name, each in _contenders(groups):
        versions.setdefault(each["peer"], {}).update(each["versions"])
        if each["remark"]:
            remarks.setdefault(name, f"- {name}: {each['remark']}")
        if each["plan"]:
            plans.append(f"- {_called(group, name)}: {each['plan']}")
    lines = [
        f"- {peer}: " + ", ".join(f"{package} {value}" for package, value in found.items())
        for peer, found in versions.items()
    ]
    listed = "\n".join([*lines, *remarks.values()])
    return listed + ("\n\nWhat FastLoader ran:\n\n" + "\n".join(plans) if plans else "")


def _missing(word: str, groups: dict[str, Json]) -> str:
    # Of a traceback, its last line says most.
    lines = [
        f"- {_called(group, name)}: {reason.strip().splitlines()[-1]}"
        for group, each in groups.items()
        for name, reason in each[word].items()
    ]
    return f"{word.title()}:\n\n" + "\n".join(lines) if lines else ""


def _contenders(groups: dict[str, Json]) -> Iterable[tuple[str, str, Json]]:
    for group, each in groups.items():
        for name, contender in each["contenders"].items():
            yield group, name, contender


def _called(group: str, name: str) -> str:
    return f"{group}, {name}" if group else name


def _times(value: Json) -> str:
    return f"{value['median']:.2f} x ({value['min']:.2f} to {value['max']:.2f})"


def _table(head: list[str], lines: list[list[str]]) -> str:
    """Nothing without lines. The column "of" stands there if a line has something in it."""
    if not lines:
        return ""
    if head[0] == "of" and not any(line[0] for line in lines):
        head, lines = head[1:], [line[1:] for line in lines]
    rows = [head, ["---"] * len(head), *lines]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)
