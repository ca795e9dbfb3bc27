"""The contenders of ``--recipe``: a module for each way to make the dataset."""

from __future__ import annotations

import importlib
import sys
from typing import Any

import torch

_OPERATORS = ("nms", "qnms")
_libraries: list[Any] = []  # an operator lives as long as the library that defines it


def import_torchvision() -> Any:
    """torchvision, also where its binary is of another torch. Its datasets and transforms of Pillow's
    pictures need no binary, but its import stops where two operators do not exist."""
    try:
        return importlib.import_module("torchvision")
    except RuntimeError as error:
        if "does not exist" not in str(error):
            raise
    for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
        del sys.modules[name]
    library = torch.library.Library("torchvision", "FRAGMENT")
    _libraries.append(library)
    for name in _OPERATORS:
        library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    return importlib.import_module("torchvision")
