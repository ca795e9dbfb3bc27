"""A batch of pictures in the decode pool, or what takes its place."""

from __future__ import annotations

import dataclasses
import time
from typing import Any

from fastloader._core.batch.tree import flatten
from fastloader._core.pictures.decoder import Decoder
from fastloader._core.pictures.native_images import NativeImages

_SPARES = 10  # samples that are tried if the columns of no sample in a batch can be read


@dataclasses.dataclass(frozen=True)
class Wanted:
    """The samples of a batch: their ``keys``, the ``files`` of their pictures, and ``others``, what else
    is in them, collated. ``bad``: what was raised by the samples of which that cannot be read, by their
    positions."""

    keys: list[int]
    files: list[int]
    others: list[Any]
    bad: dict[int, Exception]

    @classmethod
    def of(cls, images: NativeImages, keys: list[int]) -> Wanted:
        files = keys if images.indices is None else images.indices[keys].tolist()
        # A batch has its full size until the policy is asked, so the slot is reserved for that.
        # The spares come from everywhere, since a bad shard may hold the columns of the first thousand.
        spares = range(0, len(images.store), -(-len(images.store) // _SPARES))
        return cls(keys, files, *images.form.read(files, spares))


class PendingBatch:
    """One batch in the decode pool, in the slot of ``reservation`` or else in recycled memory.
    ``drawn`` holds its index batch, and is no other batch's. ``files``: of which it is made, once the
    bad ones are repaired. ``bad``: the samples that nothing can repair, as `Wanted` has them."""

    def __init__(
        self,
        decoder: Decoder,
        drawn: tuple[Any],
        wanted: Wanted,
        seeds: list[int],
        reservation: Any | None,
    ) -> None:
        self.reservation = reservation
        self.wanted = wanted
        self.keys = wanted.keys
        self.bad = wanted.bad
        self.files = list(wanted.files)
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

    def has_room(self, others: list[Any]) -> bool:
        """Whether a sample with these columns, collated alone, may take a place in the batch. A slot is
        reserved for the columns that were wanted."""
        if self.reservation is None:
            return True
        own, reserved = bytes_of(others), bytes_of(self.wanted.others)
        return len(own) <= len(reserved) and all(
            len(self.keys) * each <= room for each, room in zip(own, reserved)
        )


def bytes_of(others: list[Any]) -> list[int]:
    """Of each tensor in the columns of samples."""
    leaves = flatten(others).leaves if others else []
    return [leaf.numel() * leaf.element_size() for leaf in leaves]


@dataclasses.dataclass
class PendingError:
    """What the sampler raised, in the place of a batch."""

    drawn: tuple[Any]
    error: BaseException
    reservation: Any | None
