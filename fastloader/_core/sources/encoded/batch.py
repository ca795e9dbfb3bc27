"""Describes a batch whose pictures are not decoded yet: its files, its rows, and the parts that are
decoded together."""

from __future__ import annotations

import dataclasses
import os
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch.utils.data._utils.pin_memory import pin_memory

from fastloader._core.batch.tree import Key, StoredMask
from fastloader._core.machine import extension
from fastloader._core.pictures.batch import MadePart
from fastloader._core.pictures.images import DrawnBy
from fastloader._core.pictures.notes import PictureNotes
from fastloader.datasets.companions import finish_mask
from fastloader.datasets.encoded import are_parameters, stacked
from fastloader.datasets.picture_source import PictureSource

if TYPE_CHECKING:
    from fastloader import _native


# ---- The encoded files of one batch.


class EncodedFiles:
    """Files, each once: by their paths, or as bytes in memory. They cross to another process in one
    tensor, and so lie in shared memory there, where nothing is copied again."""

    def __init__(self, sources: Sequence[PictureSource]) -> None:
        # Paths as the system encodes them, and arrays.
        self._files: list[Any] = [
            source.data if source.path is None else source.path for source in sources
        ]
        # The numbers of the masks among them.
        self._masks = {n for n, each in enumerate(sources) if each.indices}
        # Of those that have one: what messages call them, and why there is no picture.
        self._called = {n: each.called for n, each in enumerate(sources) if each.called is not None}
        self._problems = {
            n: each.problem for n, each in enumerate(sources) if each.problem is not None
        }

    def only(self, wanted: set[int]) -> EncodedFiles:
        """Returns the files with the same numbers, of which only these are there."""
        made = EncodedFiles(())
        made._files = [file if each in wanted else b"" for each, file in enumerate(self._files)]
        made._called, made._problems = self._called, self._problems
        made._masks = self._masks
        return made

    def __len__(self) -> int:
        return len(self._files)

    def __reduce__(self) -> Any:
        parts = [np.frombuffer(each, np.uint8) if _is_path(each) else each for each in self._files]
        ends = np.cumsum([len(each) for each in parts], dtype=np.int64)
        joined = np.concatenate([np.empty(0, np.uint8), *parts])
        paths = list(map(_is_path, self._files))
        told = self._called, self._problems, self._masks
        return _arrived, (torch.from_numpy(joined), ends, paths, *told)

    @classmethod
    def arrived(
        cls,
        joined: torch.Tensor,
        ends: Any,
        paths: list[bool],
        called: dict[int, str],
        problems: dict[int, str],
        masks: set[int],
    ) -> EncodedFiles:
        """Makes the files that came from another process."""
        made = cls(())
        parts = np.split(joined.numpy(), ends[:-1]) if paths else []
        made._files = [part.tobytes() if path else part for part, path in zip(parts, paths)]
        made._called, made._problems, made._masks = called, problems, masks
        return made

    def opened(self) -> _native.FolderSource | _native.MemorySource:
        """Opens the native module's source of them, which keeps them where they are."""
        if all(map(_is_path, self._files)):
            ends = np.cumsum([len(path) for path in self._files], dtype=np.uint64)
            return extension.native.FolderSource(
                np.frombuffer(b"".join(self._files), np.uint8), ends
            )
        held = [_read(each) if _is_path(each) else each for each in self._files]
        where = [0 if each is None else each.__array_interface__["data"][0] for each in held]
        sizes = [0 if each is None else len(each) for each in held]
        return extension.native.MemorySource(
            np.array(where, np.uint64), np.array(sizes, np.uint64), held
        )

    # --- as what makes pictures asks for files ----------------------------------------------------

    def name(self, file: int) -> str:
        return self._source(file).name

    def is_nameless(self, file: int) -> bool:
        """Returns whether the file is bytes in memory that nobody has given a name."""
        return not _is_path(self._files[file]) and file not in self._called

    def open_rgb(self, file: int) -> Any:
        """Opens the picture through Pillow, or raises why there is none."""
        return self._source(file).open_rgb()

    def _source(self, file: int) -> PictureSource:
        content, called = self._files[file], self._called.get(file) or None
        where = os.fsdecode(content) if _is_path(content) else content
        return PictureSource(where, called, self._problems.get(file), file in self._masks)


def _arrived(*parts: Any) -> EncodedFiles:
    return EncodedFiles.arrived(*parts)


def _is_path(file: Any) -> bool:
    return type(file) is bytes


def _read(path: bytes) -> Any | None:
    """Reads a file that stands in a batch with bytes in memory. None if it cannot be read, which
    `open_rgb` says again."""
    try:
        # A pipe would be waited for.
        regular = stat.S_ISREG(os.stat(path).st_mode)
        return np.fromfile(os.fsdecode(path), dtype=np.uint8) if regular else None
    except OSError:
        return None


# ---- A batch whose pictures are not decoded yet.


class Follows(NamedTuple):
    """How the companions of one column follow pictures: those of column number ``lead``, under ``key``,
    with edges ``scale`` times as long; as ``mask``s, in batches of ``dtype``, if that is not None, which
    is left to the delivery if they stay ``stored``."""

    lead: int
    key: Any
    scale: int
    mask: bool
    dtype: torch.dtype | None
    stored: bool = False

    def finished(self, pixels: torch.Tensor) -> torch.Tensor | StoredMask:
        """Returns what comes out for pixels of one picture or more, of shape (..., C, H, W)."""
        if not self.mask:
            return pixels
        if self.stored:
            return StoredMask.of(finish_mask(pixels, None), self.dtype)
        return finish_mask(pixels, self.dtype)


@dataclasses.dataclass
class EncodedColumn:
    """The pictures that stand in one place of every sample.

    ``number``: which pictures of their samples they are. ``files``: the file of each sample's picture.
    ``chains``: the number of the chain of each. ``parameters``: whether what was drawn is wanted, too.
    ``follows``: how they follow those of another column. ``named``: of pictures that others follow,
    whether a dict comes out, or a tuple. ``frames``: so many of ``files`` are those of a sample's clip;
    None: they are pictures. ``shared``: whether one draw is for all frames of a clip. ``wraps``:
    torchvision's class for each sample's picture, as `ReadTransform` has it; None if all are plain
    tensors, as stacked pictures are.
    """

    number: int
    files: list[int]
    chains: list[int]
    parameters: bool
    follows: Follows | None = None
    named: bool = True
    frames: int | None = None
    shared: bool = True
    wraps: list[Any] | None = None

    def of_sample(self, position: int) -> list[int]:
        """Returns the files of a sample's picture or clip."""
        count = self.frames or 1
        return self.files[position * count : (position + 1) * count]


@dataclasses.dataclass
class EncodedBatch:
    """A collated batch, whose pictures may still be encoded. ``tree`` is the collated batch with an
    `EncodedPlace` for each of ``columns``. ``chains`` are pickled, as they crossed. ``samples``: how
    many there are; None for one that is not collated. ``made``: how many pictures were decoded where the
    samples were made, ``why`` in words. ``parts``: the pictures of the columns, if a worker has made
    them, ``drawn_by`` what they are drawn by then. ``notes``: what was noted of the pictures of a
    finished batch, ``made_under`` the outermost keys of what was decoded already, None if that is not
    known, ``records`` what was drawn for them, as `DrawnBatch`; ``left_out``: whether none of its
    samples is left. ``told``: as `EncodedCollation` makes it, by whom each picture of a sample is made,
    and once it is done, where each stands, too."""

    tree: Any
    files: EncodedFiles
    columns: list[EncodedColumn]
    chains: list[bytes]
    samples: int | None
    made: int
    parts: list[MadePart] | None = None
    drawn_by: DrawnBy | None = None
    pending: Any = None  # the `PendingPictures`, once decoding has begun
    error: Exception | None = None  # that it could not begin with
    why: str = ""
    notes: PictureNotes | None = None
    records: list[Any] = dataclasses.field(default_factory=list)
    left_out: bool = False
    told: tuple[Any, ...] = ()  # of `Made`, then of `Told`
    made_under: frozenset[Key] | None = None

    def pin_memory(self) -> EncodedBatch:
        """Pins what is finished, where torch pins a batch."""
        if not self.columns:
            self.tree = pin_memory(self.tree)
        return self

    @property
    def holds_none(self) -> bool:
        """Whether no encoded picture was in its samples."""
        return not self.made and not self.columns


# ---- The rows of a batch that default_collate has made: what belongs to each sample.


def kept_rows(batch: Any, samples: int, kept: Sequence[int]) -> Any:
    """Returns the batch with these of its samples, in this order."""
    if isinstance(batch, torch.Tensor):
        return batch[list(kept)]
    if type(batch) is StoredMask:
        return StoredMask(kept_rows(batch.bits, samples, kept), batch.dtype)
    if _is_column(batch, samples):
        return type(batch)(batch[row] for row in kept)
    return _opened(
        batch, [each for each in _inside(batch)], lambda each: kept_rows(each, samples, kept)
    )


def with_row(batch: Any, samples: int, row: int, other: Any) -> Any:
    """Returns the batch with the only sample of ``other``, a batch of the same structure, in this row.

    Raises:
        ValueError: if the two are not of one structure, or their tensors of one shape.
    """
    if type(batch) is StoredMask:
        batch = batch.finished()  # as the other sample's are
    if isinstance(batch, torch.Tensor):
        if not isinstance(other, torch.Tensor) or other.shape[1:] != batch.shape[1:]:
            raise ValueError("the sample that was drawn in a bad one's place has another shape")
        batch[row] = other[0]
        return batch
    if are_parameters(batch) and are_parameters(other):
        rows = [
            {name: column[each : each + 1] for name, column in batch.items()}
            for each in range(samples)
        ]
        return stacked([*rows[:row], other, *rows[row + 1 :]])
    if type(other) is not type(batch):
        raise ValueError("the sample that was drawn in a bad one's place has another structure")
    if _is_column(batch, samples):
        return type(batch)([*batch[:row], other[0], *batch[row + 1 :]])
    others = _inside(other)
    if len(others) != len(_inside(batch)):
        raise ValueError("the sample that was drawn in a bad one's place has another structure")
    rest = iter(others)
    return _opened(batch, _inside(batch), lambda each: with_row(each, samples, row, next(rest)))


def _is_column(value: Any, samples: int) -> bool:
    """Returns whether it is a column of strings, which are not stacked."""
    return (
        type(value) in (list, tuple)
        and len(value) == samples
        and all(isinstance(each, str | bytes) for each in value)
    )


def _inside(value: Any) -> list[Any]:
    if isinstance(value, Mapping):
        return list(value.values())
    return list(value) if isinstance(value, list | tuple) else []


def _opened(value: Any, inside: list[Any], made: Any) -> Any:
    """Rebuilds a container with ``made(each)`` in the place of each value in it."""
    if isinstance(value, Mapping):
        items = {key: made(each) for key, each in zip(value, inside)}
        try:
            return type(value)(items)  # type: ignore[call-arg]
        except TypeError:
            return items
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*map(made, inside))
    if isinstance(value, list | tuple):
        return type(value)(map(made, inside))
    return value


# ---- The parts of a batch that are decoded together.


@dataclasses.dataclass
class View:
    """One of the pictures that are made of each file: for ``column``, by the one of ``chains`` that a
    sample's kind has."""

    column: int
    chains: list[int]


@dataclasses.dataclass
class Part:
    """Samples that have one file each, or a clip of ``frames`` ones. ``positions``: theirs in the batch.
    ``files``: theirs. ``views``: what is made of each file. ``kinds``: which of the chains of every view
    each sample has. ``shared``: whether one draw is for all frames of a clip."""

    positions: list[int]
    files: list[int]
    views: list[View]
    kinds: list[int]
    frames: int | None = None
    shared: bool = True

    def each_file(self, of_samples: Sequence[Any]) -> list[Any]:
        """Returns what the part's samples have, for each of its files."""
        return [value for value in of_samples for _ in range(self.frames or 1)]

    def position(self, place: int) -> int:
        """Returns the position in the batch of the sample that has the file in this place."""
        return self.positions[place // (self.frames or 1)]


def parts(columns: Sequence[EncodedColumn], form: Callable[[int], Any]) -> list[Part]:
    """Splits a batch into parts: what is made of the same files of the same samples is one part, so that
    each file is read once, and decoded once if that is cheaper. The pictures of a column in a part have
    one form. ``form``: that of the pictures that a chain makes."""
    columns_of: dict[Any, list[int]] = {}
    for number, column in enumerate(columns):
        for positions in _by_form(column.chains, form):
            files = tuple(file for each in positions for file in column.of_sample(each))
            same = tuple(positions), files, column.frames, column.shared
            columns_of.setdefault(same, []).append(number)
    found = []
    for (positions, files, frames, shared), its_columns in columns_of.items():
        part = _part(columns, list(positions), list(files), its_columns)
        part.frames, part.shared = frames, shared
        found.append(part)
    return found


def _by_form(chains: Sequence[int], form: Callable[[int], Any]) -> Iterator[list[int]]:
    """Gives the positions whose chains make pictures of one form, form for form."""
    found: dict[Any, list[int]] = {}
    for position, chain in enumerate(chains):
        found.setdefault(form(chain), []).append(position)
    yield from found.values()


def _part(
    columns: Sequence[EncodedColumn], positions: list[int], files: list[int], of_part: list[int]
) -> Part:
    kinds: dict[tuple[int, ...], int] = {}  # by the chains of each view
    of_samples = [
        kinds.setdefault(tuple(columns[each].chains[position] for each in of_part), len(kinds))
        for position in positions
    ]
    views = [
        View(column, [chains[place] for chains in kinds]) for place, column in enumerate(of_part)
    ]
    return Part(positions, files, views, of_samples)
