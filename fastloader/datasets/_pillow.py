"""Pillow, where it is needed."""

from __future__ import annotations

import os
import re
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


def pass_order(version: str | None = None) -> str:
    """The native module's name for the order of a resize's two passes in ``version`` of Pillow; None
    is the installed one. Each pass rounds, so that only Pillow's own order gives its pixels. Without
    Pillow it is Pillow 13's order; so it is with Pillow-SIMD, which resizes otherwise anyhow."""
    if version is None:
        try:
            import PIL
        except ImportError:
            return "pillow13"
        version = str(PIL.__version__)
    if ".post" in version:  # Pillow-SIMD: only its releases are named so
        return "pillow13"
    numbers = re.findall(r"\d+", version)
    release = tuple(int(number) for number in numbers[:2])
    if release >= (13,):
        return "pillow13"
    return "pillow12.2" if release >= (12, 2) else "horizontal first"


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
