"""What the thread that makes the samples of a batch notes of their pictures, for the loop, which counts
them when it gets the batch."""

from __future__ import annotations

import dataclasses
import pickle
import threading
from typing import Any

from fastloader._core.pictures.images import ErrorPolicy

# In the place of a sample that is not batched, if it was left out.
LEFT_OUT = object()


@dataclasses.dataclass
class PictureNotes:
    """Notes of one batch.

    ``asked``: how many samples it was to have. ``bad``: those that could not be made, and what was wrong
    with each. ``times``: what the decode threads have done for the loader since the last batch of this
    process, as `Decoder.times` has it. ``counted``: whether the loop has counted them, since Ctrl-C may
    come before it has the batch.
    """

    asked: int
    bad: list[tuple[str, BaseException]] = dataclasses.field(default_factory=list)
    times: dict[str, float] = dataclasses.field(default_factory=dict)
    counted: bool = False

    def add_times(self, times: dict[str, float]) -> None:
        known = self.times
        self.times = {name: known.get(name, 0) + times.get(name, 0) for name in {**known, **times}}

    def count(self, policy: ErrorPolicy) -> None:
        """Counts the samples as if they had been met where ``policy`` counts.

        Raises:
            Error: if too many samples are bad by now.
        """
        self.counted = True
        policy.seen += self.asked
        for what, error in self.bad:
            policy.count(what, error)
        if self.bad:
            policy.check(*self.bad[-1])


class NotedPolicy(ErrorPolicy):
    """Notes what is counted, for the loop, which knows how much is allowed. ``pickler``: the module that
    pickles the errors on their way."""

    def __init__(self, on_error: str, pickler: Any = pickle) -> None:
        super().__init__(on_error, None)
        self._pickler = pickler
        self.noted: list[tuple[str, BaseException]] = []

    def count(self, what: str, error: BaseException) -> None:
        self.noted.append((what, sendable(error, self._pickler)))


def sendable(error: BaseException, pickler: Any = pickle) -> BaseException:
    """Returns the error, or one that says the same if it cannot be pickled."""
    try:
        pickler.loads(pickler.dumps(error))
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error


class _OfThread(threading.local):
    notes: PictureNotes | None = None


_of_thread = _OfThread()


def leave_notes(notes: PictureNotes | None) -> None:
    """Leaves the notes for what collates the samples, next on this thread."""
    _of_thread.notes = notes


def take_notes() -> PictureNotes | None:
    """Returns what was noted of the samples that this thread has made last, once."""
    notes, _of_thread.notes = _of_thread.notes, None
    return notes
