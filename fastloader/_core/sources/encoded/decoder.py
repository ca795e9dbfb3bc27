"""Decodes the encoded pictures of batches, repairs what could not be decoded, and keeps what was
drawn."""

from __future__ import annotations

import dataclasses
import pickle
import types
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from fastloader._core.batch.tree import rebuild
from fastloader._core.machine import extension
from fastloader._core.machine.limits import own_threads
from fastloader._core.pictures.images import DrawnBy, ErrorPolicy, read_ahead
from fastloader._core.pictures.repair import Repair
from fastloader._core.sources.encoded.batch import (
    EncodedBatch,
    EncodedColumn,
    EncodedFiles,
    MadePart,
    Part,
    PillowBatch,
    View,
    parts,
)
from fastloader.datasets.encoded import EncodedPlace, parameters
from fastloader.transforms._chain import Chain
from fastloader.transforms._normalization import Normalization, check_same_values, make_spec
from fastloader.transforms._pillow import name_picture, pixel_limits
from fastloader.transforms._recipe import draw
from fastloader.transforms.tensors import erased

if TYPE_CHECKING:
    from fastloader import _native


# ---- The decoder of one loader's encoded pictures: its share of the pool, its memory, its
# jobs.


# How many jobs are kept: chains that a dataset makes anew for each sample would fill the memory.
_MOST_JOBS = 64


class EncodedDecoder:
    """Decodes what samples left encoded. ``native`` says whether the native module does; else Pillow
    does it all. ``decode`` and ``truncated`` are the loader's arguments. ``wanted``: how the delivery
    normalises.

    Attributes: ``threads``, how many decode; ``pool`` and ``pillow``, how many pictures the native
    threads and Pillow have made; ``workers``, how many were made where their samples were made, and
    ``why_made`` there, in words;
    ``decodes``, whether the threads have made one.
    """

    attempts = 1  # of a file; see `NativeImages`

    def __init__(
        self,
        native: bool,
        policy: ErrorPolicy,
        decode: str,
        truncated: str,
        wanted: Normalization | None,
    ) -> None:
        self.policy = policy
        self.threads = own_threads()
        self.pool = self.pillow = self.workers = 0
        self.decodes = False
        self.why_made = ""
        self.options = decode, truncated, wanted
        self.native = native
        self.quota: _native.DecodeQuota | None = None
        self.memory: _native.BufferPool | None = None
        if native:
            self.quota = extension.native.DecodeQuota(self.threads, read_ahead=read_ahead())
            self.memory = extension.native.BufferPool()
        self._chains: dict[bytes, Chain] = {}
        self._jobs: dict[Any, _native.ImageJob] = {}

    def count(self, made: int, redone: int, by_worker: bool) -> None:
        """Counts pictures: those that came out well, and those that Pillow did again. Without the native
        module all that no worker has made are Pillow's."""
        self.pillow += redone
        if by_worker:
            self.workers += made
            return
        self.decodes = True
        if not self.native:
            self.pillow += made
        else:
            self.pool += made

    def go_on_counting(self, before: EncodedDecoder) -> None:
        """Takes over the counts of the decoder in whose place this one is."""
        self.pool, self.pillow, self.workers = before.pool, before.pillow, before.workers

    def chain(self, pickled: bytes) -> Chain:
        found = self._chains.get(pickled)
        if found is None:
            _shorten(self._chains)
            found = pickle.loads(pickled)
            if self.options[2] is not None and found.floating:
                found = _left_to_delivery(found, self.options[2])
            self._chains[pickled] = found
        return found

    def submit(
        self,
        files: EncodedFiles,
        source: Any,
        part: Part,
        views: Sequence[tuple[bytes, int]],
        samples: list[int],
        seeds: list[int],
        made: MadePart | None,
        memory: Any,
    ) -> Any:
        """Begins a part of a batch. ``source``: the native one of its files. ``views``: the pickled
        chain of each view, and which picture of its sample it is. ``made``: the part, if a worker has
        made it. ``memory``: where to decode; None for the decoder's own memory."""
        if made is not None or not self.native:
            chains = [(self.chain(pickled), number) for pickled, number in views]
            return PillowBatch(files, part.files, chains, samples, seeds, self.threads, made)
        assert self.quota is not None and self.memory is not None
        return extension.native.DecodeBatch.of_views(
            views=[(self._job(pickled).over(source), number) for pickled, number in views],
            quota=self.quota,
            indices=part.files,
            samples=samples,
            seeds=seeds,
            memory=memory or self.memory,
        )

    def drawn(self, pickled: bytes, size: Any, seed: int, sample: int, number: int) -> Any:
        """What is drawn for a picture of this (height, width), as the native ``ImageJob.draw`` has
        it."""
        if not self.native:
            return draw.draw(self.chain(pickled), size, seed, sample, number)
        return self._job(pickled).draw(0, seed, size=size, sample=sample, number=number)

    def _job(self, pickled: bytes) -> _native.ImageJob:
        large, most = pixel_limits()  # any code may set Image.MAX_IMAGE_PIXELS
        key = pickled, large, most
        found = self._jobs.get(key)
        if found is None:
            _shorten(self._jobs)
            found = self._jobs[key] = self._made_job(self.chain(pickled), large, most)
        return found

    def _made_job(self, chain: Chain, large: int, most: int) -> _native.ImageJob:
        native, (decode, truncated, _) = extension.native, self.options
        assert chain.size is not None
        spec = None
        if chain.floating:
            spec = make_spec((1, chain.channels, *chain.size), True, chain.normalization)
        no_files = native.FolderSource(np.empty(0, np.uint8), np.empty(0, np.uint64))
        return native.ImageJob(
            source=no_files,
            transform=chain.native(),
            planar=True,
            recipe=chain.native_recipe(),
            output=chain.size,
            channels=chain.channels,
            normalize=spec,
            decode=getattr(native.DecodeMode, decode.upper()),
            pad_truncated=truncated == "pad",
            pixel_limit=most,
            large_pixels=large,
        )


def _left_to_delivery(chain: Chain, wanted: Normalization) -> Chain:
    """The chain without the end that normalises, which the delivery does.

    Raises:
        ValueError: if the two do not do the same.
    """
    own = chain.normalization
    said = "ToTensor()" if own.mean is None else f"Normalize(mean={own.mean}, std={own.std})"
    check_same_values(own, wanted, "the transform of an EncodedImage", said)
    if chain.erasing is not None:
        raise ValueError(
            "the transform of an EncodedImage erases behind Normalize, and mean and std are given to "
            "FastLoader, too: leave them out there"
        )
    return dataclasses.replace(chain, floating=False, mean=None, std=None)


def _shorten(kept: dict[Any, Any]) -> None:
    """Drops the oldest entry of a full one."""
    if len(kept) >= _MOST_JOBS:
        del kept[next(iter(kept))]


# ---- What was drawn for the pictures of one batch.


class DrawnBatch:
    """Remembers what the draws of a batch depend on, without its pictures.

    Args:
        sizes: by column, the (height, width) of each sample's picture; zeros where it was not read.
    """

    def __init__(
        self,
        decoder: EncodedDecoder,
        columns: Sequence[EncodedColumn],
        chains: Sequence[bytes],
        sizes: Sequence[Sequence[tuple[int, int]]],
        drawn_by: DrawnBy,
    ) -> None:
        self.numbers, self._keys, self._seeds = drawn_by.numbers, drawn_by.keys, drawn_by.seeds
        self._decoder = decoder
        self._columns = columns
        self._chains = chains
        self._sizes = sizes

    def replay(self, position: int) -> dict[str, Any] | list[dict[str, Any]]:
        """What became of a sample, as ``loader.replay`` gives it; of several pictures, a list."""
        found = []
        for number, column in enumerate(self._columns):
            drawn = self._drawn(number, position)
            chain = self._decoder.chain(self._chains[column.chains[position]])
            found.append(chain.replayed(drawn, *self._key(position), column.number))
        return found[0] if len(found) == 1 else found

    def parameters(self, number: int) -> dict[str, torch.Tensor]:
        """The parameters of a column, as `EncodedImage` has them."""
        column = self._columns[number]
        return parameters(
            [self._decoder.chain(self._chains[each]) for each in column.chains],
            [self._drawn_if_read(number, position) for position in range(len(self.numbers))],
            [self._key(position) for position in range(len(self.numbers))],
            column.number,
        )

    def _key(self, position: int) -> tuple[int, int]:
        """The seed and the key of a sample."""
        seeds = self._seeds
        return seeds[0] if len(seeds) == 1 else seeds[position], self._keys[position]

    def _drawn_if_read(self, number: int, position: int) -> dict[str, Any] | None:
        """None for a sample that is about to be left out, or to be replaced."""
        return None if 0 in self._sizes[number][position] else self._drawn(number, position)

    def _drawn(self, number: int, position: int) -> dict[str, Any]:
        column, size = self._columns[number], self._sizes[number][position]
        if 0 in size:
            raise ValueError(f"the picture of sample {self.numbers[position]} could not be read")
        chain = self._chains[column.chains[position]]
        drawn: dict[str, Any] = self._decoder.drawn(
            chain, size, *self._key(position), column.number
        )
        return drawn


# ---- The repair of samples whose files the decode threads could not finish.


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


# ---- A batch whose pictures are being decoded.


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
