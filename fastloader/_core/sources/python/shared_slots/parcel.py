"""What crosses the workers' queue in place of a batch."""

from __future__ import annotations

import pickle
from multiprocessing.reduction import ForkingPickler
from typing import Any, NamedTuple

from torch._utils import ExceptionWrapper

# The reasons why a batch, or a part of it, takes torch's way.
NO_SLOT = "no slot was free"
HELD = "the worker's own code holds its slots"
TOO_LARGE = "did not fit into a slot"
SHARED = "in shared memory already"
VIEW = "views of a large storage that share memory"


class WorkerTime(NamedTuple):
    """The seconds that a batch has cost its worker."""

    fetch: float  # the whole batch
    collate: float  # the part of it that stacks tensors


class SlotParcel(NamedTuple):
    """What crosses the queue in place of a batch."""

    slot: int | None  # None: nothing lies in a slot
    content: bytes | tuple[int, int]  # the pickle, or (offset, bytes) in the slot
    why_pickled: str  # why something in it took torch's way; "" if nothing did
    spent: WorkerTime

    def opened(self) -> Any:
        """The batch, of which nothing lies in a slot."""
        assert isinstance(self.content, bytes)
        return pickle.loads(self.content)


def pickled_error(error: ExceptionWrapper) -> bytes:
    """The pickle of what is sent in a batch's place."""
    try:
        return bytes(ForkingPickler.dumps(error))
    except Exception:  # its type is one that pickle does not find; the text says which
        error.exc_type = RuntimeError
        return bytes(ForkingPickler.dumps(error))
