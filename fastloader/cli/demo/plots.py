"""The two pictures that ``fastloader demo`` leaves: what it saw, and how long it waited."""

from __future__ import annotations

from pathlib import Path

from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from fastloader.cli.demo.training import Run

# Of Okabe and Ito: told apart by the colour-blind and in grey.
_COLOURS = {"FastLoader": "#0072B2", "DataLoader": "#E69F00"}


def draw_batches(run: Run, file: Path) -> None:
    """A grid: a row for each batch kept, its first pictures with their classes."""
    rows, columns = len(run.shown), max(len(labels) for _, labels in run.shown)
    # Figure without pyplot: no global state, no display, no backend to choose.
    figure = Figure(figsize=(1.6 * columns, 1.85 * rows + 0.5), layout="constrained")
    figure.suptitle(f"Batches as {run.job.loader} delivered them, normalisation undone")
    axes = figure.subplots(rows, columns, squeeze=False)
    steps = [1, (run.job.steps + 1) // 2, run.job.steps]
    for row, (images, labels) in enumerate(run.shown):
        for column in range(columns):
            cell = axes[row][column]
            cell.set_xticks([])
            cell.set_yticks([])
            if column >= len(labels):
                cell.axis("off")
                continue
            cell.imshow(images[column], interpolation="antialiased")
            cell.set_title(_shortened(run.classes[labels[column]]), fontsize=9)
            for side in cell.spines.values():
                side.set_visible(False)
        step = steps[row] if rows == len(steps) else row + 1
        axes[row][0].set_ylabel(f"step {step}", fontsize=10)
    figure.savefig(file, dpi=110)


def draw_waits(runs: list[Run], file: Path) -> None:
    """Time the training loop waited for each batch, on a logarithmic axis: a batch that is ready
    takes a hundredth of one that is not."""
    figure = Figure(figsize=(10, 4.8), layout="constrained")
    axes = figure.subplots()
    for run, marker in zip(runs, "o^"):
        milliseconds = [max(wait * 1e3, 1e-3) for wait in run.waits]
        middle = sorted(milliseconds)[len(milliseconds) // 2]
        colour = _COLOURS[run.job.loader]
        steps = range(1, len(milliseconds) + 1)
        axes.plot(steps, milliseconds, color=colour, linewidth=0.7, alpha=0.5)
        axes.plot(
            steps,
            milliseconds,
            marker,
            color=colour,
            markersize=3.5,
            label=f"{run.job.loader} (half of the steps under {middle:.3g} ms)",
        )
        axes.axhline(middle, color=colour, linewidth=1, linestyle="--")
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.set_xlim(0, len(runs[0].waits) + 1)
    axes.set_xlabel("step")
    axes.set_ylabel("waited for a ready batch, ms")
    job = runs[0].job
    axes.set_title(
        f"Time the training loop waited for data: {job.device}, "
        f"batches of {job.batch_size}, {job.workers} decode threads or workers"
    )
    axes.grid(True, axis="y", linewidth=0.4, alpha=0.6)
    # Below, where no point can be hidden.
    figure.legend(loc="outside lower center", ncols=2, frameon=False)
    figure.savefig(file, dpi=110)


def _shortened(name: str, limit: int = 14) -> str:
    return name if len(name) <= limit else name[: limit - 1] + "…"
