"""The training recipes of ``fastloader bench --recipe``, each of which a line here adds.

A recipe belongs to a module of ``scenarios/recipes``, which knows its dataset and its transforms under
the recipe's name. The module's functions make the contenders: ``fastloader``, ``fastloader_python`` and
``dataloader``. Nothing is imported here but the standard library, since the command line reads this.
"""

from __future__ import annotations

import dataclasses

# Who makes a recipe's pictures.
NATIVE = "native"
ENCODED = "on the decode threads"  # what a dataset leaves encoded
PYTHON = "in Python"


@dataclasses.dataclass(frozen=True)
class Recipe:
    """What is compared, and what is promised of it.

    ``way`` says how FastLoader must run it, and the run fails where it does otherwise. ``at_least`` is
    None without a promise, and ``predicted`` is comparison.py's.
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
EVERY = "all"


def named(names: list[str]) -> dict[str, Recipe]:
    """Those of these names, in the table's order."""
    return {name: each for name, each in RECIPES.items() if {name, EVERY} & set(names)}
