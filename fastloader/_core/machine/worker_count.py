"""What becomes of a ``num_workers`` that is larger than the number of processors."""

from __future__ import annotations

import warnings

from fastloader._core.machine.limits import available_threads, usable_processors
from fastloader._core.machine.ranks import own_threads

# What ``num_workers`` counts in an epoch, as `warn_of_workers` and plans say it.
WORKER_PROCESSES = "worker processes"
WORKER_THREADS = "worker threads"
RAY_ACTORS = "Ray actors"
DECODE_THREADS = "decode threads"
GATHER_THREADS = "gather threads"

# More threads for a processor only take memory and wait for each other: what is read is read ahead
# of them.
MOST_DECODE_THREADS = 16


def decode_threads(workers: int) -> int:
    """Returns how many threads decode for a loader with ``num_workers=workers``: as many, at most
    `MOST_DECODE_THREADS` for each processor of this process. 0 means this rank's share of processors."""
    return min(workers, MOST_DECODE_THREADS * available_threads()) if workers else own_threads()


def exceeds_processors(workers: int) -> bool:
    """Returns whether torch warns of so many workers: they are more than the processors that this
    process may use. A control group's quota does not count, as in DataLoader."""
    processors = usable_processors()
    return bool(workers) and (processors is None or workers > processors)


def warn_of_workers(workers: int, kind: str) -> None:
    """Warns as torch does of too many worker processes, and says what they are here: ``kind``."""
    here = f"Note that here these are {kind}"
    if kind == DECODE_THREADS and decode_threads(workers) < workers:
        here += (
            f", of which fastloader starts {decode_threads(workers)}: {MOST_DECODE_THREADS} for each "
            "processor that this process may use"
        )
    elif kind == RAY_ACTORS:
        here += ", which may have processors elsewhere"
    warnings.warn(
        f"This DataLoader will create {workers} worker processes in total. {here}. "
        "Please be aware that excessive worker creation might get DataLoader running slow or even "
        "freeze, lower the worker number to avoid potential slowness/freeze if necessary.",
        stacklevel=3,
    )
