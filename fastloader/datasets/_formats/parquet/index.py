"""Where the pictures of a file are: found once, and kept in a file."""

from __future__ import annotations

import contextlib
import hashlib
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

VERSION = 1
_ENDING = ".fastloader-parquet"
_NAMES = {"whose", "fingerprint", "offsets", "sizes"}
# The length before a picture and its first bytes, of some pictures, tell one file from another.
_LENGTH, _BEGINNING = 4, 64


def kept_places(
    data: Any,
    path: str,
    status: os.stat_result,
    column: str,
    folder: str | None,
    rows: int,
    walk: Callable[[], list[tuple[Any, Any]]],
) -> tuple[Any, Any]:
    """(offsets, sizes) of a column's ``rows`` values, which ``walk`` finds, row group by row group. They
    are kept beside the file, or in ``folder``, and found anew if the file has another size, time or
    footer since, or other values. Where nothing can be kept, they are found each time."""
    kept = kept_path(path, folder, _ENDING)
    whose = _whose(data, status, column)
    found = load_arrays(kept)
    if found is not None and _fits(found, whose, data, rows):
        return found["offsets"], found["sizes"]
    nothing = np.zeros(0, np.uint64)
    parts = [(nothing, nothing), *walk()]
    offsets, sizes = (np.concatenate(each) for each in zip(*parts, strict=True))
    print_ = np.frombuffer(_fingerprint(data, offsets), np.uint8)
    # A folder that may not be written, or a full disk.
    with contextlib.suppress(OSError):
        save_arrays(
            kept, {"whose": whose, "fingerprint": print_, "offsets": offsets, "sizes": sizes}
        )
    return offsets, sizes


def _whose(data: Any, status: os.stat_result, column: str) -> Any:
    """Bytes that differ for another file or column."""
    footer = int.from_bytes(data[-8:-4], "little")
    said = f"{VERSION} {status.st_size} {status.st_mtime_ns} {column}".encode()
    digest = hashlib.sha256(said + b"\0" + data[-8 - min(footer, len(data) - 8) :]).digest()
    return np.frombuffer(digest, np.uint8)


def _fingerprint(data: Any, offsets: Any) -> bytes:
    places = fingerprint_places(offsets[offsets > 0], _LENGTH, _BEGINNING, len(data))
    return fingerprint_of(data[begin:end] for begin, end in places)


def _fits(found: dict[str, Any], whose: Any, data: Any, rows: int) -> bool:
    """Whether it is of this file, and nothing lies outside of that: it may be of anybody's making."""
    if not set(found) >= _NAMES or not np.array_equal(found["whose"], whose):
        return False
    offsets, sizes = found["offsets"], found["sizes"]
    if offsets.shape != (rows,) or sizes.shape != (rows,):
        return False
    if offsets.dtype != np.uint64 or sizes.dtype != np.uint64:
        return False
    within = (offsets <= len(data)) & (sizes <= len(data) - np.minimum(offsets, len(data)))
    return bool(within.all()) and found["fingerprint"].tobytes() == _fingerprint(data, offsets)
