"""From the rounds of a recipe's contenders to ratios, held against its promises.

A ratio says how many times as fast FastLoader is as a DataLoader over torchvision's or timm's own
dataset and transforms, or over a user's dataset that opens its pictures with Pillow. "torchvision v2" is
the same recipe on tensors of torchvision's own decoder, and has no promise. Predicted, in CPU time for
a photograph of 470x400 with 224 pixels to make:

| recipe | DataLoader | FastLoader | ratio |
|---|---|---|---|
| crop, uint8 | 3.2 ms: whole picture, Pillow's resize | 1.35 ms: the crop alone | 2.4 |
| in float32, before any augmentation | 4.2 ms: five passes over floats more | 1.45 ms | 2.9 |
| timm-default | 5.1 ms: three blends by Pillow, 0.3 ms each | 1.7 ms | 3.0 |
| timm-rand | 4.9 ms: two operations at 0.3 ms, half of the time each; erasing | 1.8 ms | 2.7 |
| trivial-augment | 4.6 ms: one operation | 1.6 ms | 2.9 |
| auto-augment | 4.7 ms: two operations, not always | 1.65 ms | 2.9 |
| rand-augment | 4.9 ms: two operations | 1.7 ms | 2.9 |
| crop-and-own-step | 4.2 ms | 2.3 ms: the crop is native, the floats are Python's in the workers | 1.8 |
| simclr-view | 12.6 ms: jitter with hue 2.4, blur as a convolution of floats 6 | 2.1 ms | 6.0 |
| encoded | 4.2 ms | 1.55 ms: 0.1 ms for a worker to hand on the path | 2.7 |
| simclr | 23 ms: the picture 2.2, each view 10.4 | 3.6 ms: the picture is decoded once | 6.4 |
| dino | 21.6 ms: large crops 5.6 and 4.2, small ones 1.2 | 5 ms: large crops 1.0, small ones 0.2 | 4.3 |
| cifar10, 32x32 | 0.11 ms: Python between five small steps | 0.004 ms | 25 |

So the augmentation alone does not carry the promise of 3: it costs both sides the same share. With 0
workers the ratios are twice as large, because FastLoader then takes all processors and DataLoader the
loop's own. With native=False they are 1.0: the same code runs in the same worker processes, and what
FastLoader adds to a batch is below 1 % of it. Pictures that stay encoded are then the workers', too.
What was measured stands beside this in recipes.md.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from fastloader.cli.bench.contender import Contender
from fastloader.cli.bench.measure import ratio
from fastloader.cli.bench.recipes import Recipe
from fastloader.cli.bench.scenarios import Scenario

Json = dict[str, Any]

WITHOUT_WORKERS_AT_LEAST = 1.0
IN_PYTHON_AT_LEAST = 0.97
IN_PYTHON = "native=False"
V2 = "dataloader-v2"


@dataclasses.dataclass(frozen=True)
class Row:
    """Two contenders of every recipe, and how they are called where they are shown."""

    name: str
    slow: str
    fast: str
    label: str  # {threads} is their number
    at_least: float | None = None  # None: the recipe's own
    promised: bool = True


ROWS = [
    Row("workers", "dataloader", "fastloader", "{threads} threads against {threads} workers"),
    Row(
        "without workers",
        "dataloader@0",
        "fastloader@0",
        "num_workers=0 on both sides",
        WITHOUT_WORKERS_AT_LEAST,
    ),
    Row(
        "torchvision v2",
        V2,
        "fastloader",
        "{threads} threads against torchvision v2 in {threads} workers",
        promised=False,
    ),
    Row(
        IN_PYTHON,
        "dataloader",
        "fastloader-python",
        "native=False, {threads} workers on both sides",
        IN_PYTHON_AT_LEAST,
    ),
]


def scenarios(recipe: Recipe) -> dict[str, Scenario]:
    """The contenders of a recipe."""

    def scenario(label: str, function: str, threads: int | None = None) -> Scenario:
        module = f"recipes.{recipe.module}"
        return Scenario(label, recipe.module, module, function, recipe.output, threads=threads)

    # Of the transforms of torchvision there are two kinds. cifar.py's pictures are no files to decode.
    v2 = Scenario(
        "DataLoader, torchvision v2",
        "torchvision-v2",
        "recipes.torchvision_v2",
        "dataloader",
        recipe.output,
    )
    return {
        "fastloader": scenario("FastLoader", "fastloader"),
        "dataloader": scenario("DataLoader", "dataloader"),
        **({V2: v2} if recipe.module in ("torchvision", "encoded") else {}),
        "fastloader-python": scenario("FastLoader, native=False", "fastloader_python"),
        "fastloader@0": scenario("FastLoader, num_workers=0", "fastloader", 0),
        "dataloader@0": scenario("DataLoader, num_workers=0", "dataloader", 0),
    }


def compared(recipe: Recipe, contenders: Mapping[str, Contender]) -> dict[str, Json]:
    """By the row's name; those that were measured."""
    rows = {}
    for row in ROWS:
        if row.slow not in contenders or row.fast not in contenders:
            continue
        slow, fast = contenders[row.slow], contenders[row.fast]
        value = ratio(slow.timing, fast.timing)
        at_least = recipe.at_least if row.at_least is None else row.at_least
        at_least = at_least if row.promised else None
        rows[row.name] = {
            "slow": row.slow,
            "fast": row.fast,
            "ratio": value,
            "cpu_ratio": ratio(slow.cpu, fast.cpu),
            "at_least": at_least,
            "met": None if at_least is None else value["median"] >= at_least,
        }
    return rows
