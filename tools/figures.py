"""Numbers in README.md and docs/*.md, taken from the JSON that the benchmarks wrote.

    python tools/figures.py [--check]

A number stands between two marks that Markdown does not show:

    <!-- figure: peers.ratio.dataloader-pillow -->2.5<!-- /figure -->

This script fills in what benchmarks/results/*.json holds, or with --check exits with 1 after naming
what disagrees. Below, FIGURES says what each name stands for; ``FILE.machine`` is the machine, the
versions and the date of benchmarks/results/FILE.json, and goes with the numbers of that file;
``gpu.results`` is all of benchmarks/results/gpu-*.json as tables, or the sentence that there is none;
``sources.results`` is the same of sources.json. A mark must not begin a line: Markdown would take the
line for HTML.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent

MARKED = re.compile(r"<!-- figure: (?P<name>\S+) -->(?P<text>.*?)<!-- /figure -->", re.DOTALL)
ANY_MARK = re.compile(r"<!-- /?figure\b[^>]*-->")

Json = Any


def machine(results: Json) -> str:
    what = results["machine"]
    parts = [f"{what['cpu']}, {what['cores']} cores, {what['isa']}"]
    parts += [what["gpu"]] if what.get("gpu") else []
    parts.append(f"Python {what['python']}, torch {what['torch']}, fastloader {what['fastloader']}")
    text = f"{'; '.join(parts)}; {what['date']}"
    return text + "; machine busy, preliminary" if results.get("busy") else text


def peer_ratio(results: Json, name: str) -> float:
    """How many times as fast FastLoader is as this scenario."""
    row = next(row for row in results["ratios"] if row["slow"] == name)
    return float(row["ratio"]["median"])


def index_ratio(results: Json, name: str) -> float:
    """The same with a seek index."""
    what = f"fastloader-index is faster than {name} by"
    row = next(row for row in results["further"] if row["what"] == what)
    return float(row["value"]["median"])


def peer_speed(results: Json, name: str) -> float:
    return float(results["scenarios"][name]["pictures_per_s"]["median"])


# How the rows of a recipe's results are called in a figure's name.
RECIPE_ROWS = {
    "ratio": "workers",
    "without-workers": "without workers",
    "v2": "torchvision v2",
    "in-python": "native=False",
}


def recipe_ratio(results: Json, row: str, recipe: str) -> float:
    """How many times as fast FastLoader is as DataLoader over this training recipe."""
    return float(results["recipes"][recipe]["ratios"][RECIPE_ROWS[row]]["ratio"]["median"])


def at(*path: str) -> Callable[[Json], float]:
    def found(results: Json) -> float:
        for key in path:
            results = results[key]
        return float(results)

    return found


def errors(key: str, pick: Callable[..., float]) -> Callable[[Json], float]:
    """Of decode="fast" over the chains that make 224 pixels."""
    return lambda results: pick(
        chain["error"][key] for name, chain in results["chains"].items() if "224" in name
    )


def cost(scenario: str) -> Callable[[Json], float]:
    """Of watching, in per cent of an epoch's time."""
    found = at("scenarios", scenario, "on_over_off", "median")
    return lambda results: 100 * (found(results) - 1)


def noise(results: Json) -> float:
    """The largest difference between two sides that do the same, in per cent."""
    each = results["scenarios"].values()
    return max(100 * abs(one["cpu_control_over_off"]["median"] - 1) for one in each)


# How the rows and columns of the Ray actors' results are called in a figure's name.
RAY_PLACES = {"here": "the trainer's node", "there": "another node"}
RAY_DELIVERIES = {"plain": "as they are", "ring": "through the ring"}
RAY_PACES = {"steps": "behind steps of 30 ms", "busy": "one after the other"}


def ray_more(place: str, delivery: str, pace: str) -> Callable[[Json], float]:
    """What a batch costs more by actors than by worker processes, in milliseconds."""
    name = f"actors on {RAY_PLACES[place]}, batches {RAY_DELIVERIES[delivery]}"
    return at("overhead", name, "ms more", RAY_PACES[pace])


# How the recipes of benchmarks/samples.py are called in a figure's name.
SAMPLE_RECIPES = {
    "dict": "into a dict",
    "mixup": "mixup(*default_collate(batch))",
    "zipped": "tuple(zip(*batch)) with a target dict",
    "masks": "pictures with masks, EncodedMask",
    "boxes": "boxes and masks, transformed",
    "pairs": "pairs of two sizes, Companion",
    "clips": "clips of 16 frames, EncodedClip",
    "frames": "clips of bytes, mean and std",
    "views": "ten views with masks, EncodedImage",
    "jepa": "I-JEPA's masks",
    "tokens": "tokens, EncodedImage",
    "buckets": "buckets of three shapes, EncodedImage",
    "list": "sizes of their own, in a list",
    "pad": "sizes of their own, padded",
}

# Name: file, what of it, how it is written. The names of the peers are made below.
FIGURES: dict[str, tuple[str, Callable[[Json], float], str]] = {
    "autotune.middle": ("autotune", at("median_auto_over_best"), ".2f"),
    "autotune.worst": ("autotune", at("worst_auto_over_best"), ".2f"),
    "observation.pictures": ("observation", cost("pictures"), "+.1f"),
    "observation.tiny": ("observation", cost("tiny pictures"), "+.1f"),
    "observation.python": ("observation", cost("Python"), "+.1f"),
    "observation.noise": ("observation", noise, ".1f"),
    "cold.of-warm": ("cold_start", at("ratios", "cold of warm", "median"), ".2f"),
    "cold.limit": ("cold_start", at("ratios", "limit", "median"), ".2f"),
    "cold.without": ("cold_start", at("ratios", "cold without of warm", "median"), ".2f"),
    "cold.slow": ("cold_start", at("ratios", "slow of without", "median"), ".1f"),
    "cold.lmdb": ("cold_start", at("ratios", "LMDB of without", "median"), ".2f"),
    "arrays.ratio": (
        "arrays",
        at("ratios", "200000x64 float32, FastLoader", "times_dataloader", "median"),
        ".0f",
    ),
    "arrays.by-hand": (
        "arrays",
        at("ratios", "200000x64 float32, FastLoader", "of_the_time_by_hand", "median"),
        ".2f",
    ),
    "fast.pictures": ("decode_modes", at("pictures"), ".0f"),
    "fast.error.least": ("decode_modes", errors("mean_absolute", min), ".2f"),
    "fast.error.most": ("decode_modes", errors("mean_absolute", max), ".2f"),
    "fast.psnr.least": ("decode_modes", errors("psnr_db", min), ".0f"),
    "fast.psnr.most": ("decode_modes", errors("psnr_db", max), ".0f"),
    "normalize.fill": ("normalize", at("ratios", "NCHW: of the speed of a fill", "median"), ".2f"),
    "ray_workers.nodes": ("ray_workers", at("nodes", "gain", "median"), ".2f"),
    **{
        f"ray_workers.{place}.{delivery}.{pace}": (
            "ray_workers",
            ray_more(place, delivery, pace),
            "+.1f",
        )
        for place in RAY_PLACES
        for delivery in RAY_DELIVERIES
        for pace in RAY_PACES
    },
    **{
        f"samples.{name}": ("samples", at("recipes", recipe, "cpu_ratio", "median"), ".1f")
        for name, recipe in SAMPLE_RECIPES.items()
    },
    "workers.float32": ("workers", at("ratios", "float32", "median"), ".1f"),
    "workers.uint8": ("workers", at("ratios", "uint8", "median"), ".1f"),
    **{
        f"storage.{order.replace(' ', '-')}.{cache}": (
            "storage",
            at("ratios", f"{order}, {cache}", "median"),
            ".2f",
        )
        for order in ("shuffled", "in order")
        for cache in ("warm", "cold")
    },
}


NO_GPU = "**Nothing of this has been measured on a GPU yet.**"


def gpu_results(folder: Path) -> str:
    """Of every GPU that benchmarks/gpu ran on; a rehearsal is none."""
    runs = [json.loads(path.read_text()) for path in sorted(folder.glob("gpu-*.json"))]
    texts = [gpu_run(run) for run in runs if run["plan"]["name"] != "rehearsal"]
    return "\n\n".join(["", *texts, ""]) if texts else NO_GPU


def gpu_run(run: Json) -> str:
    about = run["machine"]
    head = (
        f"### {run['device']}\n\n{about['date']}, driver {run['driver']}, torch {run['torch']}, Python "
        f"{about['python']}, fastloader {about['fastloader']}; {about['cpu']}, {about['cores']} cores, "
        f"{run['threads']} threads or workers; the {run['plan']['name']} run."
    )
    if run["failed"]:
        head += f" Failed: {', '.join(run['failed'])}."
    goals = [
        [
            row["what"],
            number(row["predicted"]),
            number(row["value"]) + (f" ({row['remark']})" if row["remark"] else ""),
            "" if row["goal"] is None else f"{row['goal']} {number(row['limit'])}",
            {True: "met", False: "**not met**", None: ""}[row["met"]],
        ]
        for row in run["goals"]
    ]
    parts = [head, table(["what", "predicted", "measured", "goal", ""], goals)]
    contenders = run.get("peers", {}).get("contenders", {})
    if contenders:
        columns = [
            "into the GPU's memory",
            "pictures/s",
            "CPU s per 1000",
            "FastLoader is faster by",
        ]
        columns += ["step, of the cached batch's", "GPU idle"]
        parts.append(table(columns, [gpu_peer(run, *each) for each in contenders.items()]))
    return "\n\n".join(parts)


def gpu_peer(run: Json, name: str, each: Json) -> list[str]:
    beaten = run["peers"]["against"].get(name)
    step = each["step"]
    idle = None if step is None else (step["trace"] or {}).get("gpu_idle_share")
    return [
        each["label"],
        number(each["pictures_per_s"]["median"]),
        number(each["cpu_s_per_1000"]["median"]),
        "" if beaten is None else f"{beaten['speed']['median']:.2f} x",
        "" if step is None else number(step["of_cached"]["median"]),
        "" if idle is None else f"{100 * idle:.1f} %",
    ]


NO_SOURCES = "**Nothing of this has been measured yet.**"


def source_results(folder: Path) -> str:
    """Of the places where pictures lie: how fast each reader is, and beside others."""
    path = folder / "sources.json"
    if not path.is_file():
        return NO_SOURCES
    run = json.loads(path.read_text())
    about = run["settings"]
    head = (
        f"{machine(run)}. {about['distinct_pictures']} photographs, {about['pictures']} in an epoch, "
        f"batches of {about['batch_size']}, {about['threads']} threads or workers, medians of "
        f"{about['repeats']} rounds."
    )
    ratios = [
        [
            row["what"],
            f"{row['ratio']['median']:.2f}",
        ]
        for row in run["ratios"].values()
    ]
    speeds = [
        [
            each["label"],
            f"{each['pictures_per_s']['median']:.0f}",
            f"{1e3 * statistics.median(each['cpu_s_per_picture']):.2f}",
        ]
        for each in run["contenders"].values()
    ]
    tables = [
        table(["what", "times as fast"], ratios),
        table(["contender", "pictures/s", "CPU ms/picture"], speeds),
    ]
    gone = {**run["skipped"], **run["failed"]}
    missing = [f"Not measured: {', '.join(gone)}."] if gone else []
    return "\n\n".join(["", head, *tables, *missing, ""])


def number(value: float | None) -> str:
    if value is None:
        return ""
    if abs(value) >= 100:
        return f"{value:.0f}"
    return f"{value:.3f}".rstrip("0").rstrip(".")


def table(head: list[str], lines: list[list[str]]) -> str:
    rows = [head, ["---"] * len(head), *lines]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


class Disagreement(Exception):
    """A mark that cannot be filled; the message says where and why."""


class Results:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._read: dict[str, Json] = {}

    def text(self, name: str) -> str:
        try:
            if name == "gpu.results":
                return gpu_results(self.folder)
            if name == "sources.results":
                return source_results(self.folder)
            if name.endswith(".machine"):
                return machine(self._file(name.removesuffix(".machine")))
            if name.startswith("peers.ratio."):
                scenario = name.removeprefix("peers.ratio.")
                return f"{peer_ratio(self._file('peers'), scenario):.1f}"
            if name.startswith("peers.index."):
                scenario = name.removeprefix("peers.index.")
                return f"{index_ratio(self._file('peers'), scenario):.1f}"
            if name.startswith("peers.set."):
                pictures, scenario = name.removeprefix("peers.set.").split(".")
                return f"{peer_ratio(self._file('peers')['sets'][pictures], scenario):.1f}"
            if name.startswith("peers.speed."):
                scenario = name.removeprefix("peers.speed.")
                return f"{peer_speed(self._file('peers'), scenario):.0f}"
            if name.startswith("recipes."):
                _, row, recipe = name.split(".", 2)
                value = recipe_ratio(self._file("recipes"), row, recipe)
                return f"{value:.2f}" if row == "in-python" else f"{value:.1f}"
            file, value, written = FIGURES[name]
            return format(value(self._file(file)), written)
        except (KeyError, StopIteration) as error:
            known = ", ".join(
                [
                    *FIGURES,
                    *("FILE.machine", "gpu.results", "sources.results"),
                    *("peers.ratio.SLOW", "peers.speed.SCENARIO"),
                    *("peers.index.SLOW", "peers.set.SET.SLOW"),
                    *(f"recipes.{row}.RECIPE" for row in RECIPE_ROWS),
                ]
            )
            raise Disagreement(f"no figure {name!r} ({error!r}); there are {known}") from None

    def _file(self, name: str) -> Json:
        if name not in self._read:
            path = self.folder / f"{name}.json"
            if not path.is_file():
                raise Disagreement(f"{path} does not exist; run the benchmark that writes it")
            self._read[name] = json.loads(path.read_text())
        return self._read[name]


def filled(text: str, results: Results) -> str:
    """``text`` with all figures as the results have them."""
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("<!-- figure:"):
            raise Disagreement(f"line {number}: a mark begins the line, which makes it HTML")
    left = ANY_MARK.findall(MARKED.sub("", text))
    if left:
        raise Disagreement(f"{left[0]} has no partner")
    return MARKED.sub(
        lambda found: (
            f"<!-- figure: {found['name']} -->{results.text(found['name'])}<!-- /figure -->"
        ),
        text,
    )


def documents(root: Path) -> list[Path]:
    return [root / "README.md", *sorted((root / "docs").glob("*.md"))]


def main(argv: list[str] | None = None, root: Path = ROOT) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="change nothing, exit with 1 instead")
    arguments = parser.parse_args(argv)
    results = Results(root / "benchmarks" / "results")
    wrong = 0
    for path in documents(root):
        old = path.read_text()
        try:
            new = filled(old, results)
        except Disagreement as error:
            print(f"{path.relative_to(root)}: {error}")
            wrong += 1
            continue
        if new == old:
            continue
        if not arguments.check:
            path.write_text(new)
            print(f"{path.relative_to(root)}: filled in")
            continue
        wrong += 1
        for before, after in zip(MARKED.finditer(old), MARKED.finditer(new)):
            if before["text"] != after["text"]:
                print(
                    f"{path.relative_to(root)}: {before['name']} is {before['text']!r}, the results "
                    f"say {after['text']!r}; run python tools/figures.py"
                )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
