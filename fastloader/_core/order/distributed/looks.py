"""Passes that were only a look at a batch, and so are no epochs."""

from __future__ import annotations

import sys
import warnings
import weakref
from collections.abc import Iterator
from typing import Any, NamedTuple

from fastloader._core.machine.messages.callers import users_level
from fastloader._core.order.loader import Loader
from fastloader._core.order.progress import Progress
from fastloader._core.order.states.loader_state import LoaderState

_OFTEN = 3  # that many looks at one epoch, one after the other, are a loop that does not know


class Look(NamedTuple):
    """A pass that may turn out to be one, and what the loader's position was before it."""

    progress: Progress
    iterator: weakref.ref[Any]  # which the loop holds, or has dropped
    before: Progress | None
    saved: LoaderState | None


class Looks:
    """The passes of a loader with ``distributed=`` that have not counted as epochs so far. One counts
    when its second batch is asked for, or at its end. If its iterator is dropped before that, its number
    is given to the next pass: so one rank may look at a batch, and still has the epochs of the others.
    While the iterator is held it keeps its number."""

    def __init__(self) -> None:
        self._open: list[Look] = []
        self._often = 0

    def note(self, look: Look) -> None:
        self._open.append(look)

    def clear(self) -> None:
        """Forgets them, since somebody has said which epoch comes next."""
        self._open.clear()
        self._often = 0

    def dropped(self, loader: Loader, superseding: bool) -> Iterator[Look]:
        """Gives those that are no epochs, the last one first. ``superseding``: whether the next pass is
        about to begin, which takes the loader's only iterator for life, if it has one."""
        while self._open:
            look = self._open[-1]
            if look.progress.turn is None:  # it counts, and those before it have had their chance
                self.clear()
            elif _is_held(look, loader, superseding):
                return
            else:
                self._note_drop(look)
                yield self._open.pop()

    def _note_drop(self, look: Look) -> None:
        self._often += 1
        if self._often == _OFTEN:
            warnings.warn(
                f"{_OFTEN} iterators over a loader with distributed= were dropped after one batch or "
                f"none, so all of them were of epoch {look.progress.epoch}: an iterator counts as an "
                "epoch once its second batch is asked for. Hold one iterator, or call set_epoch(n)",
                RuntimeWarning,
                stacklevel=users_level(),
            )


def _is_held(look: Look, loader: Loader, superseding: bool) -> bool:
    """Whether the loop may still ask for the second batch."""
    iterator = look.iterator()
    if iterator is None or look.progress.stale or getattr(iterator, "_closed", False):
        return False
    if loader._iterator is None:
        return True
    own = iterator is loader._iterator
    del iterator
    # The loader holds that one itself. Two references are its own and the argument's.
    return not superseding and (not own or sys.getrefcount(loader._iterator) > 2)
