"""timm itself, where it is needed."""

from __future__ import annotations

import importlib
from typing import Any


def import_timm(argument: str, instead: str = "") -> Any:
    """``timm.data``. Raises ImportError saying that ``argument`` needs it, and what does not."""
    try:
        return importlib.import_module("timm.data")
    except Exception as error:  # a torchvision of another torch is a RuntimeError
        raise ImportError(
            f"{argument} needs timm, which cannot be imported ({error}): pip install timm"
            + (f", or give {instead}" if instead else "")
        ) from error
