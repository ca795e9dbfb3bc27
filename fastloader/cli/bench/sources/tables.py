"""What was measured of the places, as Markdown."""

from __future__ import annotations

import statistics
from typing import Any

from fastloader.cli.bench.tables import missing, preliminary, table, times

Json = dict[str, Any]


def markdown(results: Json) -> str:
    """The whole of the results for a reader."""
    parts = [_head(results), _ratios(results["ratios"]), _speeds(results["contenders"])]
    parts += [_mongodb(results), _plans(results["contenders"])]
    parts += [missing(word.title(), results[word]) for word in ("skipped", "failed")]
    return "\n\n".join(part for part in parts if part)


def _head(results: Json) -> str:
    machine, settings = results["machine"], results["settings"]
    threads = settings["threads"]
    where = "; ".join(f"{name}: {label}" for name, label in results["sources"].items())
    return (
        f"# Where pictures lie, {machine['date']}\n\n{machine['cpu']}, {machine['cores']} cores, "
        f"{machine['isa']}. {settings['data']}: {settings['distinct_pictures']} photographs, "
        f"{settings['pictures']} in an epoch, batch {settings['batch_size']}, RandomResizedCrop-224 "
        f"and flip, uint8, {threads} threads against {threads} worker processes, "
        f"{settings['repeats']} rounds, page cache warm. Ratios say how many times as fast the first "
        "is as the second: medians over the rounds, in brackets the smallest and the largest."
        f"{preliminary(results)}\n\nThe same photographs as {where}."
    )


def _ratios(rows: Json) -> str:
    lines = [
        [
            row["what"],
            times(row["ratio"]),
            f"{row['cpu_ratio']['median']:.2f} x",
        ]
        for row in rows.values()
    ]
    head = ["what", "measured", "takes less CPU by"]
    return table(head, lines) if lines else ""


def _speeds(contenders: Json) -> str:
    lines = []
    for name, each in contenders.items():
        speed, first = each["pictures_per_s"], each["first_batch_s"]
        lines.append(
            [
                name,
                each["label"] + (f": {each['remark']}" if each["remark"] else ""),
                f"{speed['median']:.0f} ({speed['min']:.0f} to {speed['max']:.0f})",
                f"{1e3 * statistics.median(each['cpu_s_per_picture']):.2f}",
                f"{1e3 * statistics.median(first):.0f}" if first else "",
            ]
        )
    head = ["contender", "what", "pictures/s", "CPU ms/picture", "first batch of a new loader, ms"]
    return table(head, lines) if lines else ""


def _mongodb(results: Json) -> str:
    about = results["settings"]["mongodb"]
    if about is None:
        return ""
    where = about["server_processor"]
    placed = "wherever it is" if where is None else f"on processor {where}"
    return (
        f"MongoDB: {about['server']}, {placed}; those who ask it on processor "
        f"{about['client_processor']}. The CPU time is theirs, without the server's."
    )


def _plans(contenders: Json) -> str:
    """What ran: FastLoader's plans and the versions of all packages."""
    plans = [f"- {name}: {each['plan']}" for name, each in contenders.items() if each["plan"]]
    versions: dict[str, str] = {}
    for each in contenders.values():
        versions |= each["versions"]
    listed = ", ".join(f"{name} {value}" for name, value in versions.items())
    return "What FastLoader ran:\n\n" + "\n".join(plans) + f"\n\n{listed}" if plans else listed
