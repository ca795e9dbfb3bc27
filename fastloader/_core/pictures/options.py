"""The options with which a loader's pictures are decoded."""

from __future__ import annotations

import dataclasses
import os

from fastloader._core.observation.tuning import ThreadTuner
from fastloader.transforms._normalization import Normalization


@dataclasses.dataclass(frozen=True)
class DecodeOptions:
    """What a loader asks of its pictures, besides what the dataset itself asks."""

    threads: int
    normalization: Normalization | None
    planar: bool
    decode: str
    truncated: str
    tuner: ThreadTuner | None = None  # with num_workers="auto"


def read_ahead() -> bool | None:
    """Whether files are read before the decode threads want them, as FASTLOADER_READ_AHEAD says. None:
    while reading has to wait.

    Raises:
        ValueError: for another value than 0 and 1.
    """
    value = os.environ.get("FASTLOADER_READ_AHEAD", "")
    if value not in ("", "0", "1"):
        raise ValueError(
            f"FASTLOADER_READ_AHEAD={value!r}: use 0 (never) or 1 (always); without it, files are read "
            "ahead while reading has to wait"
        )
    return bool(int(value)) if value else None
