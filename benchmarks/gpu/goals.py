"""What was measured as ratios, each held against its goal and beside what was predicted."""

from __future__ import annotations

from typing import Any

import h2d
import next_us
import normalise
import step

Json = dict[str, Any]

# Of the rows below, before anything was measured.
H2D_PREDICTED = {"bytes": 0.98, "normalised": 0.98}
H2D_SMALL = 64  # pictures: with fewer, a batch is Python's time and not the link's
H2D_SMALL_PREDICTED = 0.3
NORMALISE_PREDICTED = {
    "NCHW": {"float32": 0.92, "float16": 0.90, "bfloat16": 0.90},
    "channels_last": {"float32": 0.92, "float16": 0.90, "bfloat16": 0.90},
}
NEXT_PREDICTED = {"median": 45.0, "p99": 90.0}
STEP_PREDICTED = {"memory": 1.002, "pictures": 1.005}
FREE_PREDICTED = {"memory": 20.0, "pictures": 2.5}


def ratios(parts: Json) -> Json:
    """The one number of each measurement, with its spread, and one entry for each peer."""
    found: Json = {}
    if "h2d" in parts:
        found["h2d"] = {
            variant: {size: each["of_bare"] for size, each in sizes.items()}
            for variant, sizes in parts["h2d"].items()
        }
    if "normalise" in parts:
        found["normalise"] = {
            dtype: {
                layout: {size: each["of_copy"] for size, each in sizes.items()}
                for layout, sizes in layouts.items()
            }
            for dtype, layouts in parts["normalise"].items()
        }
    if "step" in parts:
        found["step"] = {name: each["of_cached"] for name, each in parts["step"].items()}
    if "next" in parts:
        found["next_us"] = {
            name: {key: each[key] for key in ("median", "p99")}
            for name, each in parts["next"].items()
        }
    if "peers" in parts:
        found |= parts["peers"].get("against", {})
    return found


def rows(parts: Json) -> list[Json]:
    """Each with "met": whether the goal was reached, None where there is none or it cannot be told."""
    found: list[Json] = []

    def add(
        what: str,
        value: float | None,
        goal: str,
        limit: float | None,
        predicted: float | None,
        remark: str = "",
    ) -> None:
        met = None
        if limit is not None and value is not None and not remark:
            met = value >= limit if goal == "at least" else value <= limit
        found.append(
            {
                "what": what,
                "value": value,
                "goal": goal if limit is not None else None,
                "limit": limit,
                "predicted": predicted,
                "met": met,
                "remark": remark,
            }
        )

    for variant, sizes in parts.get("h2d", {}).items():
        for size, each in sizes.items():
            small = int(size) < H2D_SMALL
            add(
                f"host to device, {variant}, {size} pictures: of bare pinned copies",
                each["of_bare"]["median"],
                "at least",
                None if small else h2d.AT_LEAST,
                H2D_SMALL_PREDICTED if small else H2D_PREDICTED[variant],
                each["why_not_pinned"],
            )
    for dtype, layouts in parts.get("normalise", {}).items():
        for layout, sizes in layouts.items():
            for size, each in sizes.items():
                add(
                    f"normalise, {dtype} {layout}, {size} pictures: of a copy of as many bytes",
                    each["of_copy"]["median"],
                    "at least",
                    normalise.AT_LEAST,
                    NORMALISE_PREDICTED[layout][dtype],
                )
    for structure, each in parts.get("next", {}).items():
        for key, words in (("median", "median"), ("p99", "99 %")):
            add(
                f"next() of a ready batch, {structure}, {words}, µs",
                each[key],
                "at most",
                next_us.AT_MOST_US,
                NEXT_PREDICTED[key],
            )
    for name, each in parts.get("step", {}).items():
        free = each["free_running"]
        slow = free < step.FREE_AT_LEAST
        add(
            f"loader without a step, {name}: times the step's rate",
            free,
            "at least",
            step.FREE_AT_LEAST,
            FREE_PREDICTED[name],
        )
        add(
            f"training step, batches from {name}: of the step on a cached batch",
            each["of_cached"]["median"],
            "at most",
            step.AT_MOST,
            STEP_PREDICTED[name],
            f"the loader alone is only {free:.2f} times as fast as the step" if slow else "",
        )
        trace = each["trace"]
        add(
            f"training step, batches from {name}: host waits in {trace['steps']} steps",
            float(sum(trace["host_waits"].values())),
            "at most",
            0.0,
            0.0,
            trace["problem"],
        )
    return found
