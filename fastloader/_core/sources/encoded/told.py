"""Tells the loop where the encoded pictures of a sample stand, and what keeps each from its decode
threads."""

from __future__ import annotations

import dataclasses
import itertools
from collections import UserList
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from fastloader.datasets.joint import ENCODED, JointImage, JointTarget


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
    """What stands in one ``place`` of a sample, or in that and all others until ``last``."""

    place: str
    last: str
    made: Made


def told_of(sample: Any, made: Sequence[Made]) -> tuple[Told, ...]:
    """Lists the parts of a sample, of whose encoded pictures the first is ``made`` by this, and so on;
    those behind the last as the last. Pictures that stand side by side and are alike are one part."""
    by_whom = itertools.chain(made, itertools.repeat(made[-1]))
    following: dict[int, Made] = {}  # by the ids of masks in the targets of pairs
    found: list[Told] = []
    for part, leaves in itertools.groupby(_leaves(sample), lambda each: each[0]):
        pictures: list[Told] = []
        rest = False
        for _part, place, leaf in leaves:
            if type(leaf) in ENCODED:
                its = next(by_whom)
                if type(leaf) is JointImage:
                    following |= {id(mask): its for mask in leaf.with_.values()}
            elif id(leaf) in following:
                its = following[id(leaf)]
            else:
                rest = True
                continue
            if pictures and pictures[-1].made == its:
                pictures[-1] = pictures[-1]._replace(last=place)
            else:
                pictures.append(Told(place, place, its))
        found += pictures
        if rest:
            rest_of = f"the rest of {part}" if pictures else part
            found.append(Told(rest_of, rest_of, AS_OWN))
    return tuple(found)


class ToldParts:
    """Keeps what was told of the samples of one epoch.

    Attributes: ``made``, of each place by whom its pictures are made, with the first reason of each.
    """

    def __init__(self) -> None:
        self.made: dict[str, dict[str, str]] = {}
        self._lasts: dict[str, str] = {}
        self._told: Sequence[Told] = ()

    def note(self, told: Sequence[Told]) -> None:
        """Notes what was told of a batch, which is seldom anything new."""
        if told == self._told:
            return
        self._told = told
        for place, last, made in told:
            self.made.setdefault(place, {}).setdefault(made.how, made.why)
            # Samples may have several numbers of pictures; [10] comes after [9].
            before = self._lasts.get(place, last)
            self._lasts[place] = max(before, last, key=lambda each: (len(each), each))

    def named(self, place: str) -> str:
        """Returns the place with the last of those behind it that are alike."""
        last = self._lasts[place]
        return place if place == last else f"{place} to {last}"


def _leaves(sample: Any) -> Iterator[tuple[str, str, Any]]:
    """Gives (outermost key, place, value) of all that is in a sample. Pictures in a list or a tuple that
    is the sample have no key of their own, since there may be many of them."""
    items = _items(sample)
    if items is None:
        yield "", "", sample
        return
    listed = isinstance(sample, list | tuple | UserList)
    for key, value in items:
        part = "" if listed and type(value) in ENCODED else key
        yield from ((part, place, leaf) for place, leaf in _below(key, value))


def _below(place: str, value: Any) -> Iterator[tuple[str, Any]]:
    if type(value) is JointTarget:
        value = value.joint.given
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
