"""A batch of pictures in the decode pool, or what takes its place."""

from __future__ import annotations

import dataclasses
import time
from typing import Any

from fastloader._core.pictures.decoder import Decoder


class PendingBatch:
    """One batch in the decode pool, in the slot of ``reservation`` or else in recycled memory.
    ``drawn`` holds its index batch, and is no other batch's."""

    def __init__(
        self,
        decoder: Decoder,
        drawn: tuple[Any],
        keys: list[int],
        seeds: list[int],
        reservation: Any | None,
    ) -> None:
        self.reservation = reservation
        self.keys = keys
        self.files = list(keys)
        if decoder.images.indices is not None:
            self.files = decoder.images.indices[keys].tolist()
        self.seeds = seeds
        self.drawn = drawn
        begun = time.perf_counter()
        decoder.store.prepare(self.files)
        self.locate_s = time.perf_counter() - begun
        self.batch = decoder.native.DecodeBatch(
            job=decoder.job,
            quota=decoder.quota,
            indices=self.files,
            seeds=seeds,
            memory=decoder.memory if reservation is None else reservation,
        )


@dataclasses.dataclass
class PendingError:
    """What the sampler raised, in the place of a batch."""

    drawn: tuple[Any]
    error: BaseException
    reservation: Any | None
