"""Shows the results of ``fastloader demo``: a table, and two pictures."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle
from numpy.typing import NDArray
from PIL import Image
from torch.utils.data import DataLoader, Subset

from fastloader import FastLoader, transforms
from fastloader.cli.demo_training import Run, make_dataset
from fastloader.datasets import ImageFolder
from fastloader.transforms._pillow import regular_file

# ---- Whether both loaders make the same pixels of the same pictures.


@dataclasses.dataclass(frozen=True)
class Comparison:
    """The same pictures through both loaders, without random steps, compared."""

    pictures: int
    equal: int  # of those, to the bit
    native: bool  # whether FastLoader's went another way than DataLoader's


def compare_pixels(folder: Path, size: int, at_most: int = 64) -> Comparison:
    """Resizes and crops some pictures of ``folder`` with both loaders."""
    chain = transforms.Compose(
        [transforms.Resize(size * 8 // 7), transforms.CenterCrop(size), transforms.PILToTensor()]
    )
    dataset = ImageFolder(folder, chain, allow_empty=True)
    step = max(1, len(dataset) // at_most)
    some = Subset(dataset, range(0, len(dataset), step)[:at_most])
    with FastLoader(some, len(some)) as loader:
        native = loader.plan().startswith("native images")
        fast = next(iter(loader))[0]
        plain = next(iter(DataLoader(some, len(some))))[0]
        equal = sum(torch.equal(one, other) for one, other in zip(fast, plain))
    return Comparison(len(some), equal, native)


# ---- The table that ``fastloader demo`` prints.


def side_by_side(runs: list[Run], pixels: Comparison) -> str:
    """Writes the runs side by side, with what the figures mean and what was checked below."""
    job = runs[0].job
    head = (
        f"{job.steps} steps of {job.batch_size} pictures {job.size}x{job.size} on {job.device}, "
        f"threads of torch: {runs[0].threads}"
    )
    waited = [sum(run.waits) for run in runs]
    first = [1e3 * run.waits[0] for run in runs]
    memory = [run.memory for run in runs]
    rows = [
        _Row("", [run.job.loader for run in runs], "better by"),
        _Row("ImageFolder runs", [_runs(run) for run in runs]),
        _Row("pictures are decoded by", [_decoded_by(run) for run in runs]),
        _more("images/s, after the first batch", [run.images_per_second for run in runs], "{:.0f}"),
        _less("waiting for data, s (1)", waited, "{:.2f}"),
        _Row(
            "  % of the training time",
            [f"{100 * sum(run.waits) / run.seconds:.1f}" for run in runs],
        ),
        _less("first batch after, ms (2)", first, "{:.0f}"),
        _less("peak memory with workers, MB (3)", memory, "{:.0f}", 1e6),
    ]
    if any(run.device_memory is not None for run in runs):
        held = [run.device_memory for run in runs]
        rows.append(_Row(f"peak {job.device} memory, MB (5)", [_megabytes(each) for each in held]))
    rows.append(_less("CPU time with workers, s", [run.cpu for run in runs], "{:.2f}"))
    rows.append(_less("training time, s", [run.seconds for run in runs], "{:.2f}"))
    rows.append(_Row("final loss (4)", [f"{run.final_loss:.4f}" for run in runs]))
    return "\n".join([head, "", *_aligned(rows), "", *_notes(runs), "", *_checks(runs, pixels)])


def gain(runs: list[Run]) -> str:
    """Says in one sentence what was gained, and why it is not what README says."""
    fast, plain = runs
    ratio = fast.images_per_second / plain.images_per_second
    faster = (
        f"trained {times(ratio)} times as fast" if ratio >= 1.005 else "did not train faster here"
    )
    return (
        f"FastLoader {faster}, on {fast.cpu:.1f} s of CPU time where DataLoader took {plain.cpu:.1f} s: "
        f"its loop waited {sum(fast.waits):.1f} s for data, and DataLoader's {sum(plain.waits):.1f} s. "
        "README's chart compares loading alone: no loader makes the steps themselves faster."
    )


def times(ratio: float) -> str:
    """Writes a ratio with as many digits as mean something."""
    return f"{ratio:.2f}" if ratio < 2 else f"{ratio:.1f}" if ratio < 20 else f"{ratio:.0f}"


class _Row(NamedTuple):
    label: str
    values: list[str]
    better: str = ""


def _more(label: str, values: list[float], shown: str) -> _Row:
    """Makes a row of which the larger value is the better one."""
    ours, theirs = values
    better = f"{times(ours / theirs)} x" if theirs > 0 else ""
    return _Row(label, [shown.format(value) for value in values], better)


def _less(label: str, values: Sequence[float | None], shown: str, unit: float = 1) -> _Row:
    """Makes a row of which the smaller value is the better one. None is not known."""
    ours, theirs = values
    better = f"{times(theirs / ours)} x" if ours and theirs else ""
    texts = ["not known" if value is None else shown.format(value / unit) for value in values]
    return _Row(label, texts, better)


def _aligned(rows: list[_Row]) -> list[str]:
    cells = [[row.label, *row.values, row.better] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells)]
    lines = [
        "   ".join(
            text.rjust(width) if place else text.ljust(width)
            for place, (text, width) in enumerate(zip(row, widths))
        ).rstrip()
        for row in cells
    ]
    return [lines[0], "-" * len(lines[0]), *lines[1:]]


def _notes(runs: list[Run]) -> list[str]:
    notes = [
        "(1) from asking for a batch to having it normalised on the device: for FastLoader next(),",
        "    for DataLoader next() and then .to(device).float().div_(255).sub_(mean).div_(std)",
        "(2) from iter(), so worker processes and threads are started in it; those processes begin by",
        f"    {runs[1].started_by}, Python's default on this system",
        "(3) proportional set size: pages shared between processes count once; sampled 5 times a "
        "second",
    ]
    began = " and ".join(f"{run.losses[0]:.4f}" for run in runs)
    notes.append(f"(4) mean over the last tenth of the steps; it began at {began}")
    if runs[0].plan.startswith("native images"):
        notes += [
            "    the crops are of the same distribution but of other random numbers, so that the",
            "    losses are alike, not equal",
        ]
    if any(run.device_memory is not None for run in runs):
        notes.append("(5) of torch's allocator, for model, activations and batches")
    return notes


def _runs(run: Run) -> str:
    return "natively" if run.plan.startswith("native images") else "in Python"


def _decoded_by(run: Run) -> str:
    count = run.job.workers
    if run.plan.startswith("native images"):
        return "threads" if count == 0 else "1 thread" if count == 1 else f"{count} threads"
    return "this process" if count == 0 else "1 process" if count == 1 else f"{count} processes"


def _checks(runs: list[Run], pixels: Comparison) -> list[str]:
    """Lists what must be equal, and whether it is."""
    fast = runs[0]
    order = "the same" if all(run.labels == fast.labels for run in runs) else "NOT THE SAME"
    lines = [
        f"checked: the classes of all {len(fast.labels)} pictures, in order: {order} with both loaders"
    ]
    how = "to the bit" if pixels.native else "though FastLoader did not take its native path"
    lines.append(
        f"checked: {pixels.pictures} pictures resized and centre-cropped by both: {pixels.equal} equal, "
        f"{how}"
    )
    if pixels.equal < pixels.pictures:
        lines.append(
            "         (they are with any version of Pillow; Pillow-SIMD resizes otherwise)"
        )
    if not fast.plan.startswith("native images"):
        lines.append(f"FastLoader took the {fast.plan.splitlines()[0]}")
    return lines


def _megabytes(count: int | None) -> str:
    return "not known" if count is None else f"{count / 1e6:.0f}"


# ---- What FastLoader cut from some pictures, epoch by epoch, for ``fastloader demo`` to draw.


EPOCHS = 3
_PICTURES = 6
_LONGEST_SIDE = 400  # of an original as it is shown

Pixels = NDArray[np.uint8]
Box = tuple[float, float, float, float]  # left, top, width, height


@dataclasses.dataclass(frozen=True)
class Crop:
    """The crop of a picture in one epoch. ``box`` is in the pixels of the original as it is shown; None
    if FastLoader did not take its native path."""

    pixels: Pixels
    box: Box | None
    mirrored: bool


@dataclasses.dataclass(frozen=True)
class Cropped:
    """A picture, its class, and its crops by epoch."""

    original: Pixels
    name: str
    crops: list[Crop]


def crop_some(folder: Path, size: int, seed: int) -> list[Cropped]:
    """Takes pictures from all over ``folder`` in a batch, once in each of `EPOCHS`."""
    dataset = make_dataset(folder, size)
    count = min(_PICTURES, len(dataset))
    chosen = [number * len(dataset) // count for number in range(count)]
    found = []
    for index in chosen:
        path, label = dataset.samples[index]
        with regular_file(path) as opened, Image.open(opened) as file:
            whole = file.width
            shown = file.convert("RGB")
            shown.thumbnail((_LONGEST_SIDE, _LONGEST_SIDE))
        made = Cropped(np.asarray(shown), dataset.classes[label], [])
        found.append((index, shown.width / whole, made))

    generator = torch.Generator().manual_seed(seed)
    with FastLoader(dataset, count, sampler=chosen, num_workers=1, generator=generator) as loader:
        for _ in range(EPOCHS):
            images, _ = next(iter(loader))
            for (index, scale, picture), pixels in zip(found, images):
                box, mirrored = _replayed(loader, index, scale)
                kept = pixels.permute(1, 2, 0).contiguous().numpy()
                picture.crops.append(Crop(kept, box, mirrored))
    return [picture for _, _, picture in found]


def _replayed(loader: FastLoader[object], index: int, scale: float) -> tuple[Box | None, bool]:
    try:
        drawn = loader.replay(index)
    except ValueError:  # the Python path draws where nobody sees it
        return None, False
    left, top, width, height = (scale * side for side in drawn["box"])
    return (left, top, width, height), bool(drawn["hflip"])


# ---- The two pictures that ``fastloader demo`` leaves: what it cropped, and how long it
# waited.


# Of Okabe and Ito: told apart by the colour-blind and in grey.
_COLOURS = {"FastLoader": "#0072B2", "DataLoader": "#E69F00"}
_EPOCHS = ("#E69F00", "#56B4E9", "#CC79A7")
_WAIT, _STEP = "#D55E00", "#B9C6D3"
_DIM = "#555B66"

_SECONDS = 3.0  # of the timeline


def draw_crops(pictures: list[Cropped], file: Path) -> None:
    """Draws a column for each picture: the original with the boxes of its crops, then the crops."""
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
    """Draws the first seconds of both loops, step by step, and the results of the whole of them, in
    bars."""
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
    """Says in ``words`` how many times the first value the second is; empty if it is not more."""
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
    """Returns the bars that begin before ``end``, cut off there."""
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
