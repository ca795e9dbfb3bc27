"""The chart of README.md, drawn from benchmarks/results/ and nothing else.

    python tools/first_look.py [--out FILE]

Above each loader of peers.json that makes the plain crops. Below three recipes of
recipes.json: FastLoader beside DataLoader with the transforms of torchvision on Pillow's pictures, of
torchvision v2 and of timm. CELLS says of each of these three what the results have, or which words stand
in the place of a bar: "not offered" where the peer lacks the recipe.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT))

from benchmarks.peers.plots import OURS, machine_line  # noqa: E402 - only now can it be found

Json = dict[str, Any]

RESULTS = ROOT / "benchmarks" / "results"

PEERS = {
    "fastloader-uint8": "FastLoader",
    "dataloader-torchvision-v2": "DataLoader +\ntorchvision v2",
    "dali": "DALI, on the CPU",
    "ffcv": "FFCV",
    "dataloader-pillow-simd": "DataLoader +\nPillow-SIMD",
    "dataloader-pillow": "DataLoader +\nPillow",
    "timm": "timm *",
    "spdl": "SPDL",
}
MEASURED = "dataloader"  # of a recipe: DataLoader over the recipe's own dataset and transforms
SECOND = "dataloader-v2"  # the same recipe with torchvision v2 on tensors
NOT_OFFERED = "not offered"
# Of DataLoader with torchvision on Pillow, with torchvision v2 on tensors, and with timm.
CELLS = {
    # torchvision's RandAugment has neither mstd nor inc.
    "timm-rand": (NOT_OFFERED, NOT_OFFERED, MEASURED),
    # timm has no TrivialAugmentWide.
    "trivial-augment-erasing": (MEASURED, SECOND, NOT_OFFERED),
    # timm's create_transform makes one view of a picture.
    "simclr": (MEASURED, SECOND, NOT_OFFERED),
}
RECIPES = {
    "timm-rand": "timm's recipe:\nrand-m9-mstd0.5-inc1,\nerasing",
    "trivial-augment-erasing": "TrivialAugmentWide,\nerasing",
    "simclr": "SimCLR,\ntwo views",
}
SIDES = ("DataLoader + torchvision on Pillow", "DataLoader + torchvision v2", "DataLoader + timm")
THEIRS = ["#8A8A8A", "#B4B4B4", "#D2D2D2"]
TEXT = "#222222"


def draw(peers: Json, recipes: Json) -> Figure:
    # One above the other, and in large letters: a phone shows it a hand's breadth wide.
    figure = Figure(figsize=(7.5, 10), layout="constrained", facecolor="white")
    left, right = figure.subplots(2, 1, height_ratios=[1, 1.05])
    _peers(left, peers["scenarios"])
    _recipes(right, recipes["recipes"])
    figure.legend(loc="outside lower center", ncols=2, fontsize=11, frameon=False)
    for axes, results in ((left, peers), (right, recipes)):
        axes.spines[["top", "right", "left"]].set_visible(False)
        axes.tick_params(axis="y", length=0, labelsize=12)
        axes.set_xlabel(f"pictures per second\n{machine_line(results)}", fontsize=10, color=TEXT)
    threads = peers["settings"]["threads"]
    assert threads == recipes["settings"]["threads"], "one title for both"
    figure.suptitle(
        f"JPEG files to batches, {threads} threads or worker processes:\nlonger is better",
        fontsize=14,
    )
    return figure


def _peers(axes: Any, scenarios: Json) -> None:
    found = [name for name in PEERS if name in scenarios]
    there = sorted(found, key=lambda name: -scenarios[name]["pictures_per_s"]["median"])
    speeds = [scenarios[name]["pictures_per_s"]["median"] for name in there]
    for row, (name, speed) in enumerate(zip(there, speeds, strict=True)):
        ours = name.startswith("fastloader")
        axes.barh(row, speed, 0.7, color=OURS if ours else THEIRS[0])
        _number(axes, row, speed, max(speeds), ours)
    axes.set_yticks(range(len(there)), [PEERS[name] for name in there])
    axes.invert_yaxis()
    axes.set_xlim(0, 1.15 * max(speeds))
    axes.set_title("random crop to 224 pixels, flip", fontsize=13)
    floats = [scenarios[name]["output"] == "float32" for name in there if PEERS[name][-1] == "*"]
    if any(floats):
        axes.annotate(
            "* timm also normalises (float32)",
            (0.98, 0.03),
            xycoords="axes fraction",
            ha="right",
            fontsize=10,
            color=TEXT,
        )


def _recipes(axes: Any, recipes: Json) -> None:
    there = [name for name in CELLS if name in recipes]
    fastest = max(_speed(recipes[name], "fastloader") for name in there)
    thick = 0.2
    for number, name in enumerate(there):
        contenders = [("fastloader", OURS), *zip(CELLS[name], THEIRS, strict=True)]
        for place, (kind, colour) in enumerate(contenders):
            at = number + (place - 1.5) * thick
            if kind == NOT_OFFERED:
                axes.text(fastest * 0.01, at, kind, va="center", fontsize=10, color="#666666")
                continue
            speed = _speed(recipes[name], kind)
            axes.barh(at, speed, thick * 0.9, color=colour)
            _number(axes, at, speed, fastest, place == 0)
    for place, side in enumerate(("FastLoader", *SIDES)):
        axes.barh([0], [0], color=[OURS, *THEIRS][place], label=side)
    axes.set_yticks(range(len(there)), [RECIPES[name] for name in there])
    axes.set_ylim(len(there) - 0.5, -0.5)  # the first one on top
    axes.set_xlim(0, 1.15 * fastest)
    axes.set_title("with augmentation, normalised (float32)", fontsize=13)


def _number(axes: Any, at: float, speed: float, fastest: float, bold: bool) -> None:
    axes.text(
        speed + fastest * 0.012,
        at,
        f"{speed:.0f}",
        va="center",
        fontsize=11,
        color=TEXT,
        fontweight="bold" if bold else "normal",
    )


def _speed(recipe: Json, contender: str) -> float:
    return float(recipe["contenders"][contender]["pictures_per_s"]["median"])


def shown(figure: Figure) -> list[str]:
    """The numbers and words beside the bars."""
    return [each.get_text() for axes in figure.axes for each in axes.texts]


def described(texts: list[str]) -> str:
    return "; ".join(texts)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=RESULTS / "first-look.png", metavar="FILE")
    arguments = parser.parse_args(argv)
    peers, recipes = (
        json.loads((RESULTS / f"{name}.json").read_text()) for name in ("peers", "recipes")
    )
    figure = draw(peers, recipes)
    # A test compares it: a chart of older results has another description.
    about = {"Description": described(shown(figure))}
    figure.savefig(arguments.out, dpi=110, metadata=about)
    print(f"wrote {arguments.out}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
