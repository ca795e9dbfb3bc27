"""The bars of ``fastloader bench --source``, drawn from its results and nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from fastloader.cli.bench.plots import LIMIT, OURS, machine_line

Json = dict[str, Any]

THEIRS, NOBODYS = "#B0B0B0", "#E0E0E0"


def draw(results: Json, folder: Path) -> list[Path]:
    """None of results without contenders."""
    contenders, rows = results["contenders"], results["ratios"]
    if not contenders:
        return []
    # Figure without pyplot: no global state, no display, no backend to choose.
    figure = Figure(
        figsize=(14, 2.2 + 0.42 * max(len(contenders), len(rows))), layout="constrained"
    )
    speeds, ratios = (
        figure.subplots(1, 2, width_ratios=(1.15, 1)) if rows else (figure.subplots(), None)
    )
    _draw_speeds(speeds, contenders)
    if ratios is not None:
        _draw_ratios(ratios, rows)
    settings = results["settings"]
    figure.suptitle(
        f"The same photographs in different places: JPEG to 224x224, {settings['threads']} threads or "
        f"workers, batches of {settings['batch_size']}\n{machine_line(results)}",
        fontsize=10,
    )
    path = folder / "sources.png"
    figure.savefig(path, dpi=130)
    return [path]


def _draw_speeds(axes: Any, contenders: Json) -> None:
    furthest = max(each["pictures_per_s"]["max"] for each in contenders.values())
    for row, each in enumerate(contenders.values()):
        speed = each["pictures_per_s"]
        ours = each["label"].startswith("FastLoader")
        colour = OURS if ours else THEIRS if each["output"] else NOBODYS
        _bar(axes, row, speed, colour, f"{speed['median']:.0f}", furthest)
    axes.set_yticks(range(len(contenders)), [each["label"] for each in contenders.values()])
    axes.invert_yaxis()  # the table's order, from the top
    axes.set_xlim(0, furthest * 1.15)
    axes.set_xlabel("pictures per second (median; the line spans all rounds)")


def _draw_ratios(axes: Any, rows: Json) -> None:
    furthest = max(1.0, *(each["ratio"]["max"] for each in rows.values()))
    for row, each in enumerate(rows.values()):
        _bar(axes, row, each["ratio"], OURS, f"{each['ratio']['median']:.2f}", furthest)
    axes.axvline(1, color=LIMIT, linestyle="--", linewidth=1)
    axes.set_yticks(
        range(len(rows)), [each["what"].replace(", of ", "\nof ") for each in rows.values()]
    )
    axes.tick_params(axis="y", labelsize=8)
    axes.invert_yaxis()
    axes.set_xlim(0, furthest * 1.15)
    axes.set_xlabel("times as fast (median; the line spans all rounds)")


def _bar(axes: Any, row: int, value: Json, colour: str, text: str, furthest: float) -> None:
    axes.barh(row, value["median"], 0.7, color=colour)
    axes.plot([value["min"], value["max"]], [row, row], color="#333333", linewidth=1.2)
    # On white: a mark may pass behind it.
    axes.text(
        value["max"] + furthest * 0.015,
        row,
        text,
        va="center",
        fontsize=8,
        bbox={"facecolor": "white", "edgecolor": "none", "pad": 1},
    )
