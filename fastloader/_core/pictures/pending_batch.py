"""A batch of pictures in the decode pool, or what takes its place."""

from __future__ import annotations

import dataclasses
import time
from typing import Any

from fastloader._core.batch.tree import flatten
from fastloader._core.machine import extension
from fastloader._core.pictures.decoder import Decoder
from fastloader._core.pictures.native_images import NativeImages
from fastloader._core.pictures.store import Looking
from fastloader.errors import StoppedError

_TURN = 0.1  # seconds between two looks for the end of the epoch
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
        self._store = decoder.store
        self._look: Looking | None = None
        self._stopped = False
        begun = time.perf_counter()
        decoder.store.prepare(self.files)
        self.locate_s = time.perf_counter() - begun
        self.batch = extension.native.DecodeBatch(
            job=decoder.job,
            quota=decoder.quota,
            indices=self.files,
            seeds=seeds,
            memory=decoder.memory if reservation is None else reservation,
        )

    def begin_look(self) -> None:
        """Has the store look at what the pictures were read from, once the pool is done with them."""
        if self._look is None and self.batch.ready():
            self._look = self._store.begin_look(self.files)

    def check(self, again: bool = False) -> None:
        """Waits for the look at the files, and raises ValueError if one has changed. The labels of the
        batch may then be those of other pictures. ``again``: more was read since a look began.

        Raises:
            StoppedError: if the batch was stopped meanwhile.
        """
        if again:
            self._look = None
        self.begin_look()
        look = self._look
        if look is None:
            return
        while not look.wait(_TURN):
            if self._stopped:
                raise StoppedError("the epoch was ended while files were looked at")
        look.check()

    def stop(self) -> None:
        """Has the pool give the batch up, from any thread."""
        self._stopped = True
        self.batch.stop()

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
