"""What a transform makes of an encoded picture."""

from __future__ import annotations

import dataclasses
import functools
import pickle
import threading
from collections.abc import Callable, Iterator
from types import FunctionType, NoneType
from typing import Any

import numpy as np
import torch

from fastloader._core.machine import identity
from fastloader.errors import NotNative
from fastloader.transforms._chain import Chain
from fastloader.transforms._reader.beginning import read_beginning
from fastloader.transforms._reader.chain import read_chain, steps_of
from fastloader.transforms._reader.kinds import global_hooks, is_read, own_classes


class Wanted:
    """A transform as it was read.

    Attributes: ``chain``, what is done without Python; ``rest``, the steps behind it; ``whole``, whether
    every picture comes out as a tensor of one shape, with nothing left for Python to do; ``why`` not, in
    words.
    """

    def __init__(self, chain: Chain, rest: list[Callable[[Any], Any]], why: str = "") -> None:
        self.chain = chain
        self.rest = rest
        self.whole = not why
        self.why = why

    @functools.cached_property
    def encoded_chain(self) -> bytes:
        """The chain as it crosses to another process."""
        return pickle.dumps(self.chain)


def wanted(transform: Any) -> Wanted:
    """Reads a transform. What was read last is kept for as long as the transform is made of the same,
    because reading one may take as long as decoding a picture."""
    stamp = list(_stamp(transform))
    with _kept_lock:
        for place, (kept, made) in enumerate(_kept):
            if len(kept) == len(stamp) and all(map(_same, kept, stamp)):
                _kept.append(_kept.pop(place))
                return made
    made = _read(transform)
    with _kept_lock:
        _kept.append((stamp, made))
        del _kept[:-_MOST_KEPT]
    return made


# The last few transforms: what each is made of, and what was read.
_kept: list[tuple[list[Any], Wanted]] = []
_kept_lock = threading.Lock()  # guards _kept: worker threads read transforms, too
_MOST_KEPT = 32
_MOST_OBJECTS = 4096  # in a stamp
_PLAIN = (NoneType, bool, float, int, str)


@dataclasses.dataclass(frozen=True)
class _Value:
    """What may change in place, as it is now."""

    value: Any


def _same(one: Any, other: Any) -> bool:
    return one is other or (type(one) is _Value and one == other)


def _stamp(transform: Any) -> Iterator[Any]:
    """What a transform is made of: the objects, itself first, with their classes, their attributes and
    what is in their containers, and the values of tensors and arrays. Only objects of known classes
    are looked into, since no other is read, and the user's own classes that derive from these."""
    yield _Value(torch.get_default_dtype())  # in which bytes become floats
    yield identity.generation()
    yield _Value(global_hooks())
    waiting = [transform]
    for _ in range(_MOST_OBJECTS):
        if not waiting:
            return
        each = waiting.pop()
        if isinstance(each, torch.Tensor | np.ndarray):
            # The text, because not a number is not equal to itself.
            yield _Value((type(each), each.dtype, repr(each.tolist())))
            continue
        yield each
        if type(each) in _PLAIN:
            continue
        yield type(each)
        if isinstance(each, list | tuple | set | frozenset):
            waiting.extend(each)
        elif isinstance(each, dict):
            waiting.extend(each)
            waiting.extend(each.values())
        elif isinstance(each, property):
            waiting.append(each.fget)
        elif type(each) is FunctionType:
            yield each.__code__
        elif is_read(each):
            waiting.extend(getattr(each, "__dict__", {}).values())
            for own in own_classes(each):
                yield own
                yield _Value((*vars(own),))
                waiting.extend(vars(own).values())
    yield object()  # there is more, which is not compared


def _read(transform: Any) -> Wanted:
    if transform is None:
        return Wanted(Chain(tensor=True), [], "without a transform pictures keep their sizes")
    try:
        return Wanted(read_chain(transform, ours_ends_in_tensor=True), [])
    except NotNative as refusal:
        why = str(refusal)
    try:
        beginning = read_beginning(transform, ours_ends_in_tensor=True)
    except NotNative:
        return Wanted(Chain(), list(steps_of(transform)), why)
    return Wanted(beginning.chain, beginning.rest, why)
