"""timm itself, imported where it is needed."""

from __future__ import annotations

import importlib
from typing import Any


def import_timm(argument: str) -> Any:
    """``timm.data``. Raises ImportError without it, which says that ``argument`` needs it."""
    try:
        return importlib.import_module("timm.data")
    except Exception as error:  # a torchvision of another torch is a RuntimeError
        raise ImportError(
            f"{argument} needs timm, which cannot be imported ({error}): install the torchvision of "
            "your torch first, which pip, left to itself, brings with another torch "
            "(torchvision==0.28.0 for torch 2.13.0), and then pip install timm"
        ) from error
