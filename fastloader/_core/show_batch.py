"""Shows a batch as the network will see it, ``loader.show_batch()``, as a grid with titles."""

from __future__ import annotations

import contextlib
import copy
import random
from collections.abc import Iterator
from typing import Any

import numpy as np

from fastloader._core.batch.shown_pictures import find_pictures
from fastloader._core.order.generators import distinct, put_back, states_of
from fastloader._core.order.loader import Loader

# ---- ``loader.show_batch()``: what the network will see.


def show_batch(loader: Loader, batch: Any, count: int) -> Any:
    """Draws the figure. Raises what `FastLoader.show_batch` says."""
    if isinstance(count, bool) or not isinstance(count, int):
        raise TypeError(f"count must be a whole number of pictures, got {count!r}")
    if count < 1:
        raise ValueError(f"count={count}: show at least one picture")
    try:  # before a batch is made
        from fastloader._core.picture_grid import PictureGrid
    except ImportError as error:
        raise ImportError(
            f"show_batch() draws with matplotlib: pip install matplotlib ({error})"
        ) from error
    if batch is None:
        batch = _first_batch(loader)
    normalization = loader._runtime.normalization
    shown = find_pictures(batch, normalization, _classes(loader.dataset), count)
    if not shown.pixels:
        raise ValueError("the batch is empty, so there is no picture to show")
    return PictureGrid(shown)


def _first_batch(loader: Loader) -> Any:
    """Takes the first batch of an epoch that a copy of the loader begins, so that the loader itself
    stays where it is."""
    own: Any = copy.copy(loader)
    # One worker is enough, and persistent ones are the loader's.
    own.__dict__.update(persistent_workers=False, _iterator=None, **_own_samplers(loader))
    if own.worker_backend != "ray":
        own.__dict__["num_workers"] = min(1, loader.num_workers)
    own._runtime.position.keep_to_itself(own)
    with _kept_random_state(own):
        try:
            iterator = iter(own)
            for batch in iterator:
                return batch
        finally:
            own.close()
    raise ValueError("the loader has no batch to show")


def _own_samplers(loader: Loader) -> dict[str, Any]:
    """Copies the loader's samplers, because a sampler may count its epochs, or what it has given."""
    made: dict[int, Any] = {}

    def copied(sampler: Any) -> Any:
        if id(sampler) not in made:
            made[id(sampler)] = own = copy.copy(sampler)
            for name in ("batch_sampler", "sampler"):
                if getattr(own, "__dict__", {}).get(name) is not None:
                    own.__dict__[name] = copied(own.__dict__[name])
        return made[id(sampler)]

    names = ("sampler", "batch_sampler")
    return {name: copied(getattr(loader, name)) for name in names}


@contextlib.contextmanager
def _kept_random_state(loader: Loader) -> Iterator[None]:
    """Puts back what a shuffle and a dataset draw from: the generators of Python, numpy and torch on
    the CPU, and those of the loader and its samplers."""
    sampler, batch_sampler = loader.sampler, loader.batch_sampler
    holders = (loader, sampler, batch_sampler, getattr(batch_sampler, "sampler", None))
    generators = distinct(*[getattr(holder, "generator", None) for holder in holders])
    states = states_of(generators)
    of_python, of_numpy = random.getstate(), np.random.get_state()
    try:
        yield
    finally:
        random.setstate(of_python)
        np.random.set_state(of_numpy)
        put_back(generators, states)


def _classes(dataset: Any) -> Any:
    """Returns the names of the classes, also of a dataset inside a Subset; None if there are none."""
    for _ in range(8):
        classes = getattr(dataset, "classes", None)
        if isinstance(classes, list | tuple):
            return classes
        dataset = getattr(dataset, "dataset", None)
    return None
