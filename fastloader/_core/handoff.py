"""What passes between those who make batches and those who bring them to the loop.

A source decides, in a `Plan`, how it would make the next epoch's batches. A delivery answers with a
`Handoff`, which says what it wants of them. Neither knows the other.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from fastloader._core.batch.augmentation.augmentation import EpochDraws
from fastloader._core.observation.figures import Figures
from fastloader._core.observation.statistics import Statistics
from fastloader._core.observation.tuning.depth import DepthRule
from fastloader._core.order.epoch_order import EpochOrder
from fastloader._core.order.loader import Loader
from fastloader.transforms._normalization import Normalization

# Batches that are made ahead of the loop: one being finished, one being begun, one in reserve.
DEFAULT_DEPTH = 3


class NotYet(BaseException):
    """The next batch has not come. No Exception, which would stand for a batch."""


class LoopFollower(Protocol):
    """Keeps the sampler in step with the training loop, where a delivery takes batches ahead of it."""

    def next_if_there(self) -> Any:
        """The source's next batch, without waiting for it; for a caller without a pump. Raises
        NotYet."""
        ...

    def taken(self, number: int) -> None:
        """The loop takes batch ``number``, which is greater than the one before; for the same one
        nothing happens any more. Raises what the sampler raises."""
        ...

    def leave(self) -> None:
        """Nothing will be taken any more: a pump that waits for that returns."""
        ...

    def hand_over_timeout(self) -> float:
        """Seconds that the loop may wait for a batch, 0 for ever. The source watches no more: the time
        counts from the loop's ``next()``, not from when a pump begins to wait."""
        ...


class Slots(Protocol):
    """The producer's end of a ring for one epoch, for a source that makes its batches in place."""

    @property
    def depth(self) -> int:
        """How many slots there are now."""
        ...

    @property
    def over(self) -> bool:
        """Whether the epoch has ended."""
        ...

    @property
    def draws(self) -> EpochDraws | None:
        """What will be erased and mixed in the slots, which need room for it."""
        ...

    def reserve(self, size: int) -> Any | None:
        """A slot with room for ``size`` bytes, waiting for one; None once the epoch is over. What is
        reserved is presented in the same order."""
        ...

    def present(self, reservation: Any) -> None:
        """The slot of what the source's ``next()`` is about to give or raise. Called on the thread that
        calls that ``next()``."""
        ...

    def on_end(self, stop: Callable[[], None]) -> None:
        """``stop`` is called when the epoch ends before the source does, on any thread."""
        ...


@dataclasses.dataclass(frozen=True)
class Handoff:
    """What a delivery asks of the batches of one epoch.

    ``counts``: the loop will hold the source's own iterator, which counts what it gives; otherwise
    another iterator takes the batches further. ``normalization``: to be applied by the source; None
    leaves the bytes. ``channels_last``: whether the bytes of pictures are to lie NHWC. ``pin``: whether
    batches are to be pinned, if the loader was asked for it. ``reads_ahead``: whether next() is called
    before the loop wants a batch, and ``pumped``: by a thread. ``slots``: where to make each batch;
    None: in memory of the source's own. ``depth``: how many batches to make ahead where there are no
    slots; None leaves it to the source."""

    statistics: Statistics
    counts: bool
    normalization: Normalization | None = None
    channels_last: bool = False
    pin: bool = False
    reads_ahead: bool = False
    pumped: bool = False
    slots: Slots | None = None
    depth: int | DepthRule | None = None


class Plan(Protocol):
    """One epoch, decided and not begun. ``str(plan)`` is the first half of ``loader.plan()``."""

    # What the data set's own transform asks for; None leaves it to the delivery.
    normalization: Normalization | None
    # Whether the source can normalise a picture while it is in cache, and can make a batch inside
    # memory that the delivery owns.
    normalizes: bool
    fills_slots: bool
    # Whether batches may be made before the loop asks for them.
    ahead: bool
    # Whether the source has one iterator for the loader's life, so that the last epoch has to end first.
    exclusive: bool
    # Whether batches on the CPU are to lie in pinned memory.
    pins: bool

    def open(self, order: EpochOrder | None, handoff: Handoff) -> Iterator[Any]:
        """Begins the epoch. Worker processes are forked here. ``order`` is None where nobody counts the
        batches, as with the iterable of a `DevicePrefetcher`."""
        ...

    def follow_loop(self, batches: Iterator[Any]) -> LoopFollower | None:
        """For a delivery that takes ``batches`` ahead of the loop: what keeps the sampler in step; None
        where there is nothing to do."""
        ...


class Source(Protocol):
    """One way of making batches. A loader has one of each kind for its whole life; what must outlive an
    epoch (threads, recycled memory, shared slots, counters) belongs to it."""

    def plan(self, loader: Loader, wanted: Normalization | None) -> Plan | None:
        """How this source would make the next epoch's batches. None: the data set is not of its kind.
        Raises NotNative, with the reason in words, if it is but cannot be served. Starts nothing and
        draws nothing. ``wanted``: what the delivery will do to images."""
        ...

    def figures(self, loader: Loader) -> Figures:
        """What it has to show since the loader was made."""
        ...

    def stats(self, loader: Loader) -> dict[str, Any]:
        """Its part of ``loader.stats()``."""
        ...
