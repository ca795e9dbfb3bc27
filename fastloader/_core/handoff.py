"""What passes between those who make batches and those who bring them to the loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from fastloader._core.batch.augmentation.augmentation import EpochDraws

# Batches in the pool: one being finished, one being begun, one in reserve. On the engine path the
# ring's depth, since each lies in a slot.
AHEAD = 3


class Ring(Protocol):
    """The slots themselves, as many as there are now."""

    @property
    def depth(self) -> int: ...


class Slots(Protocol):
    """The producer's end of a ring for one epoch, for a source that makes its batches in place."""

    # The slot in which the source made what its next() gave or raised last; set on the thread that
    # calls that next().
    place: Any
    # Makes the source stop working for an epoch that is over.
    stop_source: Callable[[], None] | None

    @property
    def engine(self) -> Ring: ...

    @property
    def draws(self) -> EpochDraws | None: ...

    @property
    def over(self) -> bool: ...

    def reserve(self, size: int) -> Any | None:
        """A slot with room for ``size`` bytes, waiting for one; None once the epoch is over."""
        ...
