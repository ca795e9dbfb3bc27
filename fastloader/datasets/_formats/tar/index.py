"""Where the samples of a shard are: found once, and kept in a file."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import logging
import os
from collections.abc import Callable
from typing import Any

import numpy as np

from fastloader.datasets._formats.files.kept_arrays import (
    fingerprint_of,
    fingerprint_places,
    kept_path,
    load_arrays,
    save_arrays,
)
from fastloader.datasets._formats.tar.dali import read_idx
from fastloader.datasets._formats.tar.members import DamagedTar, members_of, samples_of

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
        """(offset, size) of a sample's file of this extension; None if it has none."""
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
    extensions = sorted({each for sample in samples for each in sample.files})
    column = {each: number for number, each in enumerate(extensions)}
    places = np.zeros((2, len(samples), len(extensions)), np.uint64)
    labels = np.full(len(samples), NO_LABEL, np.int64)
    keys = [os.fsencode(sample.key) for sample in samples]
    for number, sample in enumerate(samples):
        for each, place in sample.files.items():
            places[:, number, column[each]] = place
        if LABEL in sample.files:
            labels[number] = _label(data, *sample.files[LABEL])
    ends = np.cumsum([len(key) for key in keys], dtype=np.uint64)
    return TarIndex(extensions, b"".join(keys), ends, places[0], places[1], labels)


def _label(data: Any, offset: int, size: int) -> int:
    """-1 for anything but a class number: whoever wants it, says so."""
    text = bytes(data[offset : offset + min(size, _MOST_LABEL)]).strip()
    if not text.isdigit() or size > _MOST_LABEL:
        return NO_LABEL
    label = int(text)
    return label if label < 1 << 63 else NO_LABEL


def index_of(data: Any, path: str, status: os.stat_result, folder: str | None) -> TarIndex:
    """The index of a shard. It is kept beside the shard, or in ``folder``, and made anew if the shard
    has another size or time since, or other samples. Where nothing can be kept, it is made each time."""
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
    """The index that was kept for a shard of this path, size and time in nanoseconds, which need not be
    there itself; None if there is none."""
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
    """Where some headers and beginnings of files are."""
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
    """None: there is none, it is of another shard, or damaged. None in ``whose`` is any number."""
    kept = load_arrays(file_or_path)
    if kept is None or not set(kept) >= _NAMES:
        return None
    if kept["whose"].dtype != np.int64 or kept["whose"].shape != (len(whose),):
        return None
    said = kept["whose"].tolist()
    if any(its is not None and its != one for its, one in zip(whose, said, strict=True)):
        return None
    names = os.fsdecode(kept["extensions"].tobytes())
    index = TarIndex(
        names.split("\0") if names else [],
        kept["keys"].tobytes(),
        *(kept[name] for name in ("ends", "offsets", "sizes", "labels")),
    )
    return (index, kept["fingerprint"].tobytes()) if _is_sound(index, said[1]) else None


def _is_sound(index: TarIndex, size: int) -> bool:
    """Whether nothing lies outside of the shard, or of the index: it may be of anybody's making."""
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
