"""The pictures of the results, drawn from them and nothing else."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullFormatter

from benchmarks.peers.comparison import groups_of
from benchmarks.peers.scenarios import NATIVE

Json = dict[str, Any]

# Of Okabe and Ito: told apart by the colour-blind. Ours are the blue ones and the thick lines.
OURS, OURS_FLOAT, OURS_INDEX, LIMIT = "#0072B2", "#56B4E9", "#004C7F", "#000000"
OTHERS = ["#D55E00", "#009E73", "#CC79A7", "#E69F00", "#8C564B", "#7F7F7F", "#B8A000", "#5D3A9B"]
MARKERS = "sD^vP*X<>"
GREY, PALE = "#B0B0B0", "#E0E0E0"
RATIOS = [OURS, OURS_FLOAT, "#7FB3D5", GREY]  # of a recipe
SPEED = "pictures per second (median of the rounds; the line spans all rounds)"


def draw(results: Json, folder: Path) -> list[Path]:
    """Those for which the results hold something."""
    written = []
    makers = {
        "peers-throughput": throughput,
        "peers-scaling": scaling,
        "peers-latency": latency,
        "peers-memory": memory,
        "peers-sets": sets,
    }
    if "recipes" in results:
        makers = {"recipes": recipes}
    elif "sources" in results:
        makers = {"sources": places}
    for name, make in makers.items():
        figure = make(results)
        if figure is not None:
            written.append(folder / f"{name}.png")
            figure.savefig(written[-1], dpi=130)
    return written


def bars(
    axes: Any,
    groups: Sequence[tuple[str, dict[str, Json]]],
    styles: dict[str, Json],
    legend: dict[str, str] | None = None,
) -> float:
    """Draws a group of bars for each label, the first on top. A bar is a value's median, with a line
    from the smallest to the largest. ``styles``: of the series of values. ``legend``: what each of them
    is called. Returns how far the lines reach."""
    furthest = max(value["max"] for _, values in groups for value in values.values())
    thick = 0.84 / max(len(values) for _, values in groups)
    words = dict(legend or {})
    for row, (_, values) in enumerate(groups):
        there = [name for name in styles if name in values]
        for place, name in enumerate(there):
            value = values[name]
            at = row + (place - (len(there) - 1) / 2) * thick
            label = words.pop(name, "_")  # a legend has each series once
            style = {"edgecolor": "white", **styles[name]}
            axes.barh(at, value["median"], thick * 0.92, label=label, **style)
            axes.plot([value["min"], value["max"]], [at, at], color="#333333", linewidth=1.2)
            # On white: a limit may pass behind it.
            axes.text(
                value["max"] + furthest * 0.012,
                at,
                f"{value['median']:.0f}" if furthest > 50 else f"{value['median']:.2f}",
                va="center",
                fontsize=8,
                bbox={"facecolor": "white", "edgecolor": "none", "pad": 1},
                zorder=3,
            )
    axes.set_yticks(range(len(groups)), [label for label, _ in groups])
    axes.set_ylim(len(groups) - 0.5, -0.5)  # in the order of the tables, from the top
    axes.set_xlim(0, furthest * 1.12)
    return float(furthest)


def throughput(results: Json) -> Figure | None:
    """Bars, the fastest on top, and the bare decode as lines through them."""
    loaders = sorted(
        _loaders(results).items(), key=lambda item: -item[1]["pictures_per_s"]["median"]
    )
    if not loaders:
        return None
    # Figure without pyplot: no global state, no display, no backend to choose.
    figure = Figure(figsize=(10, 1.6 + 0.45 * len(loaders)), layout="constrained")
    axes = figure.subplots()
    styles = {
        "ours": {"color": OURS},
        "ours, normalised": {"color": OURS, "hatch": "///"},
        "others": {"color": GREY},
        "others, normalised": {"color": GREY, "hatch": "///"},
    }
    groups = []
    for name, each in loaders:
        kind = "ours" if name.startswith("fastloader") else "others"
        kind += ", normalised" if each["output"] == "float32" else ""
        groups.append((_label(each), {kind: each["pictures_per_s"]}))
    furthest = bars(axes, groups, styles)
    for name, style, words in (
        ("bare-decode", "--", "libjpeg-turbo, whole pictures"),
        ("bare-roi", ":", "libjpeg-turbo, the crops alone"),
    ):
        if name in results["scenarios"]:
            at = results["scenarios"][name]["pictures_per_s"]["median"]
            furthest = max(furthest, at)
            axes.axvline(
                at, color=LIMIT, linestyle=style, linewidth=1.6, label=f"{words}: {at:.0f}"
            )
    axes.set_xlim(0, furthest * 1.12)
    axes.set_xlabel(SPEED)
    if any("normalised" in kind for _, values in groups for kind in values):
        axes.barh([0], [0], color="#999999", hatch="///", label="float32, normalised")
    if axes.get_legend_handles_labels()[0]:
        axes.legend(loc="lower right", framealpha=1)
    _title(figure, results, f"Throughput with {_threads(results)}")
    return figure


def scaling(results: Json) -> Figure | None:
    speeds = results["scaling"]
    if not speeds:
        return None
    figure = Figure(figsize=(10, 5.6), layout="constrained")
    axes = figure.subplots()
    styles = _styles([name for name in speeds if name != "bare-decode"])
    counts = sorted({int(count) for each in speeds.values() for count in each})
    for name, each in sorted(speeds.items(), key=lambda item: -_last(item[1])):
        xs = [int(count) for count in each]
        middle = [value["median"] for value in each.values()]
        style = styles.get(
            name, {"color": LIMIT, "linestyle": "--", "marker": "", "linewidth": 1.6}
        )
        axes.plot(xs, middle, label=_label(results["scenarios"][name]), **style)
        axes.vlines(
            xs,
            [value["min"] for value in each.values()],
            [value["max"] for value in each.values()],
            color=style["color"],
            linewidth=1,
            alpha=0.6,
        )
    axes.margins(x=0.06)
    axes.set_ylim(0)
    axes.set_xticks(counts)
    axes.set_xlabel("decode threads or worker processes")
    axes.set_ylabel("pictures per second")
    axes.grid(True, linewidth=0.4, alpha=0.6)
    # Outside, in the order in which the lines end.
    figure.legend(loc="outside right center", frameon=False, fontsize=9)
    _title(figure, results, "Throughput over threads")
    return figure


def latency(results: Json) -> Figure | None:
    """Three marks for each loader; on a logarithmic axis, since they lie decades apart."""
    loaders = {name: each for name, each in _loaders(results).items() if each["later_batches_s"]}
    if not loaders:
        return None
    order = sorted(loaders.items(), key=lambda item: -statistics.median(item[1]["first_batch_s"]))
    figure = Figure(figsize=(10, 2.0 + 0.42 * len(order)), layout="constrained")
    axes = figure.subplots()
    rows = range(len(order))
    later = [each["later_batches_s"] for _, each in order]
    floor = 1e-5  # a batch that is ready takes no time to speak of
    axes.hlines(
        rows,
        [1e3 * max(each["median"], floor) for each in later],
        [1e3 * max(each["p95"], floor) for each in later],
        color="#009E73",
        linewidth=3,
        alpha=0.7,
    )
    for values, marker, colour, words in (
        ([each["mean"] for each in later], "o", "#009E73", "later batches: mean; median to 95 %"),
        (
            [statistics.median(each["first_batch_s"]) for _, each in order],
            "D",
            "#0072B2",
            "first batch of a new loader",
        ),
        (
            [each["cold_first_batch_s"] for _, each in order],
            "^",
            "#D55E00",
            "first batch of a new process, after its imports",
        ),
    ):
        milliseconds = [1e3 * max(value, floor) for value in values]
        axes.plot(milliseconds, rows, marker, color=colour, markersize=8, label=words)
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    low, high = axes.get_xlim()
    steps = [step * 10.0**power for power in range(-3, 7) for step in (1, 2, 5)]
    axes.xaxis.set_major_locator(FixedLocator([step for step in steps if low <= step <= high]))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_yticks(rows, [_label(each) for _, each in order])
    axes.set_ylim(-0.6, len(order) - 0.4)
    axes.set_xlabel("time that a loop without a training step waits for a batch, ms (logarithmic)")
    axes.grid(True, linewidth=0.4, alpha=0.6)
    figure.legend(loc="outside lower center", ncols=3, frameon=False, fontsize=9)
    _title(figure, results, f"Latency with {_threads(results)}")
    return figure


def memory(results: Json) -> Figure | None:
    loaders = {name: each for name, each in _loaders(results).items() if any(each["memory"])}
    if not loaders:
        return None
    figure = Figure(figsize=(10, 5.6), layout="constrained")
    axes = figure.subplots()
    styles = _styles(list(loaders))
    epochs = max(len(each["memory"]) for each in loaders.values())
    for name, each in sorted(loaders.items(), key=lambda item: -item[1]["memory"][-1]):
        held = [value / 1e6 for value in each["memory"]]
        axes.plot(range(1, len(held) + 1), held, label=_label(each), **styles[name])
    axes.set_ylim(0)
    axes.set_xticks(range(1, epochs + 1))
    axes.set_xlabel(f"epochs of {results['settings']['pictures']} pictures in one process")
    axes.set_ylabel("memory of its own, with workers, MB")
    axes.grid(True, linewidth=0.4, alpha=0.6)
    figure.legend(loc="outside right center", frameon=False, fontsize=9)
    _title(figure, results, f"Memory after each epoch, with {_threads(results)}")
    return figure


def sets(results: Json) -> Figure | None:
    """The same pictures as they are and written again: a group of bars for each, a bar a loader that
    makes uint8."""
    first = _loaders(results)
    loaders = [name for name, each in first.items() if each["output"] == "uint8"]
    if not results.get("sets") or not loaders:
        return None
    groups = [
        (
            each.get("label", "as they are").replace(", ", "\n"),
            {
                name: each["contenders"][name]["pictures_per_s"]
                for name in loaders
                if name in each["contenders"]
            },
        )
        for each in groups_of(results).values()
    ]
    figure = Figure(
        figsize=(10, 1.6 + 0.22 * len(groups) * (len(loaders) + 1)), layout="constrained"
    )
    axes = figure.subplots()
    styles = {name: {"color": style["color"]} for name, style in _styles(loaders).items()}
    bars(axes, groups, styles, {name: _label(first[name]) for name in loaders})
    axes.set_xlabel(SPEED)
    figure.legend(loc="outside right center", frameon=False, fontsize=9)
    _title(figure, results, f"The same pictures in four forms, with {_threads(results)}")
    return figure


def recipes(results: Json) -> Figure | None:
    """A group of bars for each recipe: how many times as fast FastLoader is, in each way."""
    found = {name: each for name, each in groups_of(results).items() if each["ratios"]}
    if not found:
        return None
    figure = Figure(figsize=(10, 2.2 + 0.9 * len(found)), layout="constrained")
    axes = figure.subplots()
    groups = []
    for each in found.values():
        way = "" if each["way"] == NATIVE else f", {each['way']}"
        label = f"{each['label']}\n{each['output']}{way}"
        groups.append((label, {row["what"]: row["ratio"] for row in each["ratios"]}))
    whats = list(dict.fromkeys(what for _, values in groups for what in values))
    styles = {what: {"color": RATIOS[place]} for place, what in enumerate(whats)}
    bars(axes, groups, styles, {what: what for what in whats})
    axes.axvline(1, color=LIMIT, linestyle="--", linewidth=1)
    axes.set_xlabel("times as fast as DataLoader (median of the rounds; the line spans all rounds)")
    figure.legend(loc="outside lower center", ncols=2, frameon=False, fontsize=9)
    figure.suptitle(
        "FastLoader against DataLoader over the original datasets and transforms, batches of "
        f"{results['settings']['batch_size']}\n{machine_line(results)}",
        fontsize=10,
    )
    return figure


def places(results: Json) -> Figure | None:
    """Left the speed of each contender, right the ratios."""
    contenders, rows = results["contenders"], results["ratios"]
    if not contenders:
        return None
    figure = Figure(
        figsize=(14, 2.2 + 0.42 * max(len(contenders), len(rows))), layout="constrained"
    )
    speeds, ratios = (
        figure.subplots(1, 2, width_ratios=(1.15, 1)) if rows else (figure.subplots(), None)
    )
    groups = []
    for each in contenders.values():
        others = "others" if each["output"] else "no pictures"
        kind = "ours" if each["label"].startswith("FastLoader") else others
        groups.append((each["label"], {kind: each["pictures_per_s"]}))
    colours = {"ours": OURS, "others": GREY, "no pictures": PALE}
    bars(speeds, groups, {kind: {"color": colour} for kind, colour in colours.items()})
    speeds.set_xlabel("pictures per second (median; the line spans all rounds)")
    if ratios is not None:
        groups = [
            (each["what"].replace(", of ", "\nof "), {"ours": each["ratio"]})
            for each in rows.values()
        ]
        bars(ratios, groups, {"ours": {"color": OURS}})
        ratios.axvline(1, color=LIMIT, linestyle="--", linewidth=1)
        ratios.tick_params(axis="y", labelsize=8)
        ratios.set_xlabel("times as fast (median; the line spans all rounds)")
    _title(figure, results, f"The same photographs in different places, {_threads(results)}")
    return figure


def _loaders(results: Json) -> Json:
    """Without what runs with another number of threads than the comparison."""
    return {
        name: each
        for name, each in results["scenarios"].items()
        if each["output"] and "@" not in name
    }


def _label(each: Json) -> str:
    label = str(each["label"]).replace(" of whole pictures from memory", "").partition(",")[0]
    return f"{label}, {each['output']}" if each["output"] else label


def _styles(names: list[str]) -> dict[str, Json]:
    """A colour and a marker for each loader, the same in every picture."""
    styles = {}
    others = 0
    for name in names:
        if name.startswith("fastloader"):
            colour = OURS_FLOAT if "float" in name else OURS_INDEX if "index" in name else OURS
            styles[name] = {"color": colour, "marker": "o", "linewidth": 3, "markersize": 7}
        else:
            styles[name] = {
                "color": OTHERS[others % len(OTHERS)],
                "marker": MARKERS[others % len(MARKERS)],
                "linewidth": 1.4,
                "markersize": 7,
            }
            others += 1
    return styles


def _last(speeds: Json) -> float:
    return float(list(speeds.values())[-1]["median"])


def _threads(results: Json) -> str:
    count = results["settings"]["threads"]
    return f"{count} threads or workers" if count > 1 else "1 thread or worker"


def _title(figure: Figure, results: Json, what: str) -> None:
    machine, settings = results["machine"], results["settings"]
    device = settings.get("device")
    where = "" if device is None else f" into the memory of {machine['gpu'] or device}"
    figure.suptitle(
        f"{what}: JPEG to 224x224{where}, batches of {settings['batch_size']}\n"
        f"{machine_line(results)}",
        fontsize=10,
    )


def machine_line(results: Json) -> str:
    machine = results["machine"]
    busy = ", machine busy: preliminary" if results["busy"] else ""
    return f"{machine['cpu']}, {machine['cores']} cores, {machine['date']}{busy}"
