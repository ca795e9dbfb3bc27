"""What a transform makes of an encoded picture."""

from __future__ import annotations

import functools
import pickle
import threading
from collections.abc import Callable, Iterator
from typing import Any

from fastloader.errors import NotNative
from fastloader.transforms._chain import Chain
from fastloader.transforms._reader.beginning import read_beginning
from fastloader.transforms._reader.chain import read_chain, steps_of


class Wanted:
    """A transform as it was read.

    Attributes: ``chain``, what is done without Python; ``rest``, the steps behind it; ``whole``, whether
    every picture comes out as a tensor of one shape, with nothing left for Python to do.
    """

    def __init__(self, chain: Chain, rest: list[Callable[[Any], Any]], whole: bool) -> None:
        self.chain = chain
        self.rest = rest
        self.whole = whole

    @functools.cached_property
    def encoded_chain(self) -> bytes:
        """The chain as it crosses to another process."""
        return pickle.dumps(self.chain)


def wanted(transform: Any) -> Wanted:
    """Reads a transform. What was read last is kept for as long as the transform and its steps have the
    same attributes, because reading one may take as long as decoding a picture."""
    stamp = list(_stamp(transform))
    with _kept_lock:
        for place, (kept, made) in enumerate(_kept):
            if len(kept) == len(stamp) and all(a is b for a, b in zip(kept, stamp)):
                _kept.append(_kept.pop(place))
                return made
    made = _read(transform)
    with _kept_lock:
        _kept.append((stamp, made))
        del _kept[:-_MOST_KEPT]
    return made


# The last few transforms: the objects of which each consists, and what was read.
_kept: list[tuple[list[Any], Wanted]] = []
_kept_lock = threading.Lock()  # guards _kept: worker threads read transforms, too
_MOST_KEPT = 32
_MOST_OBJECTS = 4096  # in a stamp
_KNOWN = ("fastloader.", "torchvision.", "timm.")


def _stamp(transform: Any) -> Iterator[Any]:
    """The objects of which a transform consists: itself, its attributes, what is in its containers. Only
    known classes are looked into, since no other is read."""
    waiting = [transform]
    for _ in range(_MOST_OBJECTS):
        if not waiting:
            return
        each = waiting.pop()
        yield each
        if isinstance(each, list | tuple):
            waiting.extend(each)
        elif isinstance(each, dict):
            waiting.extend(each.values())
        elif type(each).__module__.startswith(_KNOWN):
            waiting.extend(getattr(each, "__dict__", {}).values())


def _read(transform: Any) -> Wanted:
    if transform is None:
        return Wanted(Chain(tensor=True), [], whole=False)
    try:
        return Wanted(read_chain(transform, ours_ends_in_tensor=True), [], whole=True)
    except NotNative:
        pass
    try:
        beginning = read_beginning(transform, ours_ends_in_tensor=True)
    except NotNative:
        return Wanted(Chain(), list(steps_of(transform)), whole=False)
    return Wanted(beginning.chain, beginning.rest, whole=False)
