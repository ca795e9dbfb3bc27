"""The table that ``fastloader demo`` prints."""

from __future__ import annotations

from fastloader.cli.demo.training import Comparison, Run


def side_by_side(runs: list[Run], pixels: Comparison) -> str:
    """The runs side by side, with what the figures mean and what was checked below."""
    job = runs[0].job
    head = (
        f"{job.steps} steps of {job.batch_size} pictures {job.size}x{job.size} on {job.device}, "
        f"threads of torch: {runs[0].threads}"
    )
    rows = [
        ("", [run.job.loader for run in runs]),
        ("pictures are decoded by", [_decoded_by(run) for run in runs]),
        ("images/s, after the first batch", [f"{run.images_per_second:.0f}" for run in runs]),
        ("waiting for data, s (1)", [f"{sum(run.waits):.2f}" for run in runs]),
        ("  % of the training time", [f"{100 * sum(run.waits) / run.seconds:.1f}" for run in runs]),
        ("first batch after, ms (2)", [f"{1e3 * run.waits[0]:.0f}" for run in runs]),
        ("peak memory with workers, MB (3)", [_megabytes(run.memory) for run in runs]),
    ]
    if any(run.device_memory is not None for run in runs):
        rows.append(
            (f"peak {job.device} memory, MB (5)", [_megabytes(r.device_memory) for r in runs])
        )
    rows.append(("training time, s", [f"{run.seconds:.2f}" for run in runs]))
    rows.append(("final loss (4)", [f"{run.final_loss:.4f}" for run in runs]))
    return "\n".join([head, "", *_aligned(rows), "", *_notes(runs), "", *_checks(runs, pixels)])


def _aligned(rows: list[tuple[str, list[str]]]) -> list[str]:
    first = max(len(label) for label, _ in rows)
    widths = [max(len(row[column]) for _, row in rows) for column in range(len(rows[0][1]))]
    lines = [
        label.ljust(first)
        + "".join(f"   {value.rjust(width)}" for value, width in zip(values, widths))
        for label, values in rows
    ]
    return [lines[0], "-" * len(lines[0]), *lines[1:]]


def _notes(runs: list[Run]) -> list[str]:
    notes = [
        "(1) from asking for a batch to having it normalised on the device: for FastLoader next(),",
        "    for DataLoader next() and then .to(device).float().div_(255).sub_(mean).div_(std)",
        "(2) from iter(), so worker processes and threads are started in it",
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
