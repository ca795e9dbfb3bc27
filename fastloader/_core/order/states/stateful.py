"""Samplers, datasets and their iterators that save and restore themselves, by torchdata's protocol."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from typing import Any


def is_stateful(thing: Any) -> bool:
    """Whether ``thing`` has ``state_dict()`` and ``load_state_dict(state)``. Methods of these names that
    need other arguments are something else."""
    save, load = getattr(thing, "state_dict", None), getattr(thing, "load_state_dict", None)
    return callable(save) and callable(load) and _takes(save) and _takes(load, {})


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
