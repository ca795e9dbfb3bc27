"""The training recipes of ``--recipe``, each of which a line here adds.

A recipe belongs to a module of ``scenarios/recipes``, which knows its dataset and its transforms under
the recipe's name. The module's functions make the contenders: ``fastloader``, ``fastloader_python``,
which is FastLoader with native=False, and ``dataloader``.

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
"""

from __future__ import annotations

import dataclasses

from benchmarks.peers.scenarios import ENCODED, NATIVE, PYTHON, Row, Scenario


@dataclasses.dataclass(frozen=True)
class Recipe:
    """What is compared, and what is promised of it.

    ``way`` says how FastLoader must run it, and the run fails where it does otherwise. ``at_least`` is
    None without a promise, and ``predicted`` stands above.
    """

    label: str
    module: str  # of scenarios/recipes
    predicted: float
    at_least: float | None = None
    output: str = "float32"
    way: str = NATIVE


RECIPES = {
    "timm-default": Recipe("timm, color_jitter=0.4", "timm", 3.0, at_least=3.0),
    "timm-rand": Recipe("timm, rand-m9-mstd0.5-inc1, erasing", "timm", 2.7, at_least=3.0),
    "trivial-augment": Recipe("TrivialAugmentWide", "torchvision", 2.9),
    "trivial-augment-erasing": Recipe(
        "TrivialAugmentWide, erasing", "torchvision", 2.9, at_least=3.0
    ),
    "auto-augment": Recipe("AutoAugment, ImageNet's policy", "torchvision", 2.9, at_least=3.0),
    "rand-augment": Recipe("RandAugment", "torchvision", 2.9),
    "simclr-view": Recipe("SimCLR, one view: jitter, grey, blur", "torchvision", 6.0),
    "crop": Recipe("crop and flip", "torchvision", 2.4, output="uint8"),
    "crop-and-own-step": Recipe(
        "crop and flip, then a step of the user's", "torchvision", 1.8, at_least=1.5, way=PYTHON
    ),
    "encoded": Recipe(
        "a dataset of the user's: crop and flip", "encoded", 2.7, at_least=2.5, way=ENCODED
    ),
    "simclr": Recipe("SimCLR, two views", "encoded", 6.4, at_least=4.0, way=ENCODED),
    "dino": Recipe("DINO, 2 crops of 224 and 8 of 96", "encoded", 4.3, at_least=5.0, way=ENCODED),
    "cifar10": Recipe("CIFAR10: padded crop, flip", "cifar", 25.0, at_least=10.0),
}


IN_PYTHON = "native=False"
V2 = "dataloader-v2"


def rows(recipe: Recipe, threads: int) -> list[Row]:
    """What is compared over a recipe, with so many threads or workers."""
    return [
        Row(
            "workers",
            f"{threads} threads against {threads} workers",
            "fastloader",
            "dataloader",
            recipe.at_least,
        ),
        Row("without workers", "num_workers=0 on both sides", "fastloader@0", "dataloader@0", 1.0),
        Row(
            "torchvision v2",
            f"{threads} threads against torchvision v2 in {threads} workers",
            "fastloader",
            V2,
        ),
        Row(
            IN_PYTHON,
            f"native=False, {threads} workers on both sides",
            "fastloader-python",
            "dataloader",
            0.97,
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
