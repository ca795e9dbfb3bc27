"""The loop's last waits and steps, one by one."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

# Limited, so that a loop of days keeps 140 kB of them at most.
ROOM = 1000


class Step(NamedTuple):
    """One batch of the loop. ``wait_s``: the seconds that the loop waited for it. ``step_s``: those from
    then to the call for the next batch; None for a batch after which none was asked for yet, or ever.
    ``first``: whether it is the first batch of its epoch."""

    wait_s: float
    step_s: float | None
    first: bool


class RecentSteps:
    """A record of the last waits, for which ``next()`` pays one append."""

    def __init__(self) -> None:
        # (seconds of the step before, seconds waited, first of its epoch, end of its epoch)
        self.waits: deque[tuple[float, float, bool, bool]] = deque(maxlen=ROOM)

    def steps(self) -> tuple[Step, ...]:
        """The batches of the record, the oldest first. Any thread may ask while the loop goes on."""
        waits = list(self.waits.copy())
        made = []
        for (_, waited, first, ended), (step_s, _, next_first, _) in zip(
            waits, [*waits[1:], _NONE]
        ):
            if not ended:  # what was waited at an epoch's end was for no batch
                made.append(Step(waited, None if next_first else step_s, first))
        return tuple(made)


_NONE = (0.0, 0.0, True, False)
