"""How many ranks share this machine, and this one's part of its processors and memory."""

from __future__ import annotations

import os
import re

from fastloader._core.machine.limits import available_memory, available_threads

# The batches of one loader may take this part (1/8) of the free memory.
_MEMORY_SHARE = 8

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


def most_ranks_here(world: int) -> int:
    """How many of ``world`` ranks share this machine, this one included, or all of them if neither an
    agreement nor the launcher says how many."""
    if _ranks_here is not None or "LOCAL_WORLD_SIZE" in os.environ:
        return ranks_here()
    # srun's tasks are the ranks, unless each of them starts ranks of its own.
    if os.environ.get("SLURM_NTASKS") == str(world):
        tasks = os.environ.get("SLURM_STEP_TASKS_PER_NODE") or os.environ.get(
            "SLURM_TASKS_PER_NODE"
        )
        counts = re.findall(r"(?:^|,)(\d+)", tasks or "")  # such as 4(x2),3
        return max([min(int(each), world) for each in counts], default=world)
    return world


def own_threads() -> int:
    """How many threads are this rank's part of the processors."""
    return max(1, available_threads() // ranks_here())


def memory_budget() -> int:
    """The bytes for the batches of one loader that are ready or being made."""
    return available_memory() // _MEMORY_SHARE // ranks_here()
