"""The table that ``fastloader demo`` prints."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from fastloader.cli.demo.comparison import Comparison
from fastloader.cli.demo.training import Run


def side_by_side(runs: list[Run], pixels: Comparison) -> str:
    """The runs side by side, with what the figures mean and what was checked below."""
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
    """What was gained, in one sentence, and why it is not what README says."""
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
    """A ratio with as many digits as mean something."""
    return f"{ratio:.2f}" if ratio < 2 else f"{ratio:.1f}" if ratio < 20 else f"{ratio:.0f}"


class _Row(NamedTuple):
    label: str
    values: list[str]
    better: str = ""


def _more(label: str, values: list[float], shown: str) -> _Row:
    """A row of which the larger value is the better one."""
    ours, theirs = values
    better = f"{times(ours / theirs)} x" if theirs > 0 else ""
    return _Row(label, [shown.format(value) for value in values], better)


def _less(label: str, values: Sequence[float | None], shown: str, unit: float = 1) -> _Row:
    """A row of which the smaller value is the better one. None is not known."""
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
    """What must be equal, and whether it is."""
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
        lines.append(f"FastLoader took the {fast.plan}")
    return lines


def _megabytes(count: int | None) -> str:
    return "not known" if count is None else f"{count / 1e6:.0f}"
