"""Pillow, where it is needed."""

from __future__ import annotations

from typing import Any


def image_module() -> Any:
    """``PIL.Image``, of Pillow or Pillow-SIMD. Raises ImportError that names both."""
    try:
        from PIL import Image
    except ImportError as error:
        raise ImportError(
            "this needs PIL: pip install 'fastloader[pillow]' (Pillow) or "
            "pip install 'fastloader[simd]' (Pillow-SIMD, faster)"
        ) from error
    return Image


def open_rgb(path: str) -> Any:
    """The first frame of the picture at ``path``, decoded and converted as torchvision's default
    loader does."""
    with open(path, "rb") as file, image_module().open(file) as image:
        return image.convert("RGB")
