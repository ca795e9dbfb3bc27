"""The repair of samples whose files the decode threads could not finish."""

from __future__ import annotations

import types
from typing import Any

from fastloader._core.pictures.repair import Repair
from fastloader._core.sources.encoded.decoding.decoder import EncodedDecoder
from fastloader._core.sources.encoded.decoding.pillow_batch import PillowBatch
from fastloader._core.sources.encoded.files import EncodedFiles
from fastloader.transforms._pillow import name_picture


class EncodedRepair(Repair):
    """Does as `Repair` for a part of a batch. Which sample takes a bad one's place is left to the loop's
    thread, because the dataset's own code makes it. Attributes: ``redone``, the positions that Pillow
    made; ``bad``, those that nobody could make; ``replaced``, the error of each that another sample is
    to take."""

    def __init__(self, decoder: EncodedDecoder, files: EncodedFiles) -> None:
        seen: Any = types.SimpleNamespace(
            policy=decoder.policy,
            threads=decoder.threads,
            images=decoder,
            store=files,
        )
        super().__init__(seen)
        self.redone: set[int] = set()
        self.bad: set[int] = set()
        self.replaced: dict[int, BaseException] = {}

    def _redo(self, position: int, other: int | None = None) -> None:
        pending = self._wanted()
        if isinstance(pending.batch, PillowBatch):
            picture = self._decoder.store.open_rgb(pending.files[position])
            pending.batch.transform(position, picture)
        else:
            super()._redo(position, other)
        self.redone.add(position)

    def _name(self, error: BaseException, position: int) -> None:
        pending = self._wanted()
        files: Any = self._decoder.store
        if files.is_nameless(pending.files[position]):
            name = files.name(pending.files[position])
            name_picture(error, f"{name} (sample {pending.keys[position]})", name)
        super()._name(error, position)

    def _replace(self, position: int, error: BaseException) -> None:
        self.replaced[position] = error
