"""What ``plan()`` calls a dataset."""

from __future__ import annotations

from typing import Any


def name_of(dataset: Any) -> str:
    """The name of the class of torchvision's that the dataset is of, or derives from."""
    for kind in type(dataset).__mro__:
        if kind.__module__.startswith("torchvision.datasets."):
            return f"torchvision {kind.__qualname__}"
    raise AssertionError(f"{type(dataset)} is no dataset of torchvision's")
