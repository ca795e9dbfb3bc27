"""The two pictures that ``fastloader demo`` leaves: what it cropped, and how long it waited."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle

from fastloader.cli.demo.crops import Cropped
from fastloader.cli.demo.table import times
from fastloader.cli.demo.training import Run

# Of Okabe and Ito: told apart by the colour-blind and in grey.
_COLOURS = {"FastLoader": "#0072B2", "DataLoader": "#E69F00"}
_EPOCHS = ("#E69F00", "#56B4E9", "#CC79A7")
_WAIT, _STEP = "#D55E00", "#B9C6D3"
_DIM = "#555B66"

_SECONDS = 3.0  # of the timeline


def draw_crops(pictures: list[Cropped], file: Path) -> None:
    """A column for each picture: the original with the boxes of its crops, then the crops."""
    rows, columns = 1 + len(pictures[0].crops), len(pictures)
    # Figure without pyplot: no global state, no display, no backend to choose.
    figure = Figure(
        figsize=(max(6.0, 1.9 * columns + 0.4), 1.95 * rows + 0.2), layout="constrained"
    )
    figure.suptitle("One batch in three epochs: where FastLoader cropped, and what it delivered")
    axes = figure.subplots(rows, columns, squeeze=False)
    for column, picture in enumerate(pictures):
        top = axes[0][column]
        _show(top, picture.original)
        top.set_title(_shortened(picture.name), fontsize=10)
        for crop, colour in zip(picture.crops, _EPOCHS):
            if crop.box is not None:
                left, upper, width, height = crop.box
                for thickness, edge in ((3.6, "white"), (2.0, colour)):
                    top.add_patch(
                        Rectangle((left, upper), width, height, fill=False, ec=edge, lw=thickness)
                    )
        for row, (crop, colour) in enumerate(zip(picture.crops, _EPOCHS), start=1):
            cell = axes[row][column]
            _show(cell, crop.pixels)
            for side in cell.spines.values():
                side.set(visible=True, color=colour, linewidth=3)
            if crop.mirrored:
                cell.set_xlabel("mirrored", fontsize=8, color=_DIM)
    axes[0][0].set_ylabel("the files", fontsize=10)
    for row in range(1, rows):
        axes[row][0].set_ylabel(f"epoch {row}", fontsize=10)
    figure.savefig(file, dpi=110)


def draw_waits(runs: list[Run], file: Path) -> None:
    """The first seconds of both loops, step by step; and what came of the whole of them, in bars."""
    figure = Figure(figsize=(11, 6.2), layout="constrained")
    parts: Any = figure.subfigures(2, 1, height_ratios=[1.25, 1])
    timeline, bars = parts
    _draw_timeline(timeline, runs)
    waiting, speed = bars.subplots(1, 2)
    waited = [sum(run.waits) for run in runs]
    ratio = _ratio(waited, "DataLoader waited {} times as long")
    title = f"waiting for data in the whole run, s\n{ratio}"
    _draw_bars(waiting, runs, waited, "{:.2f}", title)
    speeds = [run.images_per_second for run in runs]
    title = f"pictures per second\n{_ratio(speeds[::-1], 'FastLoader made {} times as many')}"
    _draw_bars(speed, runs, speeds, "{:.0f}", title)
    figure.savefig(file, dpi=110)


def _ratio(values: list[float], words: str) -> str:
    """How many times the first value the second is, in ``words``; empty if it is not more."""
    first, second = values
    return words.format(times(second / first)) if 0 < first < second else ""


def _draw_timeline(figure: Any, runs: list[Run]) -> None:
    axes = figure.subplots()
    job = runs[0].job
    window = min(_SECONDS, *(run.seconds for run in runs))
    names = []
    for lane, run in enumerate(runs):
        waits = list(zip(run.asked, run.waits))
        got = [asked + waited for asked, waited in waits]
        steps = [(begin, end - begin) for begin, end in zip(got, [*run.asked[1:], run.seconds])]
        inside = (-lane - 0.38, 0.76)
        axes.broken_barh(_before(steps, window), inside, fc=_STEP, ec="white", lw=0.4)
        axes.broken_barh(_before(waits, window), inside, fc=_WAIT, lw=0)
        done = sum(begin + length <= window for begin, length in steps)
        names.append(f"{run.job.loader}\n{done} steps")
    axes.set_yticks([-lane for lane in range(len(runs))], names, fontsize=11)
    axes.tick_params(axis="y", length=0)
    axes.set_xlim(0, window)
    axes.set_xlabel("seconds since the training began")
    axes.set_title(
        f"The first {window:.1f} seconds of the training loop: {job.device}, batches of "
        f"{job.batch_size}, num_workers={job.workers}",
        fontsize=12,
    )
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    keys = [Patch(fc=_WAIT, label="waits for data"), Patch(fc=_STEP, label="trains")]
    figure.legend(handles=keys, loc="outside lower center", ncols=2, frameon=False)


def _before(bars: list[tuple[float, float]], end: float) -> list[tuple[float, float]]:
    """Those that begin before ``end``, cut off there."""
    return [(begin, min(length, end - begin)) for begin, length in bars if begin < end]


def _draw_bars(axes: Any, runs: list[Run], values: list[float], shown: str, title: str) -> None:
    names = [run.job.loader for run in runs]
    drawn = axes.barh(names, values, color=[_COLOURS[name] for name in names], height=0.6)
    axes.bar_label(drawn, labels=[shown.format(value) for value in values], padding=4)
    axes.invert_yaxis()
    axes.set_xlim(0, 1.16 * max(values) or 1)
    axes.xaxis.set_visible(False)
    axes.tick_params(axis="y", length=0)
    for side in ("top", "right", "bottom"):
        axes.spines[side].set_visible(False)
    axes.set_title(title, fontsize=11)


def _show(axes: Any, pixels: Any) -> None:
    axes.imshow(pixels, interpolation="antialiased")
    axes.set_xticks([])
    axes.set_yticks([])
    for side in axes.spines.values():
        side.set_visible(False)


def _shortened(name: str, limit: int = 16) -> str:
    name = name.replace("$", r"\$")  # which would begin a formula
    return name if len(name) <= limit else name[: limit - 1] + "…"
