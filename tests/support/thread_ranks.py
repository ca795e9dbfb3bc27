"""Ranks that are threads over one store, so that many schedules can be tried."""

import itertools
import threading
import types

import torch

from fastloader import Error, FastLoader
from fastloader._core.machine import limits
from fastloader._core.order import distributed


class ThreadRanks:
    """``run(world, work)`` calls ``work(rank)`` on as many threads and returns what they returned, or
    the Error that they raised."""

    def __init__(self, monkeypatch):
        self.store = torch.distributed.HashStore()
        self.here = threading.local()
        self.runs = itertools.count()
        c10d = types.SimpleNamespace(_get_default_store=lambda: self.store)
        monkeypatch.setattr(torch.distributed, "distributed_c10d", c10d)
        monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
        monkeypatch.setattr(torch.distributed, "get_world_size", lambda: self.here.world)
        monkeypatch.setattr(torch.distributed, "get_rank", lambda: self.here.rank)
        for name in ("_ranks_here", "_ranks_sharing"):
            monkeypatch.setattr(limits, name, None)
        # Each rank counts its agreements, which a process does by its store.
        rounds = types.SimpleNamespace(setdefault=lambda _store, _count: self.here.rounds)
        monkeypatch.setattr(distributed, "_rounds", rounds)

    def run(self, world, work):
        first = 1000 * next(self.runs)
        done = [None] * world

        def become(rank):
            self.here.rank, self.here.world = rank, world
            self.here.rounds = itertools.count(first)
            try:
                done[rank] = work(rank)
            except Exception as error:
                done[rank] = error

        threads = [threading.Thread(target=become, args=(rank,)) for rank in range(world)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for each in done:
            if isinstance(each, Exception) and not isinstance(each, Error):
                raise each
        return done


def seeded(seed=5):
    """A generator of a rank's own: threads that are ranks share the global one."""
    return torch.Generator().manual_seed(seed)


def make(length, size, policy="pad", **options):
    """A rank's loader, whose batches are lists of numbers."""
    options = {"shuffle": True, "generator": seeded(), "collate_fn": list, **options}
    return FastLoader(list(range(length)), size, distributed=policy, **options)


def flat(batches):
    return [key for batch in batches for key in batch]


def leave_after(loader, batches):
    """The keys of the first batches of a loop that then breaks."""
    got = []
    for batch in loader:
        got.append(batch)
        if len(got) == batches:
            break
    return flat(got)
