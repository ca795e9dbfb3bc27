"""A batch whose pictures are being decoded."""

from __future__ import annotations

import types
from collections.abc import Sequence
from typing import Any

import torch

from fastloader._core.batch.tree import rebuild
from fastloader._core.sources.encoded.batch import EncodedBatch, MadePart
from fastloader._core.sources.encoded.decoding.decoder import EncodedDecoder
from fastloader._core.sources.encoded.decoding.drawn_batch import DrawnBatch
from fastloader._core.sources.encoded.decoding.keys import DrawnBy
from fastloader._core.sources.encoded.decoding.parts import Part, View, parts
from fastloader._core.sources.encoded.decoding.repair import EncodedRepair
from fastloader.datasets.encoded import EncodedPlace
from fastloader.transforms.tensors import erased


class PendingPictures:
    """Decodes the pictures of a batch, and puts them where they stand in it.

    Args:
        drawn_by: what the samples are drawn by.
        memory: where to decode; None for the decoder's own memory.

    Attributes, once the batch is `finished`: ``dropped`` and ``replaced``, the positions that are left
    out, and those that another sample is to take, with the errors; ``record``, what was drawn.
    """

    def __init__(
        self,
        decoder: EncodedDecoder,
        batch: EncodedBatch,
        drawn_by: DrawnBy,
        memory: Any = None,
    ) -> None:
        self._decoder = decoder
        self._batch = batch
        self.numbers, self.keys, self.seeds = drawn_by.numbers, drawn_by.keys, drawn_by.seeds
        self._drawn_by = drawn_by
        self.counted = False  # whether its samples were counted; Ctrl-C may come in between
        self.dropped: set[int] = set()
        self.replaced: dict[int, BaseException] = {}
        self._parts = parts(batch.columns)
        self.record: DrawnBatch | None = None
        # By part, with what each repairs: a call that Ctrl-C has ended is followed by another one.
        self._repairs: dict[int, tuple[EncodedRepair, Any]] = {}
        self._stopped = False
        source = None
        if decoder.native and batch.parts is None:
            source = batch.files.opened()
        made: Sequence[MadePart | None] = batch.parts or [None] * len(self._parts)
        self._decoding = [
            self._begun(part, source, its, memory)
            for part, its in zip(self._parts, made, strict=True)
        ]

    def _begun(self, part: Part, source: Any, made: MadePart | None, memory: Any) -> Any:
        chains, columns = self._batch.chains, self._batch.columns
        views = [(chains[view.chain], columns[view.column].number) for view in part.views]
        keys = [self.keys[position] for position in part.positions]
        return self._decoder.submit(
            self._batch.files, source, part, views, keys, self._seeds(part.positions), made, memory
        )

    def parts_made(self) -> list[tuple[Part, MadePart]]:
        """What Pillow has made."""
        return [(part, each.made) for part, each in zip(self._parts, self._decoding, strict=True)]

    def _seeds(self, positions: Sequence[int]) -> list[int]:
        return self.seeds if len(self.seeds) == 1 else [self.seeds[each] for each in positions]

    def seed(self, position: int) -> int:
        return self._seeds([position])[0]

    def ready(self) -> bool:
        """Whether all pictures were tried."""
        return all(each.ready() for each in self._decoding)

    def stop(self) -> None:
        """Ends the work, from any thread. `finished` raises StopIteration then."""
        self._stopped = True
        for each in self._decoding:
            each.stop()
        for repair, _pending in list(self._repairs.values()):
            repair.stop()

    def forget(self) -> None:
        """Lets go of the memory, except for what the finished batch holds. The error of a sample, whose
        traceback leads here, may be kept for long."""
        for repair, pending in list(self._repairs.values()):
            repair.forget()
            pending.batch = None
        self._repairs, self._decoding = {}, []

    def finished(self) -> Any:
        """Waits for the pictures, and returns the batch with them. Ctrl-C may end the waiting, and the
        next call waits on.

        Raises:
            StoppedError: if the work was ended.
            Exception: of a sample that cannot be read, if the policy is to raise.
        """
        # By number: no frame of an error's traceback is to hold a batch.
        for number in range(len(self._parts)):
            if self._stopped or not self._decoding[number].wait():
                raise StopIteration
            failures = self._decoding[number].failures()
            if failures:
                self._mend(number, failures)
        if self.record is None:
            self.record = self._recorded()
            self._count()
        columns = self._columns(self.record)
        return rebuild(self._batch.tree, lambda each, _key: _filled(each, columns))

    def _count(self) -> None:
        """Counts the pictures, by who made them."""
        for number, part in enumerate(self._parts):
            repair = self._repairs[number][0] if number in self._repairs else None
            redone = 0 if repair is None else len(repair.redone)
            bad = 0 if repair is None else len(repair.bad)
            self._decoder.count(
                made=(len(part.positions) - redone - bad) * len(part.views),
                redone=redone * len(part.views),
                by_worker=self._batch.parts is not None,
            )

    def _mend(self, number: int, failures: Any) -> None:
        part = self._parts[number]
        if number not in self._repairs:
            pending = types.SimpleNamespace(
                batch=self._decoding[number],
                keys=[self.numbers[position] for position in part.positions],
                files=list(part.files),
                seeds=self._seeds(part.positions),
                bad={},
            )
            self._repairs[number] = EncodedRepair(self._decoder, self._batch.files), pending
        if self._stopped:  # meanwhile
            raise StopIteration
        repair, pending = self._repairs[number]
        kept = repair.done(pending, failures)
        if kept is not None:
            repair.bad = set(range(len(part.positions))) - set(kept)
            self.dropped |= {part.positions[place] for place in repair.bad}
        for place, error in repair.replaced.items():
            repair.bad.add(place)
            self.replaced[part.positions[place]] = error

    def _recorded(self) -> DrawnBatch:
        sizes = [[(0, 0)] * len(self.keys) for _ in self._batch.columns]
        for part, decoding in zip(self._parts, self._decoding, strict=True):
            for position, size in zip(part.positions, decoding.sizes(), strict=True):
                for view in part.views:
                    sizes[view.column][position] = size
        batch = self._batch
        return DrawnBatch(self._decoder, batch.columns, batch.chains, sizes, self._drawn_by)

    def _columns(self, record: DrawnBatch) -> list[Any]:
        pieces: list[list[tuple[Part, torch.Tensor]]] = [[] for _ in self._batch.columns]
        for part, decoding in zip(self._parts, self._decoding, strict=True):
            for number, view in enumerate(part.views):
                made = decoding.take(number)
                pixels = made if isinstance(made, torch.Tensor) else torch.from_dlpack(made)
                self._erase(view, part, pixels)
                pieces[view.column].append((part, pixels))
        made = []
        for number, column in enumerate(self._batch.columns):
            pictures = _joined(pieces[number])
            rows = record.parameters(number) if column.parameters else None
            if self._batch.samples is None:
                one = None if rows is None else {name: row[0] for name, row in rows.items()}
                made.append(pictures[0] if one is None else (pictures[0], one))
            else:
                made.append(pictures if rows is None else [pictures, rows])
        return made

    def _erase(self, view: View, part: Part, pixels: torch.Tensor) -> None:
        erasing = self._decoder.chain(self._batch.chains[view.chain]).erasing
        if erasing is None:
            return
        number = self._batch.columns[view.column].number
        seeds = self._seeds(part.positions)
        keys = [self.keys[position] for position in part.positions]
        for place, key in enumerate(keys):
            seed = seeds[0] if len(seeds) == 1 else seeds[place]
            erased(pixels[place], erasing, seed, key, number, inplace=True)


def _joined(pieces: list[tuple[Part, torch.Tensor]]) -> torch.Tensor:
    """One tensor of the pictures of a column, in the order of their samples."""
    _part, first = pieces[0]
    if len(pieces) == 1:
        return first
    count = sum(len(part.positions) for part, _pixels in pieces)
    joined = first.new_empty((count, *first.shape[1:]))
    for part, pixels in pieces:
        if pixels.shape[1:] != first.shape[1:] or pixels.dtype != first.dtype:
            raise RuntimeError(
                "a batch has EncodedImages in one place that become tensors of "
                f"{tuple(first.shape[1:])} {first.dtype} and {tuple(pixels.shape[1:])} {pixels.dtype}"
            )
        joined[part.positions] = pixels
    return joined


def _filled(value: Any, columns: list[Any]) -> Any:
    return columns[value.column] if type(value) is EncodedPlace else value
