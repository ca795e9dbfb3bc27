"""Reads the shards behind `TarImages`: finds where their samples lie, once."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
import logging
import os
import re
import tarfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np

from fastloader._core.machine import extension
from fastloader.datasets._formats.mapped_file import (
    MappedFile,
    fingerprint_of,
    fingerprint_places,
    kept_path,
    load_arrays,
    save_arrays,
)
from fastloader.errors import Error

# ---- The files in a tar, and WebDataset's rule for which of them make a sample.


# WebDataset's rules, to the letter. The key is the path up to the first dot behind the last slash, and
# what follows the dot is the extension. Some names it keeps for itself.
_SAMPLE = re.compile(r"^((?:.*/|)[^.]+)[.]([^/]*)$")
_RECORDS = 1024  # bytes in which a long name is looked for, besides its own
_META = re.compile(r"__[^/]*__($|/)")


class Member(NamedTuple):
    """A regular file in a tar: its bytes begin at ``offset`` of the tar."""

    name: str
    offset: int
    size: int


class Sample(NamedTuple):
    """Files of one key. ``files``: (offset, size) by extension, in lower case."""

    key: str
    files: dict[str, tuple[int, int]]


def own_name(read: Callable[[int, int], bytes], offset: int, key: str, ending: str) -> str:
    """Returns the name of the member at ``offset``, of the sample ``key``, as the tar has it: ``ending``
    is in lower case. ``read`` gives (offset, size) of the tar, and what it raises is left to the
    caller."""
    name = f"{key}.{ending}"
    header = read(offset - tarfile.BLOCKSIZE, tarfile.BLOCKSIZE)
    member, prefix = (os.fsdecode(each.split(b"\0")[0]) for each in (header[:100], header[345:500]))
    for found in (member, f"{prefix}/{member}"):
        if found.startswith(f"{key}.") and found.lower() == name.lower():
            return found
    # A long name stands in blocks of its own in front of the header, maybe among other records.
    size = len(os.fsencode(name)) + _RECORDS
    begin = max(0, offset - tarfile.BLOCKSIZE - size)
    before = os.fsdecode(read(begin, offset - tarfile.BLOCKSIZE - begin))
    long = re.findall(f"{re.escape(key)}[.](?i:{re.escape(ending)})(?=[\0\n])", before)
    return long[-1] if long else name


class DamagedTar(ValueError):
    """A tar is not what a tar program has written, or not all of it is there."""


def members_of(data: Any, path: str) -> list[Member]:
    """Lists the files of a tar, ``data``, which is mapped into memory. Contents are not read.

    Raises:
        DamagedTar: which names ``path`` and the byte, if it is no tar, is damaged, or was cut off.
    """
    if extension.load() is None:
        return list(_members_by_python(data, path))
    try:
        names, ends, offsets, sizes = extension.native.tar_members(data)
    except Error as error:
        raise DamagedTar(f"{path}: {error}") from None
    begin = 0
    members = []
    columns = (np.frombuffer(each, np.uint64).tolist() for each in (ends, offsets, sizes))
    for end, offset, size in zip(*columns, strict=True):
        members.append(Member(os.fsdecode(names[begin:end]), offset, size))
        begin = end
    return members


def _members_by_python(data: Any, path: str) -> Iterator[Member]:
    try:
        # Python's reader takes a tar that was cut off between two files for a whole one.
        data.seek(0)
        with tarfile.open(fileobj=data, mode="r:", errors="surrogateescape") as tar:
            end = 0
            for info in tar:
                end = info.offset_data + -(-info.size // tarfile.BLOCKSIZE) * tarfile.BLOCKSIZE
                if info.issparse():
                    raise DamagedTar(
                        f"{path}: at byte {info.offset}: sparse files are not supported"
                    )
                if info.isreg():
                    yield Member(info.name, info.offset_data, info.size)
    except (
        tarfile.TarError,
        ValueError,
    ) as error:  # ValueError: a mapping ends where the tar goes on
        raise DamagedTar(f"{path}: {error}") from None
    if bytes(data[end : end + tarfile.BLOCKSIZE]) != bytes(tarfile.BLOCKSIZE):
        raise DamagedTar(
            f"{path}: the tar was cut off, or is still written: no block of zeros ends it"
        )


def samples_of(members: list[Member], path: str) -> Iterator[Sample]:
    """Groups neighbouring files of one key, as WebDataset does. Files that have no extension, and those
    that WebDataset keeps for itself (``__...__``), are left out. A key that comes again later makes a
    sample of its own.

    Raises:
        DamagedTar: if a sample has two files of one extension.
    """
    key: str | None = None
    files: dict[str, tuple[int, int]] = {}
    for member in members:
        found = None if _META.match(member.name) else _SAMPLE.match(member.name)
        if found is None:
            continue
        if found[1] != key:
            if key is not None:
                yield Sample(key, files)
            key, files = found[1], {}
        ending = found[2].lower()
        if ending in files:
            raise DamagedTar(f"{path}: the sample {key} has two files .{ending}")
        files[ending] = (member.offset, member.size)
    if key is not None:
        yield Sample(key, files)


# ---- The indices of shards that DALI's ``wds2idx`` makes.


_BLOCK = 512
_WORDS = {"v1.1": 3, "v1.2": 4}  # of a file, by the version: extension, offset, size, name


def read_idx(data: Any, path: str, modified: int) -> list[Sample] | None:
    """Reads the samples of the shard ``data`` from the file ``<shard>.idx`` beside it. None if there is
    none, if it is older than the shard (``modified``, in nanoseconds), or does not fit it: then the
    shard is walked over."""
    idx = os.path.splitext(path)[0] + ".idx"
    try:
        if os.stat(idx).st_mtime_ns < modified:
            return None
        with open(idx, encoding="utf-8", errors="surrogateescape") as file:
            samples = list(_samples(file))
    except (OSError, ValueError):
        return None
    return samples if samples and _fits(samples, data) else None


def _samples(lines: Any) -> Iterator[Sample]:
    """Raises ValueError for what is no such file."""
    version, count = next(lines, "").split()
    words = _WORDS.get(version)
    if words is None:
        raise ValueError(version)
    for number in range(int(count)):
        row = next(lines, "").rstrip("\n").split(" ")
        if len(row) % words:
            raise ValueError("a name with a space")
        key = str(number)
        files: dict[str, tuple[int, int]] = {}
        for begin in range(0, len(row), words):
            extension, offset, size, *name = row[begin : begin + words]
            if extension.lower() in files:
                raise ValueError("two files of one extension")
            files[extension.lower()] = int(offset), int(size)
            key = name[0].removesuffix(f".{extension}") if name else key
        yield Sample(key, files)


def _fits(samples: list[Sample], data: Any) -> bool:
    """Returns whether all files lie in the shard, and the first and the last stand behind a header that
    says the same: the index of another shard, and of one that has grown or was cut off, does not."""
    places = [place for sample in samples for place in sample.files.values()]
    for offset, size in places:
        if offset < _BLOCK or offset % _BLOCK or size < 0 or offset + size > len(data):
            return False
    last = max(places)
    for offset, size in (min(places), last):
        digits = bytes(data[offset - _BLOCK + 124 : offset - _BLOCK + 136]).strip(b" \0")
        if digits != b"%011o" % size and digits.lstrip(b"0") != b"%o" % size:
            return False
    end = last[0] + -(-last[1] // _BLOCK) * _BLOCK
    return bytes(data[end : end + _BLOCK]) == bytes(_BLOCK)


# ---- Where the samples of a shard are: found once, and kept in a file.


_log = logging.getLogger("fastloader")

VERSION = 1
ENDING = ".fastloader-tar"
LABEL = "cls"  # the extension of the file that holds a class number
_MOST_LABEL = 32  # bytes of such a file
NO_LABEL = -1
# The header and the first bytes of some files tell one shard from another.
_HEADER, _BEGINNING = 512, 64
_NAMES = {"whose", "fingerprint", "extensions", "keys", "ends", "offsets", "sizes", "labels"}


@dataclasses.dataclass(frozen=True)
class TarIndex:
    """The samples of a shard, in flat arrays. The key of sample i is the bytes from ``ends[i - 1]`` (0
    for the first) to ``ends[i]`` of ``keys``. ``offsets`` and ``sizes``, of the shape (samples,
    extensions), say where its file of each of the ``extensions`` lies; an offset of 0: it has none.
    ``labels``: the class numbers, int64; -1: none."""

    extensions: list[str]
    keys: bytes
    ends: Any
    offsets: Any
    sizes: Any
    labels: Any

    def __len__(self) -> int:
        return len(self.ends)

    def place(self, sample: int, extension: str) -> tuple[int, int] | None:
        """Returns (offset, size) of a sample's file of this extension; None if it has none."""
        if extension not in self.extensions:
            return None
        column = self.extensions.index(extension)
        offset = int(self.offsets[sample, column])
        return (offset, int(self.sizes[sample, column])) if offset else None

    def key(self, sample: int) -> str:
        begin = int(self.ends[sample - 1]) if sample else 0
        return os.fsdecode(self.keys[begin : int(self.ends[sample])])


def make_index(data: Any, path: str, modified: int) -> TarIndex:
    """Walks over a shard that lies in memory, or takes what DALI's ``wds2idx`` found. Reads headers and
    labels, and no picture. ``modified``: when the shard was, in nanoseconds.

    Raises:
        DamagedTar: which names ``path``, if it is no whole tar.
    """
    samples = read_idx(data, path, modified)
    if samples is None:
        samples = list(samples_of(members_of(data, path), path))
    extensions = sorted({suffix for sample in samples for suffix in sample.files})
    column = {suffix: number for number, suffix in enumerate(extensions)}
    places = np.zeros((2, len(samples), len(extensions)), np.uint64)
    labels = np.full(len(samples), NO_LABEL, np.int64)
    keys = [os.fsencode(sample.key) for sample in samples]
    for number, sample in enumerate(samples):
        for suffix, place in sample.files.items():
            places[:, number, column[suffix]] = place
        if LABEL in sample.files:
            labels[number] = _label(data, *sample.files[LABEL])
    ends = np.cumsum([len(key) for key in keys], dtype=np.uint64)
    return TarIndex(extensions, b"".join(keys), ends, places[0], places[1], labels)


def _label(data: Any, offset: int, size: int) -> int:
    """Reads a class number; -1 for anything else. A caller that needs the label says so."""
    text = bytes(data[offset : offset + min(size, _MOST_LABEL)]).strip()
    if not text.isdigit() or size > _MOST_LABEL:
        return NO_LABEL
    label = int(text)
    return label if label < 1 << 63 else NO_LABEL


def index_of(data: Any, path: str, status: os.stat_result, folder: str | None) -> TarIndex:
    """Returns the index of a shard. It is kept beside the shard, or in ``folder``, and made anew if the
    shard has another size or time since, or other samples. Where nothing can be kept, it is made each
    time."""
    kept = kept_path(path, folder, ENDING)
    whose = [VERSION, status.st_size, status.st_mtime_ns]
    found = _load(kept, whose)
    if found is None or found[1] != _fingerprint(data, found[0]):
        index = make_index(data, path, status.st_mtime_ns)
        _log.debug("fastloader: looked through %s: %d samples", path, len(index))
        # A folder that may not be written, or a full disk.
        with contextlib.suppress(OSError):
            _save(index, kept, whose, _fingerprint(data, index))
        return index
    return found[0]


def kept_index(path: str, size: int, modified: int, folder: str | None) -> TarIndex | None:
    """Loads the index that was kept for a shard of this path, size and time in nanoseconds, which need
    not be there itself; None if there is none."""
    found = _load(kept_path(path, folder, ENDING), [VERSION, size, modified])
    return None if found is None else found[0]


def forget_index(path: str, folder: str | None) -> None:
    """Removes the index that was kept for a shard of this path, if there is one."""
    with contextlib.suppress(OSError):  # which is as good as none where nothing may be written
        os.unlink(kept_path(path, folder, ENDING))


def keep_index(
    content: bytes,
    path: str,
    status: tuple[int, int],
    folder: str | None,
    read: Callable[[list[tuple[int, int]]], list[bytes]],
) -> TarIndex:
    """Takes the index that was kept beside a shard elsewhere, and keeps it for this path. ``status``:
    the shard's size and time in nanoseconds. ``read`` reads (offset, size) of the shard.

    Raises:
        DamagedTar: which names ``path``, if it is damaged, or of another shard.
    """
    size, modified = status
    found = _load(io.BytesIO(content), [VERSION, size, None])
    if found is None:
        raise DamagedTar(f"{path} is damaged, or the index of another shard: make it anew")
    index, fingerprint = found
    places = _fingerprint_places(index, size)
    if fingerprint_of(read([(begin, end - begin) for begin, end in places])) != fingerprint:
        raise DamagedTar(f"{path} is the index of another shard: make it anew")
    with contextlib.suppress(OSError):
        _save(index, kept_path(path, folder, ENDING), [VERSION, size, modified], fingerprint)
    return index


def _fingerprint_places(index: TarIndex, size: int) -> list[tuple[int, int]]:
    """Picks the places of some headers and beginnings of files."""
    return fingerprint_places(index.offsets[index.offsets > 0], _HEADER, _BEGINNING, size)


def _fingerprint(data: Any, index: TarIndex) -> bytes:
    return fingerprint_of(data[begin:end] for begin, end in _fingerprint_places(index, len(data)))


def _save(index: TarIndex, path: str, whose: list[int], fingerprint: bytes) -> None:
    arrays = {
        "whose": np.array(whose, np.int64),
        "fingerprint": np.frombuffer(fingerprint, np.uint8),
        "extensions": np.frombuffer(os.fsencode("\0".join(index.extensions)), np.uint8),
        "keys": np.frombuffer(index.keys, np.uint8),
        "ends": index.ends,
        "offsets": index.offsets,
        "sizes": index.sizes,
        "labels": index.labels,
    }
    save_arrays(path, arrays)


def _load(file_or_path: Any, whose: list[Any]) -> tuple[TarIndex, bytes] | None:
    """Loads an index; None if there is none, or it is of another shard, or damaged. None in ``whose`` is
    any number."""
    kept = load_arrays(file_or_path)
    if kept is None or not set(kept) >= _NAMES:
        return None
    if kept["whose"].dtype != np.int64 or kept["whose"].shape != (len(whose),):
        return None
    saved = kept["whose"].tolist()
    if any(now is not None and now != one for now, one in zip(whose, saved, strict=True)):
        return None
    names = os.fsdecode(kept["extensions"].tobytes())
    index = TarIndex(
        names.split("\0") if names else [],
        kept["keys"].tobytes(),
        *(kept[name] for name in ("ends", "offsets", "sizes", "labels")),
    )
    return (index, kept["fingerprint"].tobytes()) if _is_sound(index, saved[1]) else None


def _is_sound(index: TarIndex, size: int) -> bool:
    """Returns whether nothing lies outside of the shard, or of the index: anybody may have written
    it."""
    if index.ends.ndim != 1:
        return False
    shape = len(index), len(index.extensions)
    arrays = [index.ends, index.offsets, index.sizes]
    if any(each.dtype != np.uint64 for each in arrays) or index.labels.dtype != np.int64:
        return False
    if index.offsets.shape != shape or index.sizes.shape != shape:
        return False
    if index.labels.shape != index.ends.shape:
        return False
    ends = np.concatenate([np.zeros(1, np.uint64), index.ends])
    return bool(
        (ends[1:] >= ends[:-1]).all()
        and ends[-1] == len(index.keys)
        and (index.offsets <= size).all()
        and (index.sizes <= size - index.offsets).all()
    )


# ---- What the files of a sample hold that are no pictures.


# By extension, as WebDataset's own decoder has it.
_NUMBERS = ("cls", "cls2", "class", "count", "index", "inx", "id")
_TEXTS = ("txt", "text", "transcript")
_JSON = ("json", "jsn")


def content_of(data: bytes, extension: str) -> Any:
    """Reads a whole number, text, or what JSON says; of a compound extension (``seg.json``) the last
    part counts. Bytes for any other.

    Raises:
        ValueError: if the bytes are of another kind.
    """
    last = extension.rsplit(".", 1)[-1]
    if last in _NUMBERS:
        return int(data)
    if last in _TEXTS:
        return data.decode()
    if last in _JSON:
        return json.loads(data)
    return data


# ---- One shard, mapped into memory.


_COMPRESSED = {b"\x1f\x8b": "gzip", b"BZh": "bzip2", b"\xfd7zXZ": "xz", b"\x28\xb5\x2f\xfd": "zstd"}


class TarShard(MappedFile):
    """A tar that is mapped into memory, and where its samples are. ``keeps_index``: whether that is kept
    in memory.

    Raises:
        OSError: if the file cannot be read.
        DamagedTar: a ValueError, if it is no whole tar.
    """

    damaged = DamagedTar
    local_file = True  # a shard of a store need not be one
    ending = ".tar"

    _index: TarIndex | None = None
    _index_dir: str | None = None

    def __init__(self, path: str, index_dir: str | None, keeps_index: bool = True) -> None:
        super().__init__(path)
        for magic, kind in _COMPRESSED.items():
            if self.mapping[: len(magic)] == magic:
                raise DamagedTar(
                    f"{path} is compressed ({kind}): unpack it, since only what is not can be read in "
                    "any order"
                )
        self._index_dir = index_dir
        self._index = self.index if keeps_index else None

    @property
    def index(self) -> TarIndex:
        """Where its samples are. It is found anew each time if the shard does not keep it: read from its
        file, or from the shard."""
        if self._index is not None:
            return self._index
        return index_of(self.mapping, self.path, self.status, self._index_dir)

    def begin_read(
        self, places: Sequence[tuple[int, int]], pool: ThreadPoolExecutor
    ) -> Callable[[], list[bytes]]:
        """Returns a function that reads the bytes of these (offset, size), for which no other thread is
        needed. The caller checks the shard afterwards."""
        return lambda: [self.read_bytes(offset, size) for offset, size in places]
