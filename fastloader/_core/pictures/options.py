"""The options with which a loader's pictures are decoded."""

from __future__ import annotations

import dataclasses

from fastloader._core.observation.tuning.tuner import ThreadTuner
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
