"""Stores of pictures, which say where these lie, for the decode pool: in files of their own, in LMDB, in
memory, or as pixels."""

from __future__ import annotations

import bisect
import copy
import dataclasses
import io
import os
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import numpy as np
import torch

from fastloader._core.machine import extension
from fastloader._core.machine.mapped_memory import address_of, file_at
from fastloader.datasets._formats.lmdb_files import DamagedError
from fastloader.datasets._formats.mapped_file import Looks, SeekFile
from fastloader.datasets.lmdb import LMDBDataset
from fastloader.datasets.pictures import Pictures
from fastloader.errors import Error
from fastloader.transforms._pillow import image_module, open_rgb, opened

# ---- Where pictures lie, as the decode pool sees it.


class Looking(Protocol):
    """A look at files, which has begun."""

    def wait(self, timeout: float | None = None) -> bool:
        """Waits for ``seconds`` until the look is over, and returns whether it is."""
        ...

    def check(self) -> None:
        """Waits, and raises a ValueError that names the file if one has changed."""
        ...


class ImageStore(Protocol):
    """Pictures, encoded or as pixels, numbered from 0. A recogniser makes a store, and many loaders may
    share it."""

    kind: str  # what a message calls several stores of this type
    packed: bool  # whether the pictures lie in one file, where each must be looked up first

    @property
    def upright(self) -> bool:
        """Whether pictures are turned as EXIF says before anything else."""
        ...

    @property
    def indexed(self) -> int:
        """How many seek indices there are for the JPEGs."""
        ...

    def __len__(self) -> int: ...

    def same(self, other: Any) -> bool:
        """Returns whether ``other`` has the same files, so that what was built on them can be kept."""
        ...

    def joined(self, others: Sequence[Any]) -> ImageStore:
        """Joins the files of this store with those of ``others``, which are of its type."""
        ...

    def opened(self) -> OpenStore:
        """Opens these files for one loader, with a native source of their own. What the loader looks up
        there must not reach another loader that recognised the same files. Without the native module
        there is no source."""
        ...


class OpenStore(ImageStore, Protocol):
    """The store of one loader."""

    source: Any  # what decode threads read from: a class of csrc/source/, as `_native` has it
    seek_indices: Any | None  # `_native.SeekFiles`, which lie apart from the pictures

    def prepare(self, indices: list[int]) -> None:
        """Prepares these files, before a batch of them is submitted to the pool. Called on the thread
        that begins batches. It must not raise for a bad file: the decoder refuses that one."""
        ...

    def begin_look(self, indices: list[int]) -> Looking | None:
        """Begins to look whether what these files were read from, until now, is still what it was.
        Returns None if each is read by itself, at once. A look may wait for a network, and the caller
        does not."""
        ...

    def name(self, index: int) -> str:
        """Returns the name of a file, for messages about bad samples."""
        ...

    def open_rgb(self, index: int) -> Any:
        """Opens a picture through Pillow, or raises why that fails. Called on any thread."""
        ...

    def info(self, index: int) -> dict[str, Any]:
        """Returns what stands beside a picture's pixels, as ``Image.info`` of a file that was opened."""
        ...


# ---- Encoded pictures, each in its own file.


class FolderStore:
    """Paths in one run of bytes; the path of file i ends at ``ends[i]``. Stores are compared by
    identity, because recognising a dataset gives the same arrays again while nothing changes.
    ``seek_files``: where the seek indices of JPEGs are. They are found by what a picture contains, so
    that each file may serve the pictures of every folder."""

    kind = "folders"
    packed = False

    source: Any  # the native module's source, once the store is opened
    seek_indices: Any = None

    def __init__(
        self, paths: Any, ends: Any, seek_files: Sequence[SeekFile] = (), upright: bool = False
    ) -> None:
        self.paths = paths
        self.ends = ends
        self.seek_files = tuple(seek_files)
        self.upright = upright

    def __len__(self) -> int:
        return len(self.ends)

    def same(self, other: Any) -> bool:
        return (
            type(other) is FolderStore
            and self.paths is other.paths
            and self.ends is other.ends
            and self.seek_files == other.seek_files
            and self.upright == other.upright
        )

    @property
    def indexed(self) -> int:
        return sum(file.count for file in self.seek_files)

    def joined(self, others: Sequence[FolderStore]) -> FolderStore:
        stores = [self, *others]
        before = np.cumsum([0, *(len(store.paths) for store in stores)]).astype(np.uint64)
        return FolderStore(
            np.concatenate([store.paths for store in stores]),
            np.concatenate([store.ends + number for store, number in zip(stores, before)]),
            list({file.path: file for store in stores for file in store.seek_files}.values()),
            self.upright,
        )

    def opened(self) -> FolderStore:
        store = copy.copy(self)
        if extension.load() is not None:
            store.source = extension.native.FolderSource(self.paths, self.ends)
            if self.seek_files:
                store.seek_indices = extension.native.SeekFiles(
                    [file.mapping for file in self.seek_files]
                )
        return store

    def prepare(self, indices: list[int]) -> None:
        pass

    def begin_look(self, indices: list[int]) -> None:
        return None

    def name(self, index: int) -> str:
        begin = int(self.ends[index - 1]) if index else 0
        return os.fsdecode(self.paths[begin : int(self.ends[index])].tobytes())

    def open_rgb(self, index: int) -> Any:
        return open_rgb(self.name(index), self.upright)

    def info(self, index: int) -> dict[str, Any]:
        with opened(self.name(index)) as header:
            return dict(header.info)


# ---- Encoded pictures in mapped LMDB files.


class _Table(np.ndarray):
    """Numbers that the native source reads, with the mappings that they point into. Keeping the numbers
    keeps the mappings."""

    environments: Any = ()


class LmdbStore:
    """Records of `LMDBDataset`s, one dataset after the other. The address of a record in the mapped
    files is looked up when the record is first wanted. So opening stays cheap, and touches only the
    pages of the tree that are used."""

    kind = "LMDB files"
    packed = True

    source: Any  # the native module's source, once the store is opened
    seek_indices: Any = None
    _addresses: Any
    _sizes: Any
    _indices: Any  # addresses and sizes of the seek indices that lie beside the pictures

    def __init__(self, parts: list[LMDBDataset]) -> None:
        self.parts = parts
        self.upright = parts[0].upright
        self.starts = [0, *np.cumsum([len(part) for part in parts]).tolist()]
        self._environments = tuple(part.environment for part in parts)

    @property
    def indexed(self) -> int:
        return sum(part.indexed for part in self.parts)

    def __getstate__(self) -> Any:
        return self.parts  # a process that gets them by pickle maps the files anew

    def __setstate__(self, parts: list[LMDBDataset]) -> None:
        self.__init__(parts)  # type: ignore[misc]

    def __len__(self) -> int:
        return int(self.starts[-1])

    def same(self, other: Any) -> bool:
        return (
            type(other) is LmdbStore
            and self.starts == other.starts
            and all(a is b for a, b in zip(self._environments, other._environments))
            and self.upright == other.upright
        )

    def joined(self, others: Sequence[LmdbStore]) -> LmdbStore:
        return LmdbStore([dataset for store in [self, *others] for dataset in store.parts])

    def opened(self) -> LmdbStore:
        store = copy.copy(self)
        store._addresses = np.zeros(len(self), np.uint64).view(_Table)
        store._addresses.environments = self._environments
        store._sizes = np.zeros(len(self), np.uint64)
        store._indices = np.zeros((2, len(self)), np.uint64)
        if extension.load() is not None:
            store.source = extension.native.MemorySource(
                store._addresses, store._sizes, seek_indices=(store._indices[0], store._indices[1])
            )
        return store

    def _part(self, index: int) -> tuple[LMDBDataset, int]:
        number = bisect.bisect_right(self.starts, index) - 1
        return self.parts[number], index - self.starts[number]

    def prepare(self, indices: list[int]) -> None:
        located = [self._part(index) for index in indices]
        # Announced for all records before any is touched. Otherwise each would be waited for alone.
        for part in {id(part): part for part, _ in located}.values():
            part.will_need([record for owner, record in located if owner is part])
        for index, (part, record) in zip(indices, located):
            if self._addresses[index]:
                continue
            try:
                found = part.record(record)
                address = address_of(found.image)
            except (DamagedError, ValueError):
                continue  # missing, damaged or empty: the decoder refuses it, and `open_rgb` says why
            if found.seek_index:
                self._indices[:, index] = address_of(found.seek_index), len(found.seek_index)
            self._sizes[index] = len(found.image)
            self._addresses[index] = address

    def begin_look(self, indices: list[int]) -> Looks:
        parts = {bisect.bisect_right(self.starts, index) - 1 for index in indices}
        return Looks(self._environments[number] for number in parts)

    def name(self, index: int) -> str:
        part, record = self._part(index)
        try:
            return f"{part.name(record)} in {part.path}"
        except DamagedError:
            return f"record {record} in {part.path}"

    def open_rgb(self, index: int) -> Any:
        part, record = self._part(index)
        return part.open_rgb(record)

    def info(self, index: int) -> dict[str, Any]:
        part, record = self._part(index)
        with opened(io.BytesIO(part.image_bytes(record)), self.name(index)) as header:
            return dict(header.info)


# ---- Encoded pictures that lie in memory: in mapped files, for the most part.


class MappedStore:
    """Pictures of datasets that have `Pictures.places`, one dataset after the other."""

    packed = True
    indexed = 0

    source: Any  # the native module's source, once the store is opened
    seek_indices: Any = None

    def __init__(self, parts: list[Pictures], kind: str) -> None:
        self.parts = parts
        self.kind = kind
        self.upright = parts[0].upright
        self.spans = [part.spans for part in parts]  # which the user may set anew
        self.starts = [0, *np.cumsum([len(part) for part in parts]).tolist()]

    def __len__(self) -> int:
        return int(self.starts[-1])

    def same(self, other: Any) -> bool:
        return (
            type(other) is MappedStore
            and len(self.parts) == len(other.parts)
            and all(a is b for a, b in zip(self.parts, other.parts))
            and all(a is b for a, b in zip(self.spans, other.spans))
            and self.upright == other.upright
        )

    def joined(self, others: Sequence[MappedStore]) -> MappedStore:
        kinds = sorted({store.kind for store in [self, *others]}, key=str.lower)
        parts = [part for store in [self, *others] for part in store.parts]
        return MappedStore(parts, " and ".join(kinds))

    def opened(self) -> MappedStore:
        store = copy.copy(self)
        if extension.load() is not None:
            addresses, sizes, owners = zip(*map(_places, self.parts), strict=True)
            if len(self.parts) > 1:
                addresses, sizes = ((np.concatenate(each),) for each in (addresses, sizes))
            store.source = extension.native.MemorySource(addresses[0], sizes[0], owners)
        return store

    def _part(self, index: int) -> tuple[Pictures, int]:
        number = bisect.bisect_right(self.starts, index) - 1
        return self.parts[number], index - self.starts[number]

    def _by_part(self, indices: list[int]) -> Iterator[tuple[Pictures, list[int]]]:
        by_part: dict[int, list[int]] = {}
        for index in indices:
            number = bisect.bisect_right(self.starts, index) - 1
            by_part.setdefault(number, []).append(index - self.starts[number])
        for number, samples in by_part.items():
            yield self.parts[number], samples

    def prepare(self, indices: list[int]) -> None:
        for part, samples in self._by_part(indices):
            part.will_need(samples)

    def begin_look(self, indices: list[int]) -> Looks:
        return Looks(
            file for part, samples in self._by_part(indices) for file in part.files_of(samples)
        )

    def name(self, index: int) -> str:
        part, sample = self._part(index)
        return part.name(sample)

    def open_rgb(self, index: int) -> Any:
        part, sample = self._part(index)
        return part.open_rgb(sample)

    def info(self, index: int) -> dict[str, Any]:
        part, sample = self._part(index)
        with opened(io.BytesIO(part.image_bytes(sample)), self.name(index)) as header:
            return dict(header.info)


def _places(part: Pictures) -> tuple[Any, Any, Any]:
    """The places of its samples: a format may have a length of its own, below that of its spans."""
    addresses, sizes, owner = part.places()
    return addresses[: len(part)], sizes[: len(part)], owner


# ---- Pictures as pixels, in arrays of numpy's and tensors of torch's.


@dataclasses.dataclass(frozen=True)
class Pixels:
    """An array of pictures of one size: bytes of the shape (pictures, height, width) if they are grey,
    or with a fourth dimension, the channels. With ``channels_first`` that is the second one."""

    array: Any
    channels_first: bool = False

    def seen(self) -> Any:
        """Returns the pixels as they are now, of the shape (pictures, height, width) or (pictures,
        height, width, 3). The memory stays where it is as long as the returned array."""
        # An alias: the user's tensor may be given another memory.
        seen = self.array.detach().numpy() if isinstance(self.array, torch.Tensor) else self.array
        return seen.transpose(0, 2, 3, 1) if self.channels_first else seen


class PixelStore:
    """Arrays of pictures, one after the other. Nothing is copied: a picture is made of the pixels that
    are there when it is made."""

    kind = "arrays"
    packed = False
    upright = False
    indexed = 0

    source: Any = None  # the native module's source, once the store is opened
    seek_indices: Any = None

    def __init__(self, parts: Sequence[Pixels]) -> None:
        self.parts = tuple(parts)
        seen = [part.seen() for part in parts]
        self._ends = np.cumsum([len(each) for each in seen]).tolist()
        self._where = [
            (each.__array_interface__["data"][0], each.shape, each.strides) for each in seen
        ]

    def __len__(self) -> int:
        return int(self._ends[-1])

    def same(self, other: Any) -> bool:
        return (
            type(other) is PixelStore
            and self._where == other._where
            and all(a.array is b.array for a, b in zip(self.parts, other.parts))
        )

    def joined(self, others: Sequence[PixelStore]) -> PixelStore:
        return PixelStore([part for store in [self, *others] for part in store.parts])

    def opened(self) -> PixelStore:
        store = copy.copy(self)
        if extension.load() is not None:
            store.source = extension.native.PixelSource([part.seen() for part in self.parts])
        return store

    def prepare(self, indices: list[int]) -> None:
        pass

    def begin_look(self, indices: list[int]) -> None:
        return None

    def name(self, index: int) -> str:
        return f"picture {index} of the dataset's array"

    def open_rgb(self, index: int) -> Any:
        number = bisect.bisect_right(self._ends, index)
        pixels = self.parts[number].seen()
        if self.source is not None:  # which reads mapped files, too
            height, width = pixels.shape[1:3]
            try:
                data = self.source.read(index)
            except Error as error:
                where = pixels.__array_interface__["data"][0]
                file = file_at(where, pixels.nbytes) or "its array"
                raise OSError(f"{file}: {error}") from None
            return image_module().frombytes("RGB", (width, height), data)
        picture = pixels[index - self._ends[number]]
        return image_module().fromarray(np.ascontiguousarray(picture)).convert("RGB")

    def info(self, index: int) -> dict[str, Any]:
        return {}
