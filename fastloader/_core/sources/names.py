"""Classes and functions by their names, so that nothing is imported to recognise them."""

from __future__ import annotations

from typing import Any


def is_class(kind: type, module: str, name: str) -> bool:
    return (kind.__module__, kind.__qualname__) == (module, name)


def named(value: Any) -> str:
    return str(getattr(value, "__qualname__", repr(value)))
