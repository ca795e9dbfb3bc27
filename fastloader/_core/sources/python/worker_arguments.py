"""The arguments of torch's worker loop, by the names that the installed torch gives them. torch 2.14
hands the dataset over in a list that the worker empties; earlier ones hand over the dataset itself."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch

from fastloader.errors import Error

# What workers that are no processes are made of.
_NEEDED = (
    "dataset_kind",
    "dataset",
    "index_queue",
    "data_queue",
    "done_event",
    "auto_collation",
    "collate_fn",
    "drop_last",
    "base_seed",
    "init_fn",
    "worker_id",
    "num_workers",
)


def named_arguments(loop: Callable[..., None], arguments: tuple[Any, ...]) -> dict[str, Any]:
    """What torch would call ``loop``, its worker loop, with: each of `_NEEDED` by its name."""
    try:
        given = inspect.signature(loop).bind(*arguments).arguments
    except TypeError:
        given = {}
    # By the parameter's name: a dataset may be a list.
    if "dataset_holder" in given:
        given["dataset"] = given.pop("dataset_holder").pop()
    if lacking := [name for name in _NEEDED if name not in given]:
        raise Error(
            f"what torch {torch.__version__} gives its workers cannot be told: {loop!r} takes no "
            f'{", ".join(lacking)}. Use worker_backend="process", and tell fastloader\'s authors'
        )
    return {name: given[name] for name in _NEEDED}
