"""Tells the loop where the encoded pictures of a sample stand, and what keeps each from its decode
threads."""

from __future__ import annotations

import dataclasses
import itertools
from collections import UserList
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from fastloader.datasets.encoded import EncodedImage


class Made(NamedTuple):
    """By whom the pictures in one place of every sample are made: one of the words below. ``why``: the
    first thing that keeps them from the loop's decode threads; empty if nothing does, or if only the
    loop knows."""

    how: str
    why: str = ""


# By the loop's decode threads; where the samples are made, by decode threads or by Pillow together, or
# each by itself; and what is no picture, by the dataset.
KEPT, TOGETHER, ALONE, OWN = "kept", "together", "alone", "own"
AS_KEPT, AS_OWN = Made(KEPT), Made(OWN)


class Told(NamedTuple):
    """What stands in one ``place`` of a sample."""

    place: str
    made: Made


def told_of(sample: Any, made: Sequence[Made]) -> tuple[Told, ...]:
    """Lists the parts of a sample, of whose encoded pictures the first is ``made`` by this, and so on;
    those behind the last as the last. Pictures of one container that are alike are one part."""
    by_whom = itertools.chain(made, itertools.repeat(made[-1]))
    found: list[Told] = []
    for part, leaves in itertools.groupby(_leaves(sample), lambda each: each[0]):
        pictures: list[tuple[str, str, Made]] = []  # the first and the last place of those alike
        rest = False
        for _part, place, leaf in leaves:
            if type(leaf) is not EncodedImage:
                rest = True
                continue
            its = next(by_whom)
            if pictures and pictures[-1][2] == its:
                pictures[-1] = pictures[-1][0], place, its
            else:
                pictures.append((place, place, its))
        for first, last, its in pictures:
            found.append(Told(first if first == last else f"{first} to {last}", its))
        if rest:
            found.append(Told(f"the rest of {part}" if pictures else part, AS_OWN))
    return tuple(found)


def _leaves(sample: Any) -> Iterator[tuple[str, str, Any]]:
    """Gives (outermost key, place, value) of all that is in a sample."""
    items = _items(sample)
    if items is None:
        yield "", "", sample
        return
    for key, value in items:
        yield from ((key, place, leaf) for place, leaf in _below(key, value))


def _below(place: str, value: Any) -> Iterator[tuple[str, Any]]:
    items = _items(value)
    if not items:  # no container, or an empty one
        yield place, value
        return
    for key, inner in items:
        yield from _below(f"{place}{key}", inner)


def _items(value: Any) -> list[tuple[str, Any]] | None:
    """Lists what is in a container, in the order in which `rebuild` opens it; None if it is none."""
    if isinstance(value, Mapping):
        return [(f"[{key!r}]", each) for key, each in value.items()]
    if isinstance(value, list | tuple | UserList):
        return [(f"[{number}]", each) for number, each in enumerate(value)]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = dataclasses.fields(value)
        return [(f".{each.name}", getattr(value, each.name)) for each in fields]
    return None
