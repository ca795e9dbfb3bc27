"""What was measured of the recipes, as Markdown."""

from __future__ import annotations

import statistics
from typing import Any

from fastloader.cli.bench.recipes.comparison import ROWS
from fastloader.cli.bench.tables import missing, preliminary, table, times

Json = dict[str, Any]


def markdown(results: Json) -> str:
    """The whole of the results for a reader."""
    parts = [_head(results), _ratios(results), _speeds(results["recipes"]), *_plans(results)]
    parts += [missing(f"{word.title()}", _gone(results, word)) for word in ("skipped", "failed")]
    return "\n\n".join(part for part in parts if part)


def _head(results: Json) -> str:
    machine, settings = results["machine"], results["settings"]
    threads = settings["threads"]
    return (
        f"# Recipes, {machine['date']}\n\n{machine['cpu']}, {machine['cores']} cores, "
        f"{machine['isa']}. {settings['data']}: {settings['distinct_pictures']} photographs, "
        f"{settings['pictures']} in an epoch, batch {settings['batch_size']}, {threads} threads "
        f"against {threads} worker processes, {settings['repeats']} rounds, page cache warm. The "
        "numbers say how many times as fast FastLoader is as a DataLoader over the original "
        "dataset and transforms, on Pillow's pictures: medians over the rounds, in brackets the "
        f"smallest and the largest.{preliminary(results)}"
    )


def _ratios(results: Json) -> str:
    threads = results["settings"]["threads"]
    lines = []
    for name, recipe in results["recipes"].items():
        ratios = recipe["ratios"]
        if not ratios:
            continue
        line = [name, recipe["label"], recipe["output"]]
        for row in ROWS:
            value = ratios.get(row.name)
            line.append("" if value is None else times(value["ratio"]))
        lines.append(line)
    head = ["recipe", "what", "output", *(row.label.format(threads=threads) for row in ROWS)]
    return table(head, lines) if lines else ""


def _speeds(recipes: Json) -> str:
    lines = []
    for name, recipe in recipes.items():
        for each in recipe["contenders"].values():
            speed = each["pictures_per_s"]
            cpu = 1e3 * statistics.median(each["cpu_s_per_picture"])
            shown = f"{speed['median']:.0f} ({speed['min']:.0f} to {speed['max']:.0f})"
            lines.append([name, each["label"], shown, f"{cpu:.2f}"])
    return table(["recipe", "loader", "pictures/s", "CPU ms/picture"], lines) if lines else ""


def _plans(results: Json) -> list[str]:
    """What ran: FastLoader's plans and the versions of all packages."""
    plans: list[str] = []
    versions: dict[str, str] = {}
    for name, recipe in results["recipes"].items():
        for kind, each in recipe["contenders"].items():
            versions |= each["versions"]
            if kind == "fastloader":
                plans.append(f"- {name}: {each['plan']}")
    listed = ", ".join(f"{name} {value}" for name, value in versions.items())
    return ["What FastLoader ran:\n\n" + "\n".join(plans), listed] if plans else []


def _gone(results: Json, word: str) -> dict[str, str]:
    return {
        f"{name}, {kind}": reason
        for name, recipe in results["recipes"].items()
        for kind, reason in recipe[word].items()
    }
