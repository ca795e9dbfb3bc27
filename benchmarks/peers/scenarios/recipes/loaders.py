"""The loaders that are compared over a recipe: FastLoader, which must run as the table of recipes says,
and torch's DataLoader."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch.utils.data import DataLoader

from benchmarks.peers.recipes import RECIPES
from benchmarks.peers.scenarios import ENCODED, NATIVE, PYTHON, Settings
from fastloader import FastLoader
from fastloader._core.machine import extension


class Epochs:
    """Starts an epoch of ``loader`` when it is called. ``made_by`` is the FastLoader that makes its
    batches, if one does, and ``way`` is how that must make them.

    The first batch raises RuntimeError if it was made in another way: what is measured would not be what
    is shown. Before that batch a plan does not tell who decodes what a dataset leaves encoded.
    """

    def __init__(self, loader: Any, made_by: FastLoader[Any] | None = None, way: str = "") -> None:
        self.loader = loader
        self._made_by, self._way = made_by, way
        self._looked = made_by is None

    @property
    def plan(self) -> str:
        """FastLoader's; empty for another loader."""
        return "" if self._made_by is None else self._made_by.plan()

    def __call__(self) -> Iterator[int]:
        for _images, labels in self.loader:
            if not self._looked:
                self._look()
            yield len(labels)

    def _look(self) -> None:
        assert self._made_by is not None
        way = way_of(self._made_by)
        if way != self._way:
            raise RuntimeError(
                f"by the benchmark's table it is to run {self._way}, but it runs {way}: {self.plan}"
            )
        self._looked = True


def way_of(loader: FastLoader[Any]) -> str:
    """Who has made the pictures so far. It is Python if workers made a single one that was to stay
    encoded."""
    if loader.plan().startswith("native"):
        return NATIVE
    pictures = loader.stats().get("pictures", {"pool": 0, "workers": 0})
    native = loader.native and extension.load() is not None
    return ENCODED if native and pictures["pool"] and not pictures["workers"] else PYTHON


def fastloader(dataset: Any, settings: Settings, native: bool = True) -> Epochs:
    loader: FastLoader[Any] = FastLoader(dataset, native=native, **options(settings))
    return watched(loader, loader, settings, native)


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


def watched(
    batches: Any, loader: FastLoader[Any], settings: Settings, native: bool = True
) -> Epochs:
    """The epochs of ``batches``, which ``loader`` makes as its recipe says."""
    return Epochs(batches, loader, RECIPES[settings.recipe].way if native else PYTHON)
