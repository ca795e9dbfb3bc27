"""Pillow, where it is needed."""

from __future__ import annotations

import os
import re
import stat
import sys
import warnings
from typing import Any

from fastloader.datasets import _jpeg_work
from fastloader.errors import Error


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
        return decoded_rgb(file)


def decoded_rgb(file: Any) -> Any:
    """The same of an open file. Raises what `refusal` gives for a JPEG that would take too much."""
    check_work(file)
    with image_module().open(file) as image:
        return image.convert("RGB")


def check_work(file: Any) -> None:
    """Raises what `refusal` gives for an open file, or the path of one, whose JPEG would take
    too much."""
    if not hasattr(file, "read"):
        with open(file, "rb") as opened:
            check_work(opened)
        return
    before = file.tell()
    reason = _jpeg_work.excess(file)
    file.seek(before)
    if reason is not None:
        raise refusal(reason)


def refusal(reason: str) -> Exception:
    """For a picture that no decoder is to be given: Pillow's DecompressionBombError, or without
    Pillow an Error."""
    try:
        from PIL import Image
    except ImportError:
        return Error(reason)
    return Image.DecompressionBombError(reason)


def pixel_limits() -> tuple[int, int]:
    """(what is worth a warning, what is refused), in pixels, as ``Image.MAX_IMAGE_PIXELS`` says now:
    more than the first, more than the second."""
    module = sys.modules.get("PIL.Image")  # who has not imported it has not set it
    limit = 89478485 if module is None else module.MAX_IMAGE_PIXELS
    none = (1 << 64) - 1
    if limit is None:
        return none, none
    return min(max(0, int(limit)), none), min(max(0, int(2 * limit)), none)


def warn_of_size(reason: str) -> None:
    """Pillow's warning, which a filter may turn into an error."""
    try:
        from PIL import Image
    except ImportError:
        warnings.warn(reason, RuntimeWarning, stacklevel=2)
    else:
        warnings.warn(reason, Image.DecompressionBombWarning, stacklevel=2)


def _open_without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))  # or for who writes to the pipe
