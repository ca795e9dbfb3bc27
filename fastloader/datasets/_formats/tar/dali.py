"""The indices of shards that DALI's ``wds2idx`` makes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from fastloader.datasets._formats.tar.members import Sample

_BLOCK = 512
_WORDS = {"v1.1": 3, "v1.2": 4}  # of a file, by the version: extension, offset, size, name


def read_idx(data: Any, path: str, modified: int) -> list[Sample] | None:
    """The samples of the shard ``data`` by the file ``<shard>.idx`` beside it. None if there is none, if
    it is older than the shard (``modified``, in nanoseconds), or does not fit it: then the shard is
    walked over."""
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
    """Whether all files lie in the shard, and the first and the last stand behind a header that says
    the same: the index of another shard, and of one that has grown or was cut off, does not."""
    places = [place for sample in samples for place in sample.files.values()]
    for offset, size in places:
        if offset < _BLOCK or offset % _BLOCK or size < 0 or offset + size > len(data):
            return False
    last = max(places)
    for offset, size in (min(places), last):
        said = bytes(data[offset - _BLOCK + 124 : offset - _BLOCK + 136]).strip(b" \0")
        if said != b"%011o" % size and said.lstrip(b"0") != b"%o" % size:
            return False
    end = last[0] + -(-last[1] // _BLOCK) * _BLOCK
    return bytes(data[end : end + _BLOCK]) == bytes(_BLOCK)
