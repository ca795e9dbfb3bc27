"""The pictures that ``fastloader bench`` leaves, drawn from its results and nothing else."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullFormatter

Json = dict[str, Any]

# Of Okabe and Ito: told apart by the colour-blind. Ours are the blue ones and the thick lines.
OURS, OURS_FLOAT, OURS_INDEX, LIMIT = "#0072B2", "#56B4E9", "#004C7F", "#000000"
OTHERS = ["#D55E00", "#009E73", "#CC79A7", "#E69F00", "#8C564B", "#7F7F7F", "#B8A000", "#5D3A9B"]
MARKERS = "sD^vP*X<>"


def draw(results: Json, folder: Path) -> list[Path]:
    """Those for which the results hold something."""
    written = []
    for name, make in {
        "throughput": throughput,
        "scaling": scaling,
        "latency": latency,
        "memory": memory,
        "sets": sets,
    }.items():
        figure = make(results)
        if figure is not None:
            written.append(folder / f"peers-{name}.png")
            figure.savefig(written[-1], dpi=130)
    return written


def throughput(results: Json) -> Figure | None:
    """Bars, the fastest on top, and the bare decode as lines through them."""
    loaders = sorted(
        _loaders(results).items(), key=lambda item: item[1]["pictures_per_s"]["median"]
    )
    if not loaders:
        return None
    # Figure without pyplot: no global state, no display, no backend to choose.
    figure = Figure(figsize=(10, 1.6 + 0.45 * len(loaders)), layout="constrained")
    axes = figure.subplots()
    fastest = max(each["pictures_per_s"]["max"] for _, each in loaders)
    for row, (name, each) in enumerate(loaders):
        speed = each["pictures_per_s"]
        axes.barh(
            row,
            speed["median"],
            0.7,
            color=_bar_colour(name),
            hatch=_hatch(each),
            edgecolor="white",
        )
        axes.plot([speed["min"], speed["max"]], [row, row], color="#333333", linewidth=1.5)
        # On white: a limit may pass behind it.
        axes.text(
            speed["max"] + fastest * 0.015,
            row,
            f"{speed['median']:.0f}",
            va="center",
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.5},
            zorder=3,
        )
    for name, style, words in (
        ("bare-decode", "--", "libjpeg-turbo, whole pictures"),
        ("bare-roi", ":", "libjpeg-turbo, the crops alone"),
    ):
        if name in results["scenarios"]:
            at = results["scenarios"][name]["pictures_per_s"]["median"]
            fastest = max(fastest, at)
            axes.axvline(
                at, color=LIMIT, linestyle=style, linewidth=1.6, label=f"{words}: {at:.0f}"
            )
    axes.set_yticks(range(len(loaders)), [_label(each) for _, each in loaders])
    axes.set_xlim(0, fastest * 1.12)
    axes.set_xlabel("pictures per second (median of the rounds; the line spans all rounds)")
    if any(_hatch(each) for _, each in loaders):
        axes.barh(
            [0], [0], color="#999999", hatch="///", edgecolor="white", label="float32, normalised"
        )
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
    groups = [("as they are", _loaders(results))]
    groups += [(each["label"], each["scenarios"]) for each in results.get("sets", {}).values()]
    loaders = [name for name, each in groups[0][1].items() if each["output"] == "uint8"]
    if len(groups) == 1 or not loaders:
        return None
    figure = Figure(
        figsize=(10, 1.6 + 0.22 * len(groups) * (len(loaders) + 1)), layout="constrained"
    )
    axes = figure.subplots()
    thick = 1 / (len(loaders) + 1)
    colours = {name: style["color"] for name, style in _styles(loaders).items()}
    for row, (_, scenarios) in enumerate(groups):
        there = [name for name in loaders if name in scenarios]
        for place, name in enumerate(there):
            speed = scenarios[name]["pictures_per_s"]
            at = row + (place - (len(there) - 1) / 2) * thick
            label = "_" if row else _label(scenarios[name])  # a legend has each loader once
            axes.barh(at, speed["median"], thick * 0.92, color=colours[name], label=label)
            axes.plot([speed["min"], speed["max"]], [at, at], color="#333333", linewidth=1)
    axes.set_yticks(range(len(groups)), [label.replace(", ", "\n") for label, _ in groups])
    axes.invert_yaxis()  # in the order of the tables, from the top
    axes.set_xlabel("pictures per second (median of the rounds; the line spans all rounds)")
    figure.legend(loc="outside right center", frameon=False, fontsize=9)
    _title(figure, results, f"The same pictures in four forms, with {_threads(results)}")
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


def _bar_colour(name: str) -> str:
    return OURS if name.startswith("fastloader") else "#B0B0B0"


def _hatch(each: Json) -> str | None:
    return "///" if each["output"] == "float32" else None


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
