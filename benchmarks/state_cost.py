"""What `state_dict()` takes, since frameworks call it at every batch: microseconds at batch 50.

    python benchmarks/state_cost.py [--repeats 7]

To reach: 50 microseconds with a RandomSampler that has a generator of its own. The first call of an
epoch encodes that generator's states, and is shown by itself.
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Any

import torch
from measure import write
from torch.utils.data import RandomSampler

from fastloader import FastLoader

BATCH = 50
CALLS = 100


def one_epoch(options: dict[str, Any]) -> tuple[float, float]:
    """(first call, median of those that follow), in microseconds."""
    loader = FastLoader(range(4000), 32, **options)
    iterator = iter(loader)
    for _ in range(BATCH):
        next(iterator)
    taken = []
    for _ in range(1 + CALLS):
        begun = time.perf_counter()
        loader.state_dict()
        taken.append(1e6 * (time.perf_counter() - begun))
    del iterator
    return taken[0], statistics.median(taken[1:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=7)
    arguments = parser.parse_args()
    results: dict[str, Any] = {"batch": BATCH, "microseconds": {}}
    for name in ("sequential", "default shuffle", "generator of its own"):
        measured = []
        for seed in range(arguments.repeats):
            own = RandomSampler(range(4000), generator=torch.Generator().manual_seed(seed))
            options = {
                "sequential": {},
                "default shuffle": {"shuffle": True},
                "generator of its own": {"sampler": own},
            }
            measured.append(one_epoch(options[name]))
        first, later = (statistics.median(each) for each in zip(*measured))
        results["microseconds"][name] = {"first": first, "later": later}
        print(f"{later:8.1f} us ({first:.0f} for the first of an epoch): {name}")
    print("written:", write("state_cost", results))


if __name__ == "__main__":
    main()
