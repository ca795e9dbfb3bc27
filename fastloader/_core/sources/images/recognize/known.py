"""A kind of dataset that is known."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from fastloader._core.pictures.native_images import NativeImages
from fastloader._core.sources.images.recognize.reading import Reading


@dataclasses.dataclass(frozen=True)
class Known:
    """``recognize`` makes `NativeImages` of a dataset. ``reads``: the attributes that say which samples
    there are, or what they are, beside those that most datasets have. ``only``: which of its objects
    hold pictures; None: all."""

    recognize: Callable[[Any, Reading], NativeImages]
    reads: tuple[str, ...] = ()
    only: Callable[[Any], bool] | None = None
