"""The parts of a batch that are decoded together."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

from fastloader._core.sources.encoded.batch import EncodedColumn


@dataclasses.dataclass
class View:
    """One of the pictures that are made of each file: for ``column``, by ``chain``."""

    column: int
    chain: int


@dataclasses.dataclass
class Part:
    """Samples of which each has one file. ``positions``: theirs in the batch. ``files``: theirs.
    ``views``: what is made of each file."""

    positions: list[int]
    files: list[int]
    views: list[View]


def parts(columns: Sequence[EncodedColumn]) -> list[Part]:
    """The parts of a batch: what is made of the same files of the same samples is one of them, so that
    each file is read once, and decoded once if that is cheaper."""
    found: dict[tuple[tuple[int, ...], tuple[int, ...]], Part] = {}
    for number, column in enumerate(columns):
        for chain, positions in _by_chain(column.chains):
            files = [column.files[position] for position in positions]
            part = found.setdefault((tuple(positions), tuple(files)), Part(positions, files, []))
            part.views.append(View(number, chain))
    return list(found.values())


def _by_chain(chains: Sequence[int]) -> Iterator[tuple[int, list[int]]]:
    for chain in dict.fromkeys(chains):
        yield chain, [position for position, its in enumerate(chains) if its == chain]
