"""The interfaces between sources, which make batches, and deliveries, which bring them to the loop.

A source decides in a `Plan` how it would make the next epoch's batches. A delivery answers with a
`Handoff`, which says what the delivery wants of them. Source and delivery do not know each other.
"""

from __future__ import annotations

import dataclasses
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

from fastloader._core.batch.augmentation import EpochDraws
from fastloader._core.batch.image_leaves import MadeUnder
from fastloader._core.observation.statistics import Figures, Statistics
from fastloader._core.observation.tuning import DepthRule
from fastloader._core.order.epoch_order import EpochOrder
from fastloader._core.order.loader import Loader
from fastloader.datasets._formats.sample_form import SampleForm
from fastloader.transforms._normalization import Normalization

# How many batches are made ahead of the loop: one being finished, one being begun, one in reserve.
DEFAULT_DEPTH = 3


class NotYet(BaseException):
    """The next batch has not come. It does not derive from Exception, which would stand for a batch."""


class LoopFollower(Protocol):
    """Keeps the sampler in step with the training loop while a delivery takes batches ahead of it. The
    delivery takes them from here, and not from the source's iterator."""

    def __next__(self) -> Any:
        """Returns the source's next batch."""
        ...

    def next_if_there(self) -> Any:
        """Returns the source's next batch without waiting for it. For a delivery without a pump thread.

        Raises:
            NotYet: if the batch has not come.
        """
        ...

    def taken(self, number: int) -> None:
        """Tells that the loop takes batch ``number``. Numbers rise; a second call with the same number
        does nothing. Raises what the sampler raises."""
        ...

    def leave(self) -> None:
        """Tells that the loop takes no more batches. A pump thread that waits for the loop returns."""
        ...

    def hand_over_timeout(self) -> float:
        """Returns the seconds that the loop may wait for a batch, 0 for no limit. From then on the
        delivery watches the time and the source does not, because the time counts from the loop's
        ``next()`` and not from when a pump thread begins to wait."""
        ...


class Slots(Protocol):
    """The slots of a ring for one epoch, as seen by a source that makes its batches in place."""

    @property
    def depth(self) -> int:
        """The number of slots, as it is now."""
        ...

    @property
    def over(self) -> bool:
        """Whether the epoch has ended."""
        ...

    def reserve_for(self, leaves: Sequence[int], samples: int) -> Any | None:
        """Waits for a slot and reserves it, with room for a batch of ``samples`` whose tensors take
        ``leaves`` bytes, and for what will be erased and mixed in it. Returns None once the epoch is
        over. Reservations are presented in the order in which they were made."""
        ...

    def reserve(self, size: int) -> Any | None:
        """Does as `reserve_for`, with room for ``size`` packed bytes: 0 for a slot that an error
        takes."""
        ...

    def present(self, reservation: Any) -> None:
        """Tells which slot holds the batch, or stands for the error, with which the source's ``next()``
        ends. To be called just before that ``next()`` ends, on its thread."""
        ...

    def on_end(self, stop: Callable[[], None]) -> None:
        """Sets ``stop``, which is called on any thread if the epoch ends before the source does."""
        ...


class LentMemory:
    """Pinned memory of a delivery, in which a source may make tensors that need not be copied into a
    slot. A source is opened before the delivery has its memory. A loader keeps its last epoch, which
    must not keep the memory."""

    def __init__(self) -> None:
        self._pool: weakref.ref[Any] | None = None

    def lend(self, pool: Any) -> None:
        self._pool = weakref.ref(pool)

    def pool(self) -> Any | None:
        """Returns the native PinnedPool; None before there is one, and after it was closed."""
        return None if self._pool is None else self._pool()


@dataclasses.dataclass(frozen=True)
class Handoff:
    """A delivery's requests for the batches of one epoch.

    Args:
        statistics: the loader's counters, to which a source may add the time of its stages.
        held_by_loop: whether the training loop holds the source's own iterator, which then counts what
            it gives. Otherwise an iterator of the delivery takes the batches further and counts them.
        normalization: what the source applies to images; None leaves their bytes.
        draws: what the delivery erases and mixes while it normalises.
        channels_last: whether the bytes of pictures are to lie NHWC.
        pin: whether the source pins batches, if the loader was asked for it.
        reads_ahead: whether the delivery calls ``next()`` before the loop wants a batch.
        pumped: whether a pump thread makes these calls.
        slots: where the source makes each batch; None for memory of its own.
        memory: where a source that does not fill slots may make tensors; None for its own memory.
        depth: how many batches to make ahead without slots; None leaves it to the source.
        copied: whether the delivery copies every tensor of a batch and then drops the batch, so that a
            source may give memory that it only lends. Then it may also give a `StoredMask` in the place
            of a mask.
    """

    statistics: Statistics
    held_by_loop: bool
    normalization: Normalization | None = None
    draws: EpochDraws | None = None
    channels_last: bool = False
    pin: bool = False
    reads_ahead: bool = False
    pumped: bool = False
    slots: Slots | None = None
    memory: LentMemory | None = None
    depth: int | DepthRule | None = None
    copied: bool = False


@dataclasses.dataclass(frozen=True)
class SamplePart:
    """A part of a loader's samples, of which ``loader.plan()`` has a line.

    ``place``: the keys that lead to it in a sample, as "[0]" or "['image']". ``where``: who makes it, in
    words. ``what``: "pictures" or "labels", if it is known to be such. ``why``: the first thing that
    keeps it from being made natively; empty if nothing does, or nothing could."""

    place: str
    where: str
    what: str = ""
    why: str = ""

    def __str__(self) -> str:
        named = " ".join(filter(None, (self.what, self.place)))
        return ": ".join(filter(None, (named, self.where, self.why)))


def lines_of(parts: Iterable[SamplePart]) -> list[str]:
    """Returns the lines of these parts, as ``loader.plan()``, the report and the warning show them."""
    return [f"  {part}" for part in parts]


@dataclasses.dataclass(frozen=True)
class Obstacles:
    """What keeps the parts of samples from being made natively: the first reason of the ``pictures``,
    and that of the ``labels``. ``form``: that of the samples; None if they may be anything."""

    form: SampleForm | None
    pictures: str
    labels: str


class Plan(Protocol):
    """One epoch, decided but not begun. ``str(plan)`` is the first half of ``loader.plan()``."""

    # The normalisation that the dataset's own transform asks for; None leaves it to the delivery. One
    # that is `done` says how the samples come.
    normalization: Normalization | None
    # The draws of what that transform erases in floats and the collate_fn mixes, for a delivery that
    # normalises. If the delivery does not say in its handoff that it has them, the source does all that.
    draws: EpochDraws | None
    # Whether the source can normalise a picture while it is in cache, and can make a batch inside
    # memory that the delivery owns.
    normalizes: bool
    fills_slots: bool
    # Whether batches may be made before the loop asks for them.
    ahead: bool
    # Whether the source has one iterator for the loader's life, so that the last epoch must end first.
    exclusive: bool
    # Whether batches that are delivered on the CPU are to lie in pinned memory.
    pins: bool
    # Which pictures the source itself makes, by their outermost key in a batch. A delivery may keep this
    # for longer than the plan, so that it does not hold the loader.
    made_under: MadeUnder
    # What ``num_workers`` counts: one of the words in `machine.worker_count`. Empty if nobody is
    # warned of too many.
    workers: str

    def open(self, order: EpochOrder | None, handoff: Handoff) -> Iterator[Any]:
        """Begins the epoch and returns its iterator, a `LoopIterator` unless it is torch's. Worker
        processes are forked here.

        Draws come in torch's order: `EpochOrder.index_batches`, then one seed by
        `EpochOrder.epoch_seed`, then the first index batch. A source that runs ahead draws that one here
        and not on the pump thread, where the draw would race with ``state_dict()``.

        If ``handoff.slots`` is set, which `fills_slots` allows, the iterator reserves a slot for each
        batch, also for an error in a batch's place, and presents it just before its ``next()`` ends.

        Args:
            order: the order of the epoch; None if no batches are counted, as with the iterable of a
                `DevicePrefetcher`.
            handoff: what the delivery asks of the batches.
        """
        ...

    def parts(self) -> Sequence[SamplePart]:
        """Returns the parts of a sample, as far as they are known, for ``loader.plan()``."""
        ...

    def follow_loop(self, batches: Iterator[Any]) -> LoopFollower | None:
        """Returns an object that keeps the sampler in step while a delivery takes ``batches`` ahead of
        the loop; None if the sampler needs none."""
        ...


class Source(ABC):
    """One way of making batches. A loader has one source of each kind for its whole life. A source owns
    what must outlive an epoch: threads, recycled memory, shared slots, counters. A forked child has
    the source, but none of its threads: see `machine.process.HomeProcess`.

    The runtime knows its sources by these methods alone. Only `plan` must be written; the others do for
    a source that has nothing to do there."""

    @abstractmethod
    def plan(self, loader: Loader, wanted: Normalization | None) -> Plan | None:
        """Returns how this source would make the next epoch's batches; None if the dataset is not of
        its kind. Starts nothing and draws nothing. ``wanted``: what the delivery will do to images.

        The sources are asked in the order of `Runtime.sources`, and the first plan is taken. A source
        that does not do what an argument of the loader asks for must refuse it here, or the argument
        would be ignored without a word. `sources/arguments.py` and `sources/collation.py` have the
        checks that sources share, `native=False` among them.

        Raises:
            NotNative: with the reason in words, if the dataset is of its kind but cannot be served. The
                sources behind this one are asked. If none serves, the `Fallback` makes the batches, and
                ``loader.plan()`` tells the first reason.
        """

    def stand_in(self, loader: Loader, wanted: Normalization | None, reason: str) -> StandIn | None:
        """Returns an object that makes the samples of the next epoch in the place of the loader's
        dataset; None if this source has nothing to offer. The sources are asked, in the order of
        `Runtime.sources`, once none has given a plan; the first answer is taken. ``reason``: why the
        `Fallback` makes the batches."""
        return None

    def begin_epoch(self, refused: str) -> None:
        """Takes note that an epoch begins, whichever source makes it. ``refused``: why a batch is an
        error that leaves nothing to decode threads; empty if it is none."""
        return None

    def replay(self, index: int) -> Any | None:
        """Returns what was drawn for a sample of the epoch begun last, as ``loader.replay`` gives it;
        None if this source has drawn nothing.

        Raises:
            ValueError: if the epoch has not come to that sample.
        """
        return None

    def forget(self) -> None:
        """Forgets what it keeps from epoch to epoch because persistent workers would keep it: they begin
        anew."""
        return None

    def close(self) -> None:
        """Ends what outlives an epoch. The source may be asked for epochs again."""
        return None

    def figures(self, loader: Loader) -> Figures:
        """Returns the figures of this source since the loader was made: empty ones before its first
        epoch. Each stage says by its `bound` what a loop that waits for it is short of."""
        return Figures()

    def stats(self, loader: Loader) -> dict[str, Any]:
        """Returns the part of ``loader.stats()`` that this source knows; empty before its first
        epoch."""
        return {}


class StandIn(NamedTuple):
    """Makes samples in the place of a loader's dataset."""

    dataset: Any  # an InPlace of `pictures/in_place.py`
    why: str  # the reason for the fallback's batches, with what is native all the same


class Fallback(Source):
    """The source of every dataset that no other source serves. It makes the batches through torch's own
    iterators, for which torch asks the loader at any time, also without an epoch of the runtime's."""

    @abstractmethod
    def plan(
        self,
        loader: Loader,
        wanted: Normalization | None,
        reason: str = "",
        stand_in: Any = None,
        normalized: Normalization | None = None,
        obstacles: Callable[[], Obstacles] = lambda: Obstacles(None, "", ""),
    ) -> Plan:
        """Plans an epoch.

        Args:
            loader: the loader.
            wanted: what the delivery will do to images.
            reason: why no other source makes the batches.
            stand_in: the dataset of a `StandIn`, if a source has given one.
            normalized: what is left to do to samples that come normalised.
            obstacles: finds out what keeps each part of its samples from the other sources.
        """

    @abstractmethod
    def iterator(self, loader: Loader) -> Any:
        """Makes torch's iterator over ``loader``, which asks for it by ``_get_iterator()``."""

    @abstractmethod
    def drop_ended(self, loader: Loader) -> bool:
        """Takes a persistent iterator away from its loader if it is of no use any more, so that torch
        makes a new one. Returns whether it was of this process: the seed of its workers is then of no
        use."""

    @property
    @abstractmethod
    def makes_encoded(self) -> bool:
        """Whether the samples of the last epoch had encoded pictures, and decode threads made all."""

    @abstractmethod
    def end_iterators(self) -> None:
        """Ends the live iterators, and with them their workers."""
