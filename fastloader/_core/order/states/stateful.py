"""Samplers, datasets and their iterators that save and restore themselves, as torchdata has it."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from typing import Any


def is_stateful(thing: Any) -> bool:
    """Whether it has ``state_dict()`` and ``load_state_dict(state)``. Methods of these names that want
    other arguments are something else."""
    save, load = getattr(thing, "state_dict", None), getattr(thing, "load_state_dict", None)
    return callable(save) and callable(load) and _takes(save) and _takes(load, {})


def _takes(method: Callable[..., Any], *arguments: Any) -> bool:
    try:
        signature = inspect.signature(method)
    except (TypeError, ValueError):  # of native code, which does not tell
        return True
    try:
        signature.bind(*arguments)
    except TypeError:
        return False
    return True


def state_of(thing: Any, was_read: bool) -> Any:
    """Its state as of now, whatever it goes on to change. None stands for its beginning: many make their
    fields when they are first read, and cannot say before that where they are. So an AttributeError
    says, but only of a field of theirs, or of something stateful that they consist of."""
    try:
        state = thing.state_dict()
    except AttributeError as error:
        if was_read or not is_stateful(error.obj):
            raise
        return None
    return copy.deepcopy(state)
