"""The files in a tar, and WebDataset's rule for which of them make a sample."""

from __future__ import annotations

import os
import re
import tarfile
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from fastloader._core.machine import extension
from fastloader.errors import Error

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
    """The name of the member at ``offset``, of the sample ``key``, as the tar has it: ``ending`` is in
    lower case. ``read`` gives (offset, size) of the tar, and what it raises is left to the caller."""
    name = f"{key}.{ending}"
    header = read(offset - tarfile.BLOCKSIZE, tarfile.BLOCKSIZE)
    its, prefix = (os.fsdecode(each.split(b"\0")[0]) for each in (header[:100], header[345:500]))
    for found in (its, f"{prefix}/{its}"):
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
    """The files of a tar, ``data``, which is mapped into memory. Contents are not read.

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
    """Neighbouring files of one key, as WebDataset groups them. Files that have no extension, and those
    that WebDataset keeps for itself (``__...__``), are left out. A key that comes again later
    makes a sample of its own.

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
