"""Decodes the encoded pictures of batches, repairs what could not be decoded, and keeps what was
drawn."""

from __future__ import annotations

import dataclasses
import pickle
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch

from fastloader._core.batch.tree import Key, outermost_keys, rebuild
from fastloader._core.machine import extension
from fastloader._core.machine.limits import own_threads
from fastloader._core.pictures.batch import (
    MadePart,
    Other,
    PictureBatch,
    PictureRequest,
    PillowBatch,
)
from fastloader._core.pictures.decoder import Decoder
from fastloader._core.pictures.images import DrawnBy, ErrorPolicy
from fastloader._core.pictures.repair import Repair
from fastloader._core.sources.encoded.batch import (
    EncodedBatch,
    EncodedColumn,
    EncodedFiles,
    Part,
    View,
    parts,
)
from fastloader.datasets.companions import check_size, unlike_frame
from fastloader.datasets.encoded import EncodedPlace, parameters
from fastloader.transforms._chain import Chain
from fastloader.transforms._job import Decode, Job
from fastloader.transforms._normalization import Normalization, check_same_values
from fastloader.transforms._pillow import name_picture, pixel_limits
from fastloader.transforms._recipe.operations import Operation
from fastloader.transforms.tensors import erased

# ---- The decoder of one loader's encoded pictures, with the jobs of their chains.


# How many jobs are kept: chains that a dataset makes anew for each sample would fill the memory.
_MOST_JOBS = 64


class EncodedDecoder(Decoder):
    """Decodes what samples left encoded.

    Args:
        decode: how files are decoded.
        normalization: how the delivery normalises.
        before: the decoder in whose place this one is, whose counts it takes over.

    Attributes: ``pool`` and ``pillow``, how many pictures the native threads and Pillow have made;
    ``workers``, how many were made where their samples were made, and ``why_made`` there, in words;
    ``decodes``, whether the threads have made one.
    """

    def __init__(
        self,
        native: bool,
        policy: ErrorPolicy,
        decode: Decode = Decode(),  # noqa: B008  # it cannot be changed
        normalization: Normalization | None = None,
        threads: int | None = None,
        before: EncodedDecoder | None = None,
    ) -> None:
        super().__init__(own_threads() if threads is None else threads, policy, native, before)
        self.pool = self.pillow = self.workers = 0
        if before is not None:
            self.pool, self.pillow, self.workers = before.pool, before.pillow, before.workers
        self.decodes = False
        self.why_made = ""
        self.native = native
        self.decode, self.normalization = decode, normalization
        self._chains: dict[bytes, Chain] = {}
        self._jobs: dict[Any, Job] = {}

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

    def chain(self, pickled: bytes) -> Chain:
        """Returns the chain that was pickled, as far as it is done here."""
        found = self._chains.get(pickled)
        if found is None:
            _shorten(self._chains)
            found = pickle.loads(pickled)
            if self.normalization is not None and found.floating:
                found = _left_to_delivery(found, self.normalization)
            self._chains[pickled] = found
        return found

    def form(self, pickled: bytes) -> tuple[Any, ...]:
        """Returns the form of the pictures that a chain makes: their size, channels and type."""
        chain = self.chain(pickled)
        return chain.size, chain.channels, chain.dtype, chain.following

    def job(self, pickled: bytes) -> Job:
        """Returns the job of a chain, over no files yet."""
        chain = self.chain(pickled)
        if not self.native:
            return Job(chain, None)
        limits = pixel_limits()  # any code may set Image.MAX_IMAGE_PIXELS
        key = pickled, limits
        found = self._jobs.get(key)
        if found is None:
            _shorten(self._jobs)
            no_files = extension.native.FolderSource(np.empty(0, np.uint8), np.empty(0, np.uint64))
            normalization = chain.normalization if chain.floating else None
            found = self._jobs[key] = Job.of_batches(
                chain, no_files, normalization, decode=self.decode, limits=limits
            )
        return found


def _left_to_delivery(chain: Chain, normalization: Normalization) -> Chain:
    """Returns the chain without the end that normalises, which the delivery does.

    Raises:
        ValueError: if the two do not do the same.
    """
    own = chain.normalization
    steps = "ToTensor()" if own.mean is None else f"Normalize(mean={own.mean}, std={own.std})"
    check_same_values(own, normalization, "the transform of an EncodedImage", steps)
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

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_decoder": None}

    def arrived(self, decoder: EncodedDecoder) -> None:
        """Gives it the decoder of the process to which it was sent."""
        self._decoder = decoder

    def replay(self, position: int) -> dict[str, Any] | list[dict[str, Any]]:
        """Returns what was drawn for a sample, as ``loader.replay`` gives it; for several pictures, a
        list. ``"with"`` has the same of the companions of a picture, by their keys."""
        found = []
        by_column: dict[int, dict[str, Any]] = {}
        for number, column in enumerate(self._columns):
            if not column.shared:
                found += [
                    self._replayed(number, position, frame) for frame in range(column.frames or 1)
                ]
                continue
            replayed = self._replayed(number, position)
            if column.follows is None:
                by_column[number] = replayed
                found.append(replayed)
            else:
                followed = by_column[column.follows.lead].setdefault("with", {})
                followed[column.follows.key] = replayed
        return found[0] if len(found) == 1 else found

    def _replayed(self, number: int, position: int, frame: int = 0) -> dict[str, Any]:
        drawn, of_sample = (
            self._drawn(number, position, frame),
            self._columns[number].number + frame,
        )
        return self._chain(number, position).replayed(drawn, *self._key(position), of_sample)

    def parameters(self, number: int) -> dict[str, torch.Tensor]:
        """Makes the parameters of a column, as `EncodedImage` has them."""
        column = self._columns[number]
        return parameters(
            [self._decoder.chain(self._chains[each]) for each in column.chains],
            [self._drawn_if_read(number, position) for position in range(len(self.numbers))],
            [self._key(position) for position in range(len(self.numbers))],
            column.number,
        )

    def parameters_of(self, number: int, position: int) -> dict[str, torch.Tensor]:
        """Makes the parameters of one sample's picture, as `EncodedImage.decode` gives them."""
        drawn, of_sample = self._drawn_if_read(number, position), self._columns[number].number
        chain = self._chain(number, position)
        rows = parameters([chain], [drawn], [self._key(position)], of_sample)
        return {name: row[0] for name, row in rows.items()}

    def operations(self, number: int, position: int) -> list[Operation]:
        """Lists what was done to a column's picture of a sample, one after the other."""
        return self._chain(number, position).operations(self._drawn(number, position))

    def size(self, number: int, position: int) -> tuple[int, int]:
        """Returns the (height, width) of a column's picture of a sample; zeros where it was not read."""
        return self._sizes[number][position]

    def _chain(self, number: int, position: int) -> Chain:
        """Returns what is done to a column's picture of a sample."""
        return self._decoder.chain(self._chains[self._columns[number].chains[position]])

    def _key(self, position: int) -> tuple[int, int]:
        """Returns the seed and the key of a sample."""
        seeds = self._seeds
        return seeds[0] if len(seeds) == 1 else seeds[position], self._keys[position]

    def _drawn_if_read(self, number: int, position: int) -> dict[str, Any] | None:
        """Returns the draws of a sample; None for one that is about to be left out, or to be
        replaced."""
        return None if 0 in self._sizes[number][position] else self._drawn(number, position)

    def _drawn(self, number: int, position: int, frame: int = 0) -> dict[str, Any]:
        column, size = self._columns[number], self._sizes[number][position]
        if 0 in size:
            raise ValueError(f"the picture of sample {self.numbers[position]} could not be read")
        chain = self._chains[column.chains[position]]
        return self._decoder.job(chain).draw(size, *self._key(position), column.number + frame)


# ---- The repair of samples whose files the decode threads could not finish.


@dataclasses.dataclass
class PendingPart:
    """A part of a batch, as its repair sees it; see `repair.Pending`."""

    batch: PictureBatch
    keys: list[int]
    files: list[int]
    seeds: list[int]
    bad: dict[int, Exception] = dataclasses.field(default_factory=dict)


class EncodedRepair(Repair):
    """Repairs a part of a batch. Which sample takes a bad one's place is left to the loop's thread,
    because the dataset's own code makes it.

    Args:
        part: the one that is repaired.
        seen: the positions of the samples of the batch that were counted as bad ones. A sample may have
            several bad files.

    Attributes: ``redone``, the positions that Pillow made; ``bad``, those that nobody could make;
    ``replaced``, the error of each that another sample is to take.
    """

    def __init__(
        self, decoder: EncodedDecoder, files: EncodedFiles, part: Part, seen: set[int]
    ) -> None:
        super().__init__(decoder, files)
        self._files = files
        self._part, self._seen = part, seen
        self.redone: set[int] = set()
        self.bad: set[int] = set()
        self.replaced: dict[int, BaseException] = {}

    def _redo(self, position: int, other: Other | None = None) -> None:
        super()._redo(position, other)
        self.redone.add(position)

    def _name(self, error: BaseException, position: int) -> None:
        pending = self._current()
        if self._files.is_nameless(pending.files[position]):
            name = self._files.name(pending.files[position])
            name_picture(error, f"{name} (sample {pending.keys[position]})", name)
        super()._name(error, position)

    def _counted(self, bad: dict[int, BaseException]) -> dict[int, BaseException]:
        found = {}
        for place, error in bad.items():
            sample = self._part.position(place)
            if sample not in self._seen:
                self._seen.add(sample)
                found[place] = error
        return found

    def _replace(self, position: int, error: BaseException) -> None:
        self.replaced[position] = error


# ---- A batch whose pictures are being decoded.


class PendingPictures:
    """Decodes the pictures of a batch, and puts them where they stand in it.

    Args:
        drawn_by: what the samples are drawn by.
        memory: where to decode; None for the decoder's own memory.
        apart: as `PictureRequest` has it, for `rows`.

    Attributes, once the batch is `finished`: ``dropped`` and ``replaced``, the positions that are left
    out, and those that another sample is to take, with the errors; ``record``, what was drawn;
    ``places``, the outermost keys under which the pictures stand.
    """

    def __init__(
        self,
        decoder: EncodedDecoder,
        batch: EncodedBatch,
        drawn_by: DrawnBy,
        memory: Any = None,
        apart: bool = False,
    ) -> None:
        self._apart = apart
        self._decoder = decoder
        self._batch = batch
        self.numbers, self.keys, self.seeds = drawn_by.numbers, drawn_by.keys, drawn_by.seeds
        self._drawn_by = drawn_by
        self.counted = False  # whether its samples were counted; Ctrl-C may come in between
        self.dropped: set[int] = set()
        self.replaced: dict[int, BaseException] = {}
        self._parts = parts(batch.columns, lambda number: decoder.form(batch.chains[number]))
        self.record: DrawnBatch | None = None
        self.places: set[Key] = set()
        # By part, with what each repairs: a call that Ctrl-C has ended is followed by another one.
        self._repairs: dict[int, tuple[EncodedRepair, PendingPart]] = {}
        self._seen_bad: set[int] = set()
        self._stopped = False
        # By position: the first frame of a clip that has another size than those before it.
        self._unlike: dict[int, int] = {}
        source = None
        if decoder.native and batch.parts is None:
            source = batch.files.opened()
        made: Sequence[MadePart | None] = batch.parts or [None] * len(self._parts)
        self._decoding = [
            self._begin(part, source, made_part, memory)
            for part, made_part in zip(self._parts, made, strict=True)
        ]

    def _begin(self, part: Part, source: Any, made: MadePart | None, memory: Any) -> PictureBatch:
        """Begins a part of the batch. ``source``: the native one of its files, or None. ``made``: the
        part, if a worker has made it."""
        views = []
        for view in part.views:
            jobs = [self._decoder.job(self._batch.chains[chain]) for chain in view.chains]
            if source is not None:
                jobs = [job.over(source) for job in jobs]
            views.append((jobs, self._batch.columns[view.column].number))
        request = PictureRequest(
            views,
            part.files,
            part.each_file([self.keys[position] for position in part.positions]),
            self._file_seeds(part),
            part.each_file(part.kinds) if any(part.kinds) else [],
            self._apart,
            part.frames,
            [] if part.shared else list(range(part.frames or 1)) * len(part.positions),
        )
        return self._decoder.begin(request, self._batch.files, memory, made)

    def parts_made(self) -> list[tuple[Part, MadePart]]:
        """Returns what Pillow has made."""
        found = []
        for part, decoding in zip(self._parts, self._decoding, strict=True):
            assert type(decoding) is PillowBatch
            found.append((part, decoding.made))
        return found

    def _seeds(self, positions: Sequence[int]) -> list[int]:
        return self.seeds if len(self.seeds) == 1 else [self.seeds[each] for each in positions]

    def _file_seeds(self, part: Part) -> list[int]:
        seeds = self._seeds(part.positions)
        return seeds if len(seeds) == 1 else part.each_file(seeds)

    def seed(self, position: int) -> int:
        return self._seeds([position])[0]

    def ready(self) -> bool:
        """Returns whether all pictures were tried."""
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
            del pending.batch
        self._repairs, self._decoding = {}, []

    def finished(self) -> Any:
        """Waits for the pictures, and returns the batch with them. Ctrl-C may end the waiting, and the
        next call waits on.

        Raises:
            StopIteration: if the work was ended.
            Exception: of a sample that cannot be read, if the policy is to raise.
        """
        columns = self._columns(self._settled())
        return rebuild(self._batch.tree, lambda each, key: self._filled(each, key, columns))

    def _filled(self, value: Any, key: Key, columns: list[Any]) -> Any:
        if type(value) is not EncodedPlace:
            return value
        made = value.of(columns)
        # A picture that is the sample itself may come out as a dict or a list.
        self.places.update(outermost_keys(made) if key is None else [key])
        return made

    def rows(self) -> list[list[Any]]:
        """Waits as `finished`, and returns what stands in the place of each column's pictures, one for
        each sample: a row of the tensor into which it was decoded, or that and its parameters."""
        record = self._settled()
        columns = self._batch.columns
        made: list[list[Any]] = [[None] * len(self.keys) for _ in columns]
        for part, decoding in zip(self._parts, self._decoding, strict=True):
            for number, view in enumerate(part.views):
                rows: list[Any] = decoding.rows(number)
                self._erase(view, part, rows)
                follows = columns[view.column].follows
                if follows is not None:
                    rows = [follows.finished(row) for row in rows]
                wraps = columns[view.column].wraps
                for position, row in zip(part.positions, rows, strict=True):
                    wrap = wraps and wraps[position]
                    made[view.column][position] = wrap(row) if wrap else row
        found = []
        for number, column in self.leads():
            of_column: list[Any] = made[number]
            if self._followers(number):
                of = [made[each] for each in (number, *self._followers(number))]
                of_column = [
                    self._assembled(number, parts, tuple) for parts in zip(*of, strict=True)
                ]
            if column.parameters:
                of_column = [
                    (row, record.parameters_of(number, position))
                    for position, row in enumerate(of_column)
                ]
            found.append(of_column)
        return found

    def leads(self) -> list[tuple[int, EncodedColumn]]:
        """Lists the columns of pictures that follow no others, with their numbers."""
        columns = enumerate(self._batch.columns)
        return [(number, column) for number, column in columns if column.follows is None]

    def _followers(self, lead: int) -> list[int]:
        """Lists the columns of the companions that follow those of a column."""
        return [
            number
            for number, column in enumerate(self._batch.columns)
            if column.follows is not None and column.follows.lead == lead
        ]

    def _assembled(self, lead: int, made: Sequence[Any], unnamed: Callable[[Any], Any]) -> Any:
        """Puts what was made of a column, or of one of its pictures, and of its companions into what
        stands in their place: a dict, or what ``unnamed`` makes of a sequence."""
        if not self._batch.columns[lead].named:
            return unnamed(made)
        follows = [self._batch.columns[each].follows for each in self._followers(lead)]
        return dict(zip(("image", *(each.key for each in follows if each)), made, strict=True))

    def _settled(self) -> DrawnBatch:
        """Waits for the pictures, counts them, and returns what was drawn for them."""
        # By number: no frame of an error's traceback is to hold a batch.
        for number in range(len(self._parts)):
            if self._stopped or not self._decoding[number].wait():
                raise StopIteration
            failures = self._decoding[number].failures()
            if failures:
                self._mend(number, failures)
        if self.record is None:
            record = self._recorded()
            self._check_companions(record)
            self.record = record
            self._count()
        return self.record

    def unfit_files(self) -> set[int]:
        """Returns the numbers of the files of companions that do not fit, once all are made."""
        return {file for file, _error in self._unfit(self._recorded()).values()}

    def _unfit(self, record: DrawnBatch) -> dict[int, tuple[int, ValueError]]:
        """Finds the samples with a companion or a frame that does not fit: by position, the number of
        the file of the first one, and what is wrong with it."""
        found: dict[int, tuple[int, ValueError]] = {}
        for position, file in self._unlike.items():
            found[position] = file, unlike_frame(self._batch.files.name(file))
        for number, column in enumerate(self._batch.columns):
            follows = column.follows
            if follows is None:
                continue
            for position, file in enumerate(column.files):
                lead, own = record.size(follows.lead, position), record.size(number, position)
                if 0 in lead or 0 in own:  # one was not read
                    continue
                try:
                    name = self._batch.files.name(file)
                    check_size(name, follows.key, follows.scale, lead, own)
                except ValueError as unfit:
                    found.setdefault(position, (file, unfit))
        return found

    def _check_companions(self, record: DrawnBatch) -> None:
        """Checks the sizes of companions. A sample of which one does not fit is a bad one."""
        gone = self.dropped | self.replaced.keys()
        unfit = self._unfit(record)
        bad = {
            position: error for position, (_file, error) in unfit.items() if position not in gone
        }
        policy = self._decoder.policy
        for position, error in bad.items():
            named = f"sample {self.numbers[position]}, {error}"
            policy.count(named, error)
            if policy.on_error == "raise":
                raise ValueError(named) from None
            policy.check(named, error)
            if policy.on_error == "skip":
                self.dropped.add(position)
            else:
                self.replaced[position] = error

    def _count(self) -> None:
        """Counts the pictures, by who made them."""
        for number, part in enumerate(self._parts):
            repair = self._repairs[number][0] if number in self._repairs else None
            redone = 0 if repair is None else len(repair.redone)
            bad = 0 if repair is None else len(repair.bad)
            self._decoder.count(
                made=(len(part.files) - redone - bad) * len(part.views),
                redone=redone * len(part.views),
                by_worker=self._batch.parts is not None,
            )

    def _mend(self, number: int, failures: Any) -> None:
        part = self._parts[number]
        if number not in self._repairs:
            pending = PendingPart(
                self._decoding[number],
                part.each_file([self.numbers[position] for position in part.positions]),
                list(part.files),
                self._file_seeds(part),
            )
            repair = EncodedRepair(self._decoder, self._batch.files, part, self._seen_bad)
            self._repairs[number] = repair, pending
        if self._stopped:  # meanwhile
            raise StopIteration
        repair, pending = self._repairs[number]
        kept = repair.done(pending, failures)
        if kept is not None:
            repair.bad = set(range(len(part.files))) - set(kept)
            self.dropped |= {part.position(place) for place in repair.bad}
        for place, error in repair.replaced.items():
            repair.bad.add(place)
            self.replaced[part.position(place)] = error

    def _recorded(self) -> DrawnBatch:
        sizes = [[(0, 0)] * len(self.keys) for _ in self._batch.columns]
        for part, decoding in zip(self._parts, self._decoding, strict=True):
            for place, size in enumerate(decoding.sizes()):
                position = part.position(place)
                for view in part.views:
                    if place % (part.frames or 1) == 0:
                        sizes[view.column][position] = size
                    elif sizes[view.column][position] != size and 0 not in size:
                        self._unlike.setdefault(position, part.files[place])
        batch = self._batch
        return DrawnBatch(self._decoder, batch.columns, batch.chains, sizes, self._drawn_by)

    def _columns(self, record: DrawnBatch) -> list[Any]:
        pieces: list[list[tuple[Part, torch.Tensor]]] = [[] for _ in self._batch.columns]
        for part, view, pixels in self._taken():
            pieces[view.column].append((part, pixels))
        single = self._batch.samples is None
        joined: list[Any] = []
        for number, column in enumerate(self._batch.columns):
            pictures = _joined(pieces[number])
            if single:
                pictures = pictures[0]
                if column.wraps and column.wraps[0]:
                    pictures = column.wraps[0](pictures)
            joined.append(pictures if column.follows is None else column.follows.finished(pictures))
        made: list[Any] = list(joined)
        for number, column in self.leads():
            followers = self._followers(number)
            if followers:
                of = [joined[each] for each in (number, *followers)]
                made[number] = self._assembled(number, of, tuple if single else list)
            if column.parameters:
                rows = record.parameters(number)
                one = {name: row[0] for name, row in rows.items()} if single else rows
                made[number] = (made[number], one) if single else [made[number], one]
        return made

    def _taken(self) -> Iterator[tuple[Part, View, torch.Tensor]]:
        """Gives the pictures of each view of each part."""
        for part, decoding in zip(self._parts, self._decoding, strict=True):
            for number, view in enumerate(part.views):
                pixels = decoding.take(number)
                if part.frames is not None:
                    pixels = pixels.unflatten(0, (-1, part.frames))
                self._erase(view, part, list(pixels))
                yield part, view, pixels

    def _erase(self, view: View, part: Part, pixels: Sequence[torch.Tensor]) -> None:
        chains = [self._decoder.chain(self._batch.chains[each]) for each in view.chains]
        if all(each.erasing is None for each in chains):
            return
        number = self._batch.columns[view.column].number
        seeds = self._seeds(part.positions)
        for place, position in enumerate(part.positions):
            erasing = chains[part.kinds[place]].erasing
            if erasing is None or not pixels[place].numel():
                continue
            seed = seeds[0] if len(seeds) == 1 else seeds[place]
            for frame, picture in enumerate(
                [pixels[place]] if part.frames is None else pixels[place]
            ):
                of_sample = number + (0 if part.shared else frame)
                erased(picture, erasing, seed, self.keys[position], of_sample, inplace=True)


def _joined(pieces: list[tuple[Part, torch.Tensor]]) -> torch.Tensor:
    """Joins the pictures of a column in one tensor, in the order of their samples."""
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
        _plain_bits(joined)[part.positions] = _plain_bits(pixels)
    return joined


def _plain_bits(pixels: torch.Tensor) -> torch.Tensor:
    """Returns the same memory as a type that torch assigns to by index, which uint16 is not."""
    return pixels.view(torch.int16) if pixels.dtype is torch.uint16 else pixels
