"""The callers of a function, for what only the calling framework knows and does not pass on."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import FrameType


def callers() -> Iterator[FrameType]:
    """Gives the frame that iterates over this first, then its callers, outwards."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        yield frame
        frame = frame.f_back


def callers_in(modules: tuple[str, ...]) -> Iterator[FrameType]:
    """Gives the callers whose code is of one of ``modules``. Costs nothing if none was imported."""
    if any(name in sys.modules for name in modules):
        for frame in callers():
            if frame.f_globals.get("__name__") in modules:
                yield frame
