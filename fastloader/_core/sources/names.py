"""Names functions and classes in messages."""

from __future__ import annotations

from types import FunctionType
from typing import Any

from fastloader._core.machine import identity
from fastloader.transforms.transform import shown


def named(value: Any) -> str:
    """Names a function or a class with its module, so that no message says "collate_fn is collate_fn".
    For any other object, returns its repr, on one line and cut."""
    if type(value) is FunctionType:
        return identity.true_name(value)
    name, module = getattr(value, "__qualname__", None), getattr(value, "__module__", None)
    if name is None:
        return shown(value)
    return str(name) if module in (None, "builtins") else f"{module}.{name}"
