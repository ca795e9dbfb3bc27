"""What a FastLoader says to ``accelerator.prepare``, which would leave it out."""

from __future__ import annotations

import warnings
from typing import Any

from fastloader._core.machine.messages import callers, callers_in

_READER = ("accelerate.accelerator",)


class AccelerateNotice:
    """The class attribute that Accelerate reads before it prepares a loader. It is False, because the
    loader is not prepared. The first time that Accelerate reads it, it warns that Accelerate makes a
    plain DataLoader, and says what to write. A loader's own attribute takes its place."""

    def __init__(self) -> None:
        self.warned = False

    def __get__(self, loader: object | None, kind: type | None = None) -> Any:
        if loader is None:
            return self
        if not self.warned and next(callers_in(_READER), None) is not None:
            self.warned = True
            level = 0
            for depth, frame in enumerate(callers(), 1):
                if frame.f_globals.get("__name__") in _READER:
                    level = depth + 1  # of the user's line
            warnings.warn(
                f"accelerator.prepare makes a plain DataLoader of a {type(loader).__name__}, without "
                "device, normalisation and native path. Write: from fastloader.compat.accelerate import "
                "prepare, and loader = prepare(loader, accelerator)",
                RuntimeWarning,
                stacklevel=level,
            )
        return False
