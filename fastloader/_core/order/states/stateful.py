"""Samplers, datasets and their iterators that save and restore themselves, by torchdata's protocol."""

from __future__ import annotations

import copy
import inspect
import sys
from collections.abc import Callable
from typing import Any

from fastloader._core.machine.identity import found


def is_stateful(thing: Any) -> bool:
    """Whether ``thing`` has ``state_dict()`` and ``load_state_dict(state)``, by which it goes on
    exactly. Methods of these names that need other arguments are something else."""
    save, load = getattr(thing, "state_dict", None), getattr(thing, "load_state_dict", None)
    able = callable(save) and callable(load) and _takes(save) and _takes(load, {})
    return able and not _forgets(thing)


# Parts of Hugging Face's iterable datasets whose state lacks something: what lies in a shuffle buffer,
# or which of their sources a worker process has.
_FORGETFUL = (
    "BufferShuffledExamplesIterable",
    "CyclingMultiSourcesExamplesIterable",
    "InterleavedShardsExamplesIterable",
    "RandomlyCyclingMultiSourcesExamplesIterable",
)


def _forgets(thing: Any) -> bool:
    """Whether it is an iterable dataset of Hugging Face whose state is not all of its place."""
    home = "datasets.iterable_dataset"
    kind = found(home, "IterableDataset")
    if kind is None or not isinstance(thing, kind):
        return False
    forgetful = tuple(filter(None, (found(home, name) for name in _FORGETFUL)))
    parts = [getattr(thing, "_ex_iterable", None)]
    for part in parts:  # which grows
        if isinstance(part, forgetful):
            return True
        inner = [getattr(part, "ex_iterable", None), *(getattr(part, "ex_iterables", None) or ())]
        parts += [each for each in inner if each is not None]
    return False


def _takes(method: Callable[..., Any], *arguments: Any) -> bool:
    try:
        signature = inspect.signature(method)
    except (TypeError, ValueError):  # native code may not tell its signature
        return True
    try:
        signature.bind(*arguments)
    except TypeError:
        return False
    return True


def state_of(thing: Any, was_read: bool) -> Any:
    """A copy of the state that ``thing`` has now; None stands for its beginning. Many things make their
    fields when they are first read, and raise AttributeError before that. Such an error means the
    beginning only if it is of a field of ``thing``, or of something stateful of which it consists."""
    try:
        state = thing.state_dict()
    except AttributeError as error:
        if was_read or not is_stateful(error.obj):
            raise
        return None
    return copy.deepcopy(state)


def restore(dataset: Any, state: Any, mid_epoch: bool) -> None:
    """Loads a dataset's own state. ``mid_epoch``: whether the state is of the middle of the epoch that
    begins. Hugging Face's would begin at the end of its data with any other one."""
    if mid_epoch or not _keeps_its_beginning(dataset):
        dataset.load_state_dict(state)


def begin_anew(dataset: Any) -> None:
    """Has the next ``iter()`` of a dataset that was restored begin at the beginning."""
    if _keeps_its_beginning(dataset):
        # It passes over a state of another epoch than its own.
        dataset.load_state_dict({"examples_iterable": None, "epoch": None})


def _keeps_its_beginning(dataset: Any) -> bool:
    """Whether every ``iter()`` of a dataset begins at the state that was loaded, and not only the next
    one: Hugging Face's."""
    theirs: Any = sys.modules.get("datasets.iterable_dataset")
    load = getattr(getattr(theirs, "IterableDataset", None), "load_state_dict", None)
    return load is not None and getattr(type(dataset), "load_state_dict", None) is load
