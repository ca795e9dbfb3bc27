"""The callers of a function, for what only the calling framework knows and does not pass on."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import FrameType

import fastloader

_PACKAGE = fastloader.__path__[0]


def callers() -> Iterator[FrameType]:
    """Gives the frame that iterates over this first, then its callers, outwards."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        yield frame
        frame = frame.f_back


def users_level() -> int:
    """The ``stacklevel`` with which the function that calls this warns at the line of the user's code,
    even through code of ours, and of torch's compiler, which `eager` puts between."""
    level = 0
    for frame in callers():
        compiler = frame.f_globals.get("__name__") == "torch._dynamo.eval_frame"
        if not compiler and not frame.f_code.co_filename.startswith(_PACKAGE):
            break
        level += 1
    return level


def callers_in(modules: tuple[str, ...]) -> Iterator[FrameType]:
    """Gives the callers whose code is of one of ``modules``. Costs nothing if none was imported."""
    found = [sys.modules.get(name) for name in modules]
    if spaces := [vars(module) for module in found if module is not None]:
        for frame in callers():
            if any(frame.f_globals is space for space in spaces):
                yield frame
