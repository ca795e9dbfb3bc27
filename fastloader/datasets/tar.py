"""``TarImages``: pictures in tar shards, as WebDataset keeps them."""

from __future__ import annotations

import contextlib
import os
import warnings
from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np

from fastloader.datasets._formats.mapped_file import Looks
from fastloader.datasets._formats.paths import is_url, paths_of
from fastloader.datasets._formats.sample_form import (
    SampleForm,
    checked_columns,
    shown_dataset,
    shown_files,
)
from fastloader.datasets._formats.tar_shards import TarShard, content_of, own_name
from fastloader.datasets._remote.remote_tar import Shard, open_shards, read_files
from fastloader.datasets._remote.shard_cache import ShardCache
from fastloader.datasets._remote.tar_table import (
    Pick,
    TarTable,
    is_large,
    make_table,
    shared_table,
)
from fastloader.datasets._shard_order import ShardTable
from fastloader.datasets.picture_source import PictureSource
from fastloader.datasets.pictures import FileSpans, Pictures, checked_index

IMAGES = ("jpg", "jpeg", "png", "webp", "ppm", "pgm", "pbm", "pnm", "bmp", "tif", "tiff", "img")

# The attributes that are arrays of a table, and what the table calls them.
_OF_TABLE = {
    "_numbers": "numbers",
    "_places": "places",
    "offsets": "offsets",
    "sizes": "sizes",
    "targets": "labels",
}


class TarImages(Pictures, called="tar shards"):
    """Pictures in tar files: WebDataset's shards, with random access.

    Files of one name up to the first dot, next to each other, are a sample, which is WebDataset's rule:
    ``0001.jpg`` and ``0001.cls``. A shard is mapped into memory, and the native path decodes from it.
    Where its samples are is found once, by a walk over its headers, and kept beside the shard
    (``<shard>.fastloader-tar``). An index of DALI's ``wds2idx`` beside a shard spares the walk. So a
    sample can be read by its number: shuffling is a true one over all shards, an epoch has each sample
    once on whatever number of ranks, and a resumed epoch skips nothing.

    The processes of a machine share the index of local shards of 1 GiB and more, which is a file in
    ``index_dir``, or in the folder of `ShardCache` (docs/storage.md).

    Shards in an object store (``s3://``, ``gs://``, ``az://``, ``https://``) go through a `ShardCache`.
    If the cache has room for all of them, they are fetched here, and are then as local ones. If not,
    workers read them, from the cache or by ranges, and `ShardwiseSampler` gives an order in which that
    is fast (docs/remote.md).

    Args:
        shards: The shards: a path, a URL, a pattern (``train-*.tar``), or WebDataset's braces
            (``train-{000000..000146}.tar``), or a list of such. Shards of a pattern are sorted by name.
        transform: The function that is applied to each picture, as in `ImageFolder`; default None.
        target_transform: A function of the label; None (default) leaves the label.
        image: The extensions of pictures; of a sample that has several, the first in this order counts.
            Default: those of the usual formats. Samples without such a file are left out.
        columns: The extensions of further files of which a sample has the contents: ``.json`` (any
            value), ``.txt`` (text), ``.cls`` and ``.id`` (a whole number), bytes for any other. Default:
            none.
        as_dict: Whether a sample is a dict with the keys "pixel_values", "labels" and the extensions in
            ``columns``. Default False: (picture, label), and then the columns.
        index_dir: A folder for the indices of shards that lie where nothing may be written; default
            None, beside the shards, or in the cache. If nothing can be written, they are made anew each
            time.
        cache: Where shards that come from a URL are kept, and how to reach them. Default None: a
            `ShardCache` with its defaults. Not used for paths.

    Attributes:
        shards: the paths or URLs.
        mapped: whether all shards are files on this machine, so that the native path reads them.
        targets: the numbers in the samples' ``.cls`` files, an int64 array. -1: the
            sample has none, or its file holds something else.
        classes: None.

    A dataset may be pickled, and used after a fork or in a spawned process.

    Raises:
        FileNotFoundError: if a shard, or any shard for a pattern, is missing.
        ImportError: for a URL, if obstore is missing.
        fastloader.errors.Error: for a URL, if the store cannot be read, or the cache has no room.
        RuntimeWarning: if a ``.cls`` is no whole number.
        ValueError: if a shard is no tar, is damaged, was cut off, or is still written. The error names
            the shard and the byte. Also if there is no sample with a picture. From indexing, if a
            sample lacks one of the columns, or it cannot be read.
    """

    spans: FileSpans

    def __init__(
        self,
        shards: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        transform: Callable[[Any], Any] | None = None,
        target_transform: Callable[[int], Any] | None = None,
        *,
        image: str | Sequence[str] = IMAGES,
        columns: Sequence[str] = (),
        as_dict: bool = False,
        index_dir: str | os.PathLike[str] | None = None,
        cache: ShardCache | None = None,
    ) -> None:
        self.transform = transform
        self.target_transform = target_transform
        self.classes: list[str] | None = None
        named = list(paths_of(shards))
        kept = None if index_dir is None else os.path.abspath(os.fspath(index_dir))
        if kept is not None:
            os.makedirs(kept, exist_ok=True)
        if not named:
            raise ValueError("no shard is named")
        large = not any(map(is_url, named)) and is_large(named)
        self._shards, self.cache = open_shards(named, kept, cache, keep_indices=not large)
        self.shards = [shard.path for shard in self._shards]
        self.mapped = all(shard.local_file for shard in self._shards)
        wanted = [image] if isinstance(image, str) else list(image)
        self._wanted = [each.lower().lstrip(".") for each in wanted]
        self.columns = [each.lower().lstrip(".") for each in checked_columns(columns)]
        self.form = SampleForm.of(self.columns, self._rest, as_dict)
        self._index_dir = kept
        if large:
            table = shared_table(cast("list[TarShard]", self._shards), self._pick, kept)
        else:
            table = make_table(self._shards, self._pick)
        self._check(table)
        self._take(table)

    @property
    def _pick(self) -> Pick:
        return Pick(tuple(self._wanted), tuple(self.columns))

    def _take(self, table: TarTable) -> None:
        """Takes the flat arrays: of each sample with a picture, its number in its shard, and where the
        picture lies there."""
        self._shared = table.path is not None
        self._table = table if self._shared else None
        self._numbers, self._places = table.numbers, table.places
        self.offsets, self.sizes, self.targets = table.offsets, table.sizes, table.labels
        starts = [0, *np.cumsum(table.counts).tolist()]  # of the shards
        self.spans = self._table_spans = FileSpans(self._shards, starts, self.offsets, self.sizes)

    def _check(self, table: TarTable) -> None:
        """Checks the columns and the labels now, because an epoch would find what is wrong in its
        middle, or never."""
        if not len(table.numbers):
            raise ValueError(
                f"{', '.join(self.shards[:3])}: no sample has a picture (.{', .'.join(self._wanted)})"
            )
        there = table.extensions
        for column in self.columns:
            if column not in there:
                raise ValueError(f"no sample has a file .{column}; there are .{', .'.join(there)}")
        if table.warning:
            warnings.warn(table.warning, RuntimeWarning, stacklevel=3)

    def locate(self, index: int) -> tuple[Shard, int]:
        """Returns the shard in which sample ``index`` lies, and its number there."""
        return self._shards[self.spans.number(index)], int(self._numbers[index])

    def shard_numbers(self) -> tuple[Any, list[Shard]]:
        """Returns the number of each sample's shard, an int64 array, and the shards."""
        return np.repeat(np.arange(len(self._shards)), np.diff(self.spans.starts)), list(
            self._shards
        )

    def shard_table(self) -> tuple[ShardTable, list[Shard]]:
        """Returns which samples lie in which shard, and the shards. It takes nothing for each sample."""
        return ShardTable(np.array(self.spans.starts, np.int64)), list(self._shards)

    def _encoded_of(self, indices: list[int]) -> list[bytes]:
        """Reads the encoded pictures, all at the same time."""
        return read_files(
            [
                (self.locate(index)[0], int(self.offsets[index]), int(self.sizes[index]))
                for index in indices
            ]
        )

    def sources(self, indices: list[int]) -> list[PictureSource]:
        names = [self.name(index) for index in indices]
        return [PictureSource(*each) for each in zip(self._encoded_of(indices), names, strict=True)]

    def _elsewhere(self) -> str | None:
        if self.mapped:
            return None
        return "the shards are in an object store, and more than their cache has room for"

    def _plan_note(self) -> str:
        return "" if self.cache is None else " (all shards in the cache)"

    def name(self, index: int) -> str:
        """Returns the picture's file, as its shard names it, and the shard. If the shard is read by
        ranges from a store, the extension is in lower case."""
        shard, number = self.locate(checked_index(index, len(self)))
        offset, key = int(self.offsets[index]), shard.index.key(number)
        extension = shard.index.extensions[shard.index.offsets[number].tolist().index(offset)]
        name = f"{key}.{extension}"
        if shard.local_file and (file := shard.mapped_file):
            with contextlib.suppress(ValueError):  # the shard has changed
                name = own_name(file.read_bytes, offset, key, extension)
        return f"{name} in {shard.path}"

    def image_bytes(self, index: int) -> bytes:
        """Reads the encoded picture, as it lies in the shard."""
        index = checked_index(index, len(self))
        (found,) = self._encoded_of([index])
        Looks(self.files_of([index])).check()
        return found

    def __repr__(self) -> str:
        return shown_dataset(self, {"Shards": shown_files(self.shards)})

    def __len__(self) -> int:
        return len(self.offsets)

    def _rest(self, indices: list[int]) -> list[tuple[Any, ...]]:
        """Reads the contents of these samples' further files."""
        files = [(index, extension) for index in indices for extension in self.columns]
        contents = read_files([self._file(index, extension) for index, extension in files])
        values = []
        for (index, extension), content in zip(files, contents, strict=True):
            try:
                values.append(content_of(content, extension))
            except (ValueError, RecursionError) as error:
                raise ValueError(f"{self.name(index)}: .{extension}: {error}") from None
        count = len(self.columns)
        return [tuple(values[begin : begin + count]) for begin in range(0, len(values), count)]

    def _file(self, index: int, extension: str) -> tuple[Shard, int, int]:
        offset = size = 0
        if extension in self.columns:
            offset, size = self._places[index, self.columns.index(extension)].tolist()
        if not offset:
            raise ValueError(f"{self.name(index)}: the sample has no .{extension}")
        return self._shards[self.spans.number(index)], offset, size

    def __getstate__(self) -> dict[str, Any]:
        """Leaves out what a process that gets the dataset by pickle maps anew."""
        state = dict(self.__dict__)
        if not self._shared:
            return state
        table = state.pop("_table")
        if self.spans is self._table_spans:
            del state["spans"]
        del state["_table_spans"]
        for name, own in _OF_TABLE.items():
            if state[name] is getattr(table, own):
                del state[name]
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if state.get("_shared"):
            # On another machine, it is made there.
            table = shared_table(cast("list[TarShard]", self._shards), self._pick, self._index_dir)
            names = {"spans", *_OF_TABLE}
            self._take(table)
            self.__dict__.update((name, each) for name, each in state.items() if name in names)
            return
        self.__dict__.setdefault("_shared", False)
        if "_places" not in state:  # pickled by version 0.2
            self._places = make_table(self._shards, self._pick).places
        if "spans" not in state:
            starts = self.__dict__.pop("_starts")
            self.spans = FileSpans(self._shards, starts, self.offsets, self.sizes)
