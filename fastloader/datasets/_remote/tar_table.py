"""Where the pictures of tar shards lie: flat arrays, in a file that the processes of a machine share."""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import math
import mmap
import os
import struct
import zlib
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np

from fastloader._core.machine.limits import available_threads
from fastloader._core.machine.messages import SILENT, progress
from fastloader.datasets._formats.mapped_file import written_whole
from fastloader.datasets._formats.tar_shards import ENDING, LABEL, NO_LABEL, TarIndex, TarShard
from fastloader.datasets._remote.cache_folder import ALONE, AT_ONCE, lock, unlock
from fastloader.datasets._remote.remote_tar import Shard
from fastloader.datasets._remote.shard_cache import default_folder

# ---- What is known of the pictures of shards.


class Pick(NamedTuple):
    """Which files of a sample are wanted: the extensions of pictures, the first of which counts, and
    those of further files."""

    pictures: tuple[str, ...]
    columns: tuple[str, ...]


class TarTable(NamedTuple):
    """The samples with a picture, those of one shard after those of the other.

    Attributes:
        counts: how many samples each shard has, int64.
        numbers: the number of each in its shard, uint32.
        offsets, sizes: where its picture lies there, uint64.
        labels: int64.
        places: where its further files lie, uint64 of the shape (samples, columns, 2). An offset of 0:
            it has none.
        extensions: those of all files.
        warning: what is wrong with the labels; empty if nothing is.
        path: the file that the arrays are mapped from; None: they are this process's own.
    """

    counts: Any
    numbers: Any
    offsets: Any
    sizes: Any
    labels: Any
    places: Any
    extensions: tuple[str, ...]
    warning: str
    path: str | None = None


_ARRAYS = ("counts", "numbers", "offsets", "sizes", "labels", "places")
_DTYPES = (np.int64, np.uint32, np.uint64, np.uint64, np.int64, np.uint64)


class _Found(NamedTuple):
    """What was found in one shard."""

    arrays: tuple[Any, ...]
    extensions: list[str]
    warning: str


def make_table(shards: Sequence[Shard], pick: Pick) -> TarTable:
    """Makes the table of these shards, several at a time. Shards that do not keep their indices in
    memory are walked over, or their kept indices are read, one by one."""
    with (
        progress("indexing shards", len(shards), "shards", SILENT) as line,
        ThreadPoolExecutor(available_threads(), "fastloader-index") as pool,
    ):

        def found_in(shard: Shard) -> _Found:
            found = _found_in(shard.path, shard.index, pick)
            line.step()
            return found

        try:
            found = list(pool.map(found_in, shards))
        except BaseException:  # Ctrl-C, or a damaged shard: the others need not be looked through
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    columns = [[each.arrays[number] for each in found] for number in range(len(_ARRAYS))]
    arrays = [
        np.concatenate([np.empty((0, *column[0].shape[1:]), dtype), *column]).astype(
            dtype, copy=False
        )
        for column, dtype in zip(columns, _DTYPES, strict=True)
    ]
    extensions = sorted({name for each in found for name in each.extensions})
    warning = next((each.warning for each in found if each.warning), "")
    return _table(arrays, extensions, warning, None)


def _table(arrays: list[Any], extensions: list[Any], warning: Any, path: str | None) -> TarTable:
    named: dict[str, Any] = dict(zip(_ARRAYS, arrays, strict=True))
    return TarTable(
        **named, extensions=tuple(map(str, extensions)), warning=str(warning), path=path
    )


def _found_in(path: str, index: TarIndex, pick: Pick) -> _Found:
    offset, size = np.zeros((2, len(index)), np.uint64)
    for each in pick.pictures:
        if each in index.extensions:
            column = index.extensions.index(each)
            first = (offset == 0) & (index.offsets[:, column] > 0)
            offset[first] = index.offsets[first, column]
            size[first] = index.sizes[first, column]
    (there,) = np.nonzero(offset)
    places = np.zeros((len(there), len(pick.columns), 2), np.uint64)
    for number, each in enumerate(pick.columns):
        if each in index.extensions:
            column = index.extensions.index(each)
            places[:, number, 0] = index.offsets[there, column]
            places[:, number, 1] = index.sizes[there, column]
    arrays = (
        np.array([len(there)], np.int64),
        there.astype(np.uint32),
        offset[there],
        size[there],
        index.labels[there],
        places,
    )
    return _Found(arrays, index.extensions, _wrong_labels(path, index))


def _wrong_labels(path: str, index: TarIndex) -> str:
    if LABEL not in index.extensions:
        return ""
    has = index.offsets[:, index.extensions.index(LABEL)] > 0
    (without,) = np.nonzero(has & (index.labels == NO_LABEL))
    if not len(without):
        return ""
    sample = index.key(int(without[0]))
    return (
        f"{path}: the .{LABEL} of {len(without)} samples is no whole number, such as "
        f'that of {sample}: their label is {NO_LABEL}. columns=["{LABEL}"] reads what it is'
    )


# ---- The file of a table.


_log = logging.getLogger("fastloader")

# Shards of fewer bytes have their table in each process: a sample takes 1 KiB of a tar at least, so that
# these tables are small.
LARGE = 1 << 30
_MAGIC = b"fltartbl"
_VERSION = 1
# magic, version, bytes of the description, CRC-32 of the description, then of the arrays, bytes in all
_HEAD = struct.Struct("<8sIIIIQ")
_ALIGN = 64
_AT_ONCE = 1 << 24
_MOST_DESCRIPTION = 1 << 24


def is_large(paths: Iterable[str]) -> bool:
    """Returns whether these shards get a table that processes share."""
    size = 0
    for path in paths:
        with contextlib.suppress(OSError):  # opening it says what is wrong
            size += os.stat(path).st_size
        if size >= LARGE:
            return True
    return False


def shared_table(shards: Sequence[TarShard], pick: Pick, folder: str | None) -> TarTable:
    """Returns the table of these shards, mapped from a file that all processes of the machine share. One
    process makes the file, and the others wait for it. If that one ends before the file is whole, the
    next one makes it: of the shards' own indices, as far as they were kept. ``folder``: where the file
    is kept; None: in the folder of `ShardCache`. If nothing can be kept, the table is this process's
    own."""
    whose = _identity(shards, pick)
    folder = folder or os.path.join(default_folder(), "tables")
    path = os.path.join(folder, f"{whose[:32]}{ENDING}-table")
    table = load_table(path, shards, whose)
    if table is not None:
        return table
    with contextlib.ExitStack() as stack:
        try:
            os.makedirs(folder, exist_ok=True)
            stack.enter_context(_alone(path + ".lock"))
        except OSError as error:
            _log.warning(
                "fastloader: the index of %s and %d other shards cannot be shared by the processes of "
                "this machine, so that each keeps its own: %s: %s. index_dir= names a folder for it, on "
                "a local disk",
                shards[0].path,
                len(shards) - 1,
                folder,
                error.strerror or error,
            )
            return make_table(shards, pick)
        table = load_table(path, shards, whose)
        if table is not None:
            return table
        table = make_table(shards, pick)
        try:
            _save(table, path, whose)
        except OSError as error:
            _log.warning("fastloader: %s cannot be written: %s", path, error.strerror or error)
            return table
        return load_table(path, shards, whose) or table


def load_table(path: str, shards: Sequence[TarShard], whose: str) -> TarTable | None:
    """Maps a table; None if there is none, it is damaged, or of anything else than ``whose``."""
    try:
        with open(path, "rb") as file:
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
        table = _parsed(data, path, whose)
    except (OSError, ValueError, KeyError, TypeError, OverflowError, struct.error, RecursionError):
        return None
    return table if _is_sound(table, shards) else None


@contextlib.contextmanager
def _alone(path: str) -> Iterator[None]:
    """Waits until this process is the only one that makes the table. The kernel takes the lock back from
    a process that ends."""
    # For reading, as NFS refuses: processes of several machines would wait for each other there.
    descriptor = os.open(path, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        if not lock(descriptor, ALONE | AT_ONCE, path):
            _log.info("fastloader: another process indexes the shards: waiting for it")
            lock(descriptor, ALONE, path)
        try:
            yield
        finally:
            unlock(descriptor)
    finally:
        os.close(descriptor)


def _identity(shards: Sequence[TarShard], pick: Pick) -> str:
    """Returns a hash of what the table is made of. A shard that is written anew or replaced has another
    inode or time of change, whatever its size and its time say."""
    found = hashlib.sha256(json.dumps([_VERSION, pick]).encode())
    for shard in shards:
        status = shard.status
        known = (
            status.st_dev,
            status.st_ino,
            status.st_size,
            status.st_mtime_ns,
            status.st_ctime_ns,
        )
        found.update(os.fsencode(os.path.abspath(shard.path)) + b"\0" + repr(known).encode())
    return found.hexdigest()


def _save(table: TarTable, path: str, whose: str) -> None:
    arrays = [np.ascontiguousarray(getattr(table, name)) for name in _ARRAYS]
    described = {
        "whose": whose,
        "shape": [len(table.counts), *table.places.shape[:2]],  # shards, samples, columns
        "extensions": table.extensions,
        "warning": table.warning,
    }
    description = json.dumps(described).encode()
    size = _HEAD.size + len(description)
    with written_whole(path) as file:
        file.write(bytes(_HEAD.size) + description)
        checksum = 0
        for array in arrays:
            file.write(bytes(-size % _ALIGN))
            size += -size % _ALIGN + array.nbytes
            for piece in _pieces(array):
                checksum = zlib.crc32(piece, checksum)
                file.write(piece.data)
        head = (_MAGIC, _VERSION, len(description), zlib.crc32(description), checksum, size)
        file.seek(0)
        file.write(_HEAD.pack(*head))
        file.flush()
        os.fsync(file.fileno())


def _pieces(array: Any) -> Iterator[Any]:
    data = array.reshape(-1).view(np.uint8)
    return (data[begin : begin + _AT_ONCE] for begin in range(0, len(data), _AT_ONCE))


def _parsed(data: mmap.mmap, path: str, whose: str) -> TarTable:
    """Raises ValueError, or another error of what was parsed, if the file is no whole table."""
    magic, version, length, own_sum, checksum, size = _HEAD.unpack_from(data)
    if (magic, version, size) != (_MAGIC, _VERSION, len(data)) or length > _MOST_DESCRIPTION:
        raise ValueError("no table")
    description = data[_HEAD.size : _HEAD.size + length]
    if zlib.crc32(description) != own_sum:
        raise ValueError("a damaged description")
    described = json.loads(description)
    if whose != described["whose"]:
        raise ValueError("a table of other shards")
    at, found, arrays = _HEAD.size + length, 0, []
    shards, samples, columns = described["shape"]
    if not all(type(each) is int and 0 <= each <= size for each in (shards, samples, columns)):
        raise ValueError("impossible sizes")
    shapes = ((shards,), *[(samples,)] * 4, (samples, columns, 2))
    for shape, dtype in zip(shapes, _DTYPES, strict=True):
        at += -at % _ALIGN
        count = math.prod(shape)
        array = np.empty(0, dtype)
        if count:  # of a count beyond the file, numpy says so
            array = np.frombuffer(data, dtype, count, at)
        at += array.nbytes
        for piece in _pieces(array):
            found = zlib.crc32(piece, found)
        arrays.append(array.reshape(shape))
    if found != checksum or at != size:
        raise ValueError("damaged arrays")
    arrays[_ARRAYS.index("sizes")].flags.writeable = False  # so that nobody has to copy them
    return _table(arrays, described["extensions"], described["warning"], path)


def _is_sound(table: TarTable, shards: Sequence[TarShard]) -> bool:
    """Returns whether nothing lies outside of its shard. Another program may have written the file."""
    counts, samples = table.counts, len(table.numbers)
    if counts.shape != (len(shards),) or (counts < 0).any() or int(counts.sum()) != samples:
        return False
    begin = 0
    for shard, count in zip(shards, counts.tolist()):
        some, size = slice(begin, begin + count), np.uint64(shard.status.st_size)
        spans = [(table.offsets[some], table.sizes[some])]
        if table.places.shape[1]:
            spans.append((table.places[some, :, 0], table.places[some, :, 1]))
        for offsets, sizes in spans:
            if not ((offsets <= size) & (sizes <= size - offsets)).all():
                return False
        begin += count
    return True
