"""What messages call functions and classes."""

from __future__ import annotations

from types import FunctionType
from typing import Any

from fastloader._core.machine import identity
from fastloader.transforms.transform import shown


def named(value: Any) -> str:
    """A function or a class with its module, so that no "collate_fn is collate_fn" is said; of any other
    object its repr, on one line and cut."""
    if type(value) is FunctionType:
        return identity.true_name(value)
    name, module = getattr(value, "__qualname__", None), getattr(value, "__module__", None)
    if name is None:
        return shown(value)
    return str(name) if module in (None, "builtins") else f"{module}.{name}"
