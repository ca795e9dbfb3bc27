"""Arrays that were found out about a file, and are kept beside it."""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import secrets
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np


def kept_path(path: str, folder: str | None, ending: str) -> str:
    """Where they are kept: beside the file, or in ``folder``, which may serve files of one name."""
    if folder is None:
        return path + ending
    name = hashlib.sha256(os.fsencode(os.path.realpath(path))).hexdigest()[:16]
    return os.path.join(folder, f"{os.path.basename(path)}.{name}{ending}")


def save_arrays(path: str, arrays: Mapping[str, Any]) -> None:
    """Writes the arrays, all or nothing. Raises OSError if that fails."""
    out = io.BytesIO()
    np.savez(out, **arrays)
    unfinished = f"{path}.{secrets.token_hex(4)}.part"
    try:
        with open(unfinished, "xb") as file:
            file.write(out.getbuffer())
        os.replace(unfinished, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(unfinished)
        raise


def load_arrays(file_or_path: Any) -> dict[str, Any] | None:
    """The arrays; None if there are none, or they are damaged."""
    try:
        with np.load(file_or_path, allow_pickle=False) as file:
            # `save_arrays` compresses nothing. What is compressed, or larger inside, is of another's
            # making, and a few bytes of it may stand for gigabytes.
            size, parts = file.zip.fp.seek(0, os.SEEK_END), file.zip.infolist()
            if any(part.compress_type for part in parts) or sum(p.file_size for p in parts) > size:
                return None
            return {name: file[name] for name in file.files}
    except (
        Exception
    ):  # numpy and zipfile raise anything, and the file is there to be looked at anew
        return None


def fingerprint_places(
    offsets: Any, before: int, behind: int, size: int, some: int = 32
) -> list[tuple[int, int]]:
    """The (begin, end) of so many bytes before and behind some of the offsets in a file of that size:
    files of one size and one time are not rare, as sizes are rounded up and copying keeps times."""
    offsets = np.sort(offsets)
    picked = offsets[np.linspace(0, len(offsets) - 1, some).astype(int)] if len(offsets) else []
    return [(max(0, each - before), min(each + behind, size)) for each in map(int, picked)]


def fingerprint_of(pieces: Iterable[Any]) -> bytes:
    """A hash of what stands in these places."""
    found = hashlib.sha256()
    for piece in pieces:
        found.update(piece)
    return found.digest()
