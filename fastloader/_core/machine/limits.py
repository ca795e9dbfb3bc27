"""Finds what this process may use of the machine: its affinity, what a Linux control group (a
container, a batch system) allows, and its part beside other ranks. Warns of more workers than
processors."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import warnings
from collections.abc import Iterator
from pathlib import Path

# ---- The limits of this process on the machine: its affinity, and what a Linux control group
# (a container, a batch system) allows.


# Version 1 writes "no limit" as the largest multiple of the page size that fits 63 bits.
_NO_LIMIT = 1 << 60
# A process has come to its limit of open files if it may not open so many more: what failed has closed
# some of its own again.
_NEAR_LIMIT = 10


def usable_processors() -> int | None:
    """Returns how many processors this process may use by its affinity; None if nobody knows."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()


def installed_processors(root: Path = Path("/")) -> int:
    """Counts the processors that the machine has, or this process's control group, whatever the
    affinity."""
    counts = [os.cpu_count() or 1]
    for folder in _folders(root, "cpuset"):
        for name in ("cpuset.cpus.effective", "cpuset.effective_cpus", "cpuset.cpus"):
            with contextlib.suppress(OSError, ValueError):
                ranges = (folder / name).read_text().strip().split(",")
                ends = [[int(end) for end in each.split("-")] for each in ranges]
                counts.append(sum(last[-1] - last[0] + 1 for last in ends))
    return min(counts)


def launchers_processors(variable: str) -> int | None:
    """Counts the processors that the process may use that has started this one with ``variable`` in its
    environment, perhaps by way of scripts; None if nobody has, or that process cannot be looked at."""
    mark, process = f"{variable}=".encode(), "self"
    try:
        while any(
            each.startswith(mark)
            for each in Path(f"/proc/{process}/environ").read_bytes().split(b"\0")
        ):
            # Behind the name, which may hold anything.
            fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
            process = fields[1]
        return None if process == "self" else len(os.sched_getaffinity(int(process)))
    except (OSError, ValueError, IndexError, AttributeError):
        return None


def available_threads() -> int:
    """Returns how many threads can work at once: affinity or quota, the smaller, rounded down, at least
    1."""
    return threads_within(cpu_quota())


def threads_within(quota: float | None) -> int:
    """Returns how many threads can work at once within a quota that was read already: reading it takes
    longer than all else here."""
    count = usable_processors() or 1
    return max(1, min(count, count if quota is None else int(quota)))


def counted(count: int, what: str) -> str:
    """Writes a number of things in words: ``counted(1, "decode thread")`` is "1 decode thread"."""
    plural = f"{what}es" if what.endswith("s") else f"{what}s"
    return f"{count} {what if count == 1 else plural}"


def out_of_files() -> str:
    """Returns what to add to an error's message if this process has come to its limit of open files: the
    limit and what to do; otherwise nothing. The error itself need not tell: of a descriptor that comes
    over a socket nothing is left but "received 0 items of ancdata"."""
    with contextlib.ExitStack() as probes:
        try:
            for _ in range(_NEAR_LIMIT):
                probes.callback(os.close, os.open(os.devnull, os.O_RDONLY))
            return ""
        except OSError as error:
            if error.errno != errno.EMFILE:
                return ""
    import resource  # not there on Windows

    limit, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    further = "" if most == resource.RLIM_INFINITY else f", here at most {most}"
    return (
        f"; this process may have {limit} files open at once: raise the limit (ulimit -n{further}), or "
        "keep fewer batches, or clones of their tensors (each tensor in shared memory is an open file)"
    )


def cpu_quota(root: Path = Path("/")) -> float | None:
    """Returns how many CPUs' worth of time this process may use; None without a quota that can be
    read."""
    quotas = []
    for folder in _folders(root, "cpu"):
        quota_and_period = _numbers(folder / "cpu.max")
        if not quota_and_period:
            quota_and_period = _numbers(folder / "cpu.cfs_quota_us") + _numbers(
                folder / "cpu.cfs_period_us"
            )
        if len(quota_and_period) == 2 and min(quota_and_period) > 0:
            quotas.append(quota_and_period[0] / quota_and_period[1])
    return min(quotas, default=None)


def memory_limit(root: Path = Path("/")) -> int | None:
    """Returns how many bytes this process and its children may use; None without a limit that can be
    read."""
    return min((limit for _, limit in _memory_limits(root)), default=None)


def available_memory(root: Path = Path("/")) -> int:
    """Returns how many bytes can be had without swapping, from the machine and from every group that has
    a limit. 1 GiB if nothing can be read."""
    rooms = [max(0, limit - _held(folder)) for folder, limit in _memory_limits(root)]
    try:
        for line in (root / "proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                rooms.append(1024 * int(line.split()[1]))
    except (OSError, ValueError, IndexError):
        pass
    return min(rooms, default=1 << 30)


def _memory_limits(root: Path) -> Iterator[tuple[Path, int]]:
    for folder in _folders(root, "memory"):
        for name in ("memory.max", "memory.limit_in_bytes"):
            for limit in _numbers(folder / name):
                if 0 < limit < _NO_LIMIT:
                    yield folder, limit


def _held(folder: Path) -> int:
    """Counts the bytes that a group uses, except files in the page cache, which go if others need the
    room."""
    used = _numbers(folder / "memory.current") + _numbers(folder / "memory.usage_in_bytes")
    try:
        lines = (folder / "memory.stat").read_text().splitlines()
    except OSError:
        lines = []
    stat = dict(line.split()[:2] for line in lines if len(line.split()) == 2)
    # The totals first, in which version 1 has the groups below. No list of files has shared memory.
    files = 0
    for name in ("active_file", "inactive_file"):
        words = stat.get(f"total_{name}", stat.get(name, "0"))
        files += int(words) if words.isdigit() else 0
    return max(0, used[0] - files) if used else 0


def _folders(root: Path, controller: str) -> Iterator[Path]:
    """Gives the folders where limits of ``controller`` may be written, from this process's group up to
    the root. Every limit among them binds. In a container the path that /proc names may be invisible,
    and then the mount point itself is the container's own group."""
    mounts = root / "sys/fs/cgroup"
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        lines = []
    for line in [*lines, "0::/", f"1:{controller}:/"]:
        _, _, rest = line.partition(":")
        names, _, path = rest.partition(":")
        if names and controller not in names.split(","):
            continue
        # Two names, because version 1 mounts each set of controllers apart, and a mount may carry only
        # the first name.
        for mount in [mounts / names, mounts / controller] if names else [mounts]:
            parts = [part for part in path.split("/") if part not in ("", "..")]
            for depth in range(len(parts), -1, -1):
                yield mount.joinpath(*parts[:depth])


def _numbers(file: Path) -> list[int]:
    """Reads the numbers in a limit's file; none for a file that is absent, unreadable or says "max"."""
    try:
        return [int(word) for word in file.read_text().split()]
    except (OSError, ValueError):
        return []


# ---- How many ranks share this machine, and this one's part of its processors and memory.


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
    """Returns how many ranks share this machine with this one, itself included."""
    if _ranks_here is not None:
        return _ranks_here
    try:
        return max(1, int(os.environ.get(_LAUNCHERS, "1")))
    except ValueError:
        return 1


def ranks_sharing() -> int:
    """Returns how many ranks share the processors that this one may use, itself included. A launcher, or
    the rank itself, may have bound it to a part of those that all ranks were started on."""
    ranks, own = ranks_here(), usable_processors()
    if _ranks_here is not None:
        return ranks if _ranks_sharing is None else _ranks_sharing
    if ranks == 1 or own is None:
        return ranks
    together = launchers_processors(_LAUNCHERS) or installed_processors()
    return min(ranks, max(1, round(ranks * own / together)))


def most_ranks_here(world: int) -> int:
    """Returns how many of ``world`` ranks share this machine, this one included, or all of them if
    neither an agreement nor the launcher says how many."""
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
    """Returns how many threads are this rank's part of the processors."""
    quota = cpu_quota()
    threads, ranks = threads_within(quota), float(ranks_sharing())
    if quota is not None:  # which holds for all ranks of the machine together, bound or not
        ranks = max(ranks, ranks_here() * threads / quota)
    return max(1, int(threads / ranks))


def memory_budget() -> int:
    """Returns how many bytes the batches of one loader that are ready or being made may take."""
    return available_memory() // _MEMORY_SHARE // ranks_here()


# ---- What becomes of a ``num_workers`` that is larger than the number of processors.


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
