"""A batch of pictures in the decode pool, or what has taken its place."""

from __future__ import annotations

import dataclasses
import time
from typing import Any

import torch

from fastloader._core.pictures.decoder import Decoder


class Submitted:
    """One batch in the pool, in the slot ``place`` or else in recycled memory."""

    def __init__(
        self, source: Decoder, keys: list[int], seeds: list[int], place: Any | None
    ) -> None:
        self.place = place
        self.keys = keys
        self.files = list(keys)
        if source.images.indices is not None:
            self.files = source.images.indices[keys].tolist()
        self.seeds = seeds
        self.pixels: torch.Tensor | None = None  # the batch gives them once
        begun = time.perf_counter()
        source.files.prepare(self.files)
        self.locate_s = time.perf_counter() - begun
        self.batch = source.native.DecodeBatch(
            job=source.job,
            quota=source.quota,
            indices=self.files,
            seeds=seeds,
            memory=source.memory if place is None else place,
        )


@dataclasses.dataclass
class Failed:
    """What the sampler raised, in its batch's place."""

    error: BaseException
    place: Any | None
