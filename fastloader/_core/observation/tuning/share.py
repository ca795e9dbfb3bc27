"""This rank's part of the machine's processors and memory."""

from __future__ import annotations

from fastloader._core.machine.limits import available_memory, available_threads
from fastloader._core.machine.ranks import ranks_here

# The batches of one loader may take this part (1/8) of the free memory.
_MEMORY_SHARE = 8


def own_threads() -> int:
    """How many threads are this rank's part of the processors."""
    return max(1, available_threads() // ranks_here())


def memory_budget() -> int:
    """The bytes for the batches of one loader that are ready or being made."""
    return available_memory() // _MEMORY_SHARE // ranks_here()
