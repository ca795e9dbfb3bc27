"""The bars of ``fastloader bench --recipe``, drawn from its results and nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from fastloader.cli.bench.plots import OURS, OURS_FLOAT, machine_line
from fastloader.cli.bench.recipes import NATIVE
from fastloader.cli.bench.recipes.comparison import ROWS

Json = dict[str, Any]

COLOURS = [OURS, OURS_FLOAT, "#7FB3D5", "#B0B0B0"]
THICK = 0.2


def draw(results: Json, folder: Path) -> list[Path]:
    """None of results that hold no ratio."""
    recipes = {name: each for name, each in results["recipes"].items() if each["ratios"]}
    if not recipes:
        return []
    # Figure without pyplot: no global state, no display, no backend to choose.
    figure = Figure(figsize=(10, 2.2 + 0.9 * len(recipes)), layout="constrained")
    axes = figure.subplots()
    furthest = 1.0
    for place, row in enumerate(ROWS):
        label = row.label.format(threads=results["settings"]["threads"])
        for number, recipe in enumerate(recipes.values()):
            value = recipe["ratios"].get(row.name)
            if value is None:
                continue
            at, measured = number + (place - 1.5) * THICK, value["ratio"]
            axes.barh(at, measured["median"], THICK * 0.92, color=COLOURS[place], label=label)
            axes.plot([measured["min"], measured["max"]], [at, at], color="#333333", linewidth=1.2)
            axes.annotate(
                f"{measured['median']:.2f}",
                (measured["max"], at),
                xytext=(5, 0),
                textcoords="offset points",
                va="center",
                fontsize=8,
            )
            furthest = max(furthest, measured["max"])
            label = "_"  # a legend has each row once
    axes.axvline(1, color="black", linestyle="--", linewidth=1)
    axes.set_yticks(range(len(recipes)), [_label(each) for each in recipes.values()])
    axes.invert_yaxis()  # the table's order, from the top
    axes.set_xlim(0, furthest * 1.1)
    axes.set_xlabel("times as fast as DataLoader (median of the rounds; the line spans all rounds)")
    figure.legend(loc="outside lower center", ncols=2, frameon=False, fontsize=9)
    figure.suptitle(
        "FastLoader against DataLoader over the original datasets and transforms, batches of "
        f"{results['settings']['batch_size']}\n{machine_line(results)}",
        fontsize=10,
    )
    path = folder / "recipes.png"
    figure.savefig(path, dpi=130)
    return [path]


def _label(recipe: Json) -> str:
    way = "" if recipe["way"] == NATIVE else f", {recipe['way']}"
    return f"{recipe['label']}\n{recipe['output']}{way}"
