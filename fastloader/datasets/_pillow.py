"""Pillow, where it is needed."""

from __future__ import annotations

import os
import stat
from typing import Any


def image_module() -> Any:
    """``PIL.Image``, of Pillow or Pillow-SIMD. Raises ImportError that names both."""
    try:
        from PIL import Image
    except ImportError as error:
        raise ImportError(
            "this needs PIL: pip install pillow, or pip install pillow-simd (faster, but it resizes "
            "otherwise)"
        ) from error
    return Image


def open_rgb(path: str) -> Any:
    """The first frame of the picture at ``path``, decoded and converted as torchvision's default
    loader does. Raises OSError for what is no file: a pipe named .jpg would never end."""
    with open(path, "rb", opener=_open_without_waiting) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(f"not a regular file: {path!r}")
        with image_module().open(file) as image:
            return image.convert("RGB")


def _open_without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))  # or for who writes to the pipe
