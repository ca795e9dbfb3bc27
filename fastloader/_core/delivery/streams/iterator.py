"""One epoch with torch's streams."""

from __future__ import annotations

import dataclasses
import logging
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any

from fastloader._core.batch.augmentation import EpochDraws
from fastloader._core.delivery.iterator import DeliveryIterator
from fastloader._core.delivery.streams.delivery import InFlight, Load, StreamDelivery
from fastloader._core.handoff import LoopFollower, NotYet
from fastloader._core.machine import devices
from fastloader._core.machine.process import HomeProcess
from fastloader._core.observation import trace

_log = logging.getLogger("fastloader")


@dataclasses.dataclass
class ErrorInFlight:
    """An error that was raised instead of a batch. ``took``: whether it takes a batch's place."""

    error: Exception
    took: bool
    drawn: int  # as in InFlight


class StreamIterator(DeliveryIterator):
    """Delivers one epoch without a thread of its own. With ``ahead`` one batch is in flight while the
    training loop works, if the workers have one ready. Without it the source advances only in the loop's
    ``next()``, so that the user's RNG behaves as with DataLoader."""

    def __init__(
        self,
        source: Iterator[Any],
        delivery: StreamDelivery,
        ahead: bool,
        follow_loop: Callable[[Iterator[Any]], LoopFollower | None],
        draws: EpochDraws | None,
    ) -> None:
        super().__init__(source, delivery.statistics)
        self._delivery = delivery
        self._ahead = ahead
        self._draws = draws
        self._follower = follow_loop(source) if ahead else None
        self._flight: list[InFlight | ErrorInFlight] = []
        self._given: list[Any] = []  # the batch that the source gave, until it is the load
        self._load: Load | None = None  # a batch that is not in flight yet
        self._number = 0  # the number of the batch that the loop gets next
        weakref.finalize(self, _abandon, self._flight, delivery, self._home)

    def _check(self) -> None:
        super()._check()
        devices.forbid_capture(self._delivery.device)

    def _next(self) -> Any:
        """Delivers one batch. Ctrl-C or a lack of memory may break off every step, and the next call
        goes on there: a batch stays in flight until `_settle`."""
        delivery = self._delivery
        self._took = False
        if not self._flight:
            self._advance(required=True)
        flown = self._flight[0]
        if self._follower is not None and not (isinstance(flown, ErrorInFlight) and not flown.took):
            try:
                self._follower.taken(self._number)
            except Exception:  # the sampler's error takes the batch's place
                self._settle(flown)
                raise
        if isinstance(flown, ErrorInFlight):
            self._settle(flown)
            try:
                raise flown.error
            finally:
                del flown  # breaks the cycle of this frame and the error
        # Before the next batch is queued, so that the loop's stream does not wait for that one.
        delivered = delivery.hand_over(flown)
        if self._ahead and delivery.looks_ahead and len(self._flight) == 1:
            self._advance(required=False)
        self._settle(flown)
        return delivered

    def _settle(self, flown: InFlight | ErrorInFlight) -> None:
        self._number += 1
        self._took = not isinstance(flown, ErrorInFlight) or flown.took
        if self._draws is not None:
            self._draws.delivered = flown.drawn
        del self._flight[0]

    def _advance(self, required: bool) -> None:
        """Puts one batch in flight, or the error that is raised in its place. If the batch is not
        ``required``, the training loop does not wait for it, and is not told that it is late or that
        there is no memory for it: the loop asked for the batch before this one."""
        source: Any = self._batches  # None: closed meanwhile, which `waiting` says
        took = True
        try:
            if self._load is None and not self._given:
                try:
                    follower = None if required else self._follower
                    self._given.append(
                        next(source) if follower is None else follower.next_if_there()
                    )
                except StopIteration:
                    self._delivery.inputs.wait()  # so that nothing is held after the epoch
                    raise
                except Exception:
                    took = getattr(source, "_took", True)
                    raise
            if self._load is None:
                drawn = self._drawn()
                try:
                    self._load = self._delivery.load(self._given[0], self._draws)
                except BaseException:  # the next batch gets these draws, or this one again
                    if self._draws is not None:
                        self._draws.samples = drawn
                    raise
            self._given.clear()
            begun = time.perf_counter()
            in_flight = self._delivery.issue(self._load)
            in_flight.drawn = self._drawn()
            self._flight.append(in_flight)
            self._load = None
            now = time.perf_counter()
            self._delivery.statistics.add_time("copy", now - begun)
            trace.add("issue", begun, now)
        except NotYet:
            return
        except Exception as error:
            if self._load is not None and devices.is_out_of_memory(error):
                if required:
                    raise
                self._delivery.looks_ahead = False
                _log.warning(
                    "fastloader: out of memory on %s while looking ahead: from now on memory for a "
                    "batch only when it is asked for",
                    self._delivery.device,
                )
                return
            self._load = None
            self._given.clear()
            self._flight.append(ErrorInFlight(error, took, self._drawn()))

    def _drawn(self) -> int:
        return 0 if self._draws is None else self._draws.samples

    def close(self) -> None:
        """Ends the epoch early, from any thread. Further calls of ``next()`` raise StopIteration, and a
        call that is under way raises Error."""
        super().close()
        self._follower = None
        self._load = None
        self._given = []
        _abandon(self._flight, self._delivery, self._home)


def _abandon(flight: list[Any], delivery: StreamDelivery, home: HomeProcess) -> None:
    """Drops the batches in flight. Their memory may go back to the allocator only after the work on it,
    so the stream where it was made waits. That stream need not be the one that is current here."""
    if home.here:
        for flown in flight:
            if isinstance(flown, InFlight):
                delivery.side.hand_over(flown.consumer)
    flight.clear()
