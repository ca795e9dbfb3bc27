"""Shards by pattern."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterator, Sequence

from fastloader.datasets._formats.urls import is_url

_BRACES = re.compile(r"\{([^{}]*)\}")
_RANGE = re.compile(r"^(\d+)\.\.(\d+)$")


def paths_of(shards: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]) -> Iterator[str]:
    """The paths that are named, and URLs as they are but for braces. Raises FileNotFoundError for a
    pattern that no file matches, and ValueError for a program's output."""
    for each in [shards] if isinstance(shards, str | os.PathLike) else shards:
        text = os.path.expanduser(os.fspath(each))
        if text.startswith("pipe:"):
            raise ValueError(
                f"{text}: shards are files or URLs, since a program's output cannot be read in any order"
            )
        if is_url(text):
            yield from _expanded(text)
            continue
        for path in [text] if os.path.exists(text) else _expanded(text):
            if os.path.exists(path):
                yield path
                continue
            found = sorted(glob.glob(path, recursive=True))
            if not found:
                raise FileNotFoundError(f"{path}: no file matches")
            yield from found


def _expanded(text: str) -> Iterator[str]:
    """``a{0..2}`` and ``a{x,y}``, as a shell and WebDataset expand them."""
    found = _BRACES.search(text)
    if found is None:
        yield text
        return
    before, behind = text[: found.start()], text[found.end() :]
    numbers = _RANGE.match(found[1])
    if numbers is None:
        inner = found[1].split(",")
    else:
        first, last = int(numbers[1]), int(numbers[2])
        inner = [f"{number:0{len(numbers[1])}}" for number in range(first, last + 1)]
    for each in inner:
        yield from _expanded(before + each + behind)
