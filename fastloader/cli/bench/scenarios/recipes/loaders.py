"""The loaders that are compared over a recipe: FastLoader, which must run as the table of recipes says,
and torch's DataLoader."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch.utils.data import DataLoader

from fastloader import FastLoader
from fastloader.cli.bench.recipes import RECIPES
from fastloader.cli.bench.scenarios import Settings


class Epochs:
    """Starts an epoch of ``loader`` when it is called. ``plan`` is FastLoader's."""

    def __init__(self, loader: Any, plan: str = "") -> None:
        self.plan = plan
        self.loader = loader

    def __call__(self) -> Iterator[int]:
        return (len(labels) for _images, labels in self.loader)


def fastloader(dataset: Any, settings: Settings, native: bool = True) -> Epochs:
    loader: FastLoader[Any] = FastLoader(dataset, native=native, **options(settings))
    return checked(loader, loader, settings, native)


def dataloader(dataset: Any, settings: Settings) -> Epochs:
    return Epochs(DataLoader(dataset, **options(settings)))


def options(settings: Settings) -> dict[str, Any]:
    """What both sides are given."""
    return {
        "batch_size": settings.batch_size,
        "shuffle": True,
        "num_workers": settings.threads,
        "persistent_workers": settings.threads > 0,
    }


def checked(
    batches: Any, loader: FastLoader[Any], settings: Settings, native: bool = True
) -> Epochs:
    """The epochs of ``batches``, which ``loader`` makes.

    Raises RuntimeError if the loader does not run as its recipe says: what is measured would not be
    what is shown.
    """
    plan = loader.plan()
    expected = native and RECIPES[settings.recipe].native
    if plan.startswith("native") != expected:
        way = "native" if expected else "in Python"
        raise RuntimeError(
            f"recipe {settings.recipe} is to run {way} by the table of recipes, but does not: {plan}"
        )
    return Epochs(batches, plan)
