"""How many ranks share this machine."""

from __future__ import annotations

import os

_ranks_here: int | None = None  # the number that the last agreement counted


def note_ranks_here(count: int) -> None:
    """Notes how many ranks the last agreement counted."""
    global _ranks_here
    _ranks_here = count


def ranks_here() -> int:
    """How many ranks share this machine's processors with this one, itself included."""
    if _ranks_here is not None:
        return _ranks_here
    try:
        return max(1, int(os.environ.get("LOCAL_WORLD_SIZE", "1")))  # set by torchrun
    except ValueError:
        return 1
