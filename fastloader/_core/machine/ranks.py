"""How many ranks share this machine, and this one's part of its processors and memory."""

from __future__ import annotations

import os
import re

from fastloader._core.machine.limits import (
    available_memory,
    cpu_quota,
    installed_processors,
    launchers_processors,
    threads_within,
    usable_processors,
)

# The batches of one loader may take this part (1/8) of the free memory.
_MEMORY_SHARE = 8

_LAUNCHERS = (
    "LOCAL_WORLD_SIZE"  # torchrun's variable, by which it says how many ranks it starts here
)

# What the last agreement counted: the ranks on this machine, and those of them on the same processors.
_ranks_here: int | None = None
_ranks_sharing: int | None = None


def note_ranks_here(here: int, sharing: int) -> None:
    """Notes how many ranks the last agreement counted on this machine, and on the same processors."""
    global _ranks_here, _ranks_sharing
    _ranks_here, _ranks_sharing = here, sharing


def ranks_here() -> int:
    """How many ranks share this machine with this one, itself included."""
    if _ranks_here is not None:
        return _ranks_here
    try:
        return max(1, int(os.environ.get(_LAUNCHERS, "1")))
    except ValueError:
        return 1


def ranks_sharing() -> int:
    """How many ranks share the processors that this one may use, itself included. A launcher, or the
    rank itself, may have bound it to a part of those that all ranks were started on."""
    ranks, own = ranks_here(), usable_processors()
    if _ranks_here is not None:
        return ranks if _ranks_sharing is None else _ranks_sharing
    if ranks == 1 or own is None:
        return ranks
    together = launchers_processors(_LAUNCHERS) or installed_processors()
    return min(ranks, max(1, round(ranks * own / together)))


def most_ranks_here(world: int) -> int:
    """How many of ``world`` ranks share this machine, this one included, or all of them if neither an
    agreement nor the launcher says how many."""
    if _ranks_here is not None or _LAUNCHERS in os.environ:
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
    quota = cpu_quota()
    threads, ranks = threads_within(quota), float(ranks_sharing())
    if quota is not None:  # which holds for all ranks of the machine together, bound or not
        ranks = max(ranks, ranks_here() * threads / quota)
    return max(1, int(threads / ranks))


def memory_budget() -> int:
    """The bytes for the batches of one loader that are ready or being made."""
    return available_memory() // _MEMORY_SHARE // ranks_here()
