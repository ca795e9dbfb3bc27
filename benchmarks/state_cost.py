"""What `state_dict()` takes, since frameworks call it at every batch: microseconds, from batch 50 on.

    python benchmarks/state_cost.py [--repeats 7]

To reach: 50 microseconds with a RandomSampler that has a generator of its own, on a machine where a
batch of 2 tiny samples takes DataLoader 21; on any machine 2.4 times that batch, which is measured in
turn with the states. The first call of an epoch encodes that generator's states, and is shown by itself.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from measure import write
from small_batches import BATCH_SIZE, Tiny
from torch.utils.data import DataLoader, RandomSampler

from fastloader import FastLoader

BATCH = 50
CALLS = 100
SAMPLES = BATCH_SIZE * (BATCH + CALLS + 10)
GOAL = 50 / 21

OWN = "generator of its own"
NAMES = ("sequential", "default shuffle", OWN)


def loader_of(name: str, dataset: Any, seed: int) -> FastLoader[Any]:
    if name == "sequential":
        return FastLoader(dataset, BATCH_SIZE)
    if name == "default shuffle":
        return FastLoader(dataset, BATCH_SIZE, shuffle=True)
    own = RandomSampler(dataset, generator=torch.Generator().manual_seed(seed))
    return FastLoader(dataset, BATCH_SIZE, sampler=own)


def timed(call: Callable[[], Any]) -> float:
    """In microseconds."""
    begun = time.perf_counter()
    call()
    return 1e6 * (time.perf_counter() - begun)


def one_epoch(seed: int) -> tuple[dict[str, tuple[float, float]], float]:
    """({name: (first call, median of those that follow)}, median of DataLoader's batch). Each call comes
    behind a batch, as in a training loop, and one of each kind behind the others."""
    dataset = Tiny(SAMPLES)
    plain = iter(DataLoader(dataset, BATCH_SIZE))
    loaders = {name: loader_of(name, dataset, seed) for name in NAMES}
    iterators = {name: iter(loader) for name, loader in loaders.items()}
    taken: dict[str, list[float]] = {name: [] for name in NAMES}
    batches = []
    for number in range(BATCH + 1 + CALLS):
        batches.append(timed(lambda: next(plain)))
        for name, loader in loaders.items():
            next(iterators[name])
            if number >= BATCH:
                taken[name].append(timed(loader.state_dict))
    states = {name: (each[0], statistics.median(each[1:])) for name, each in taken.items()}
    return states, statistics.median(batches[BATCH:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=7)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    measured = [one_epoch(seed) for seed in range(arguments.repeats)]
    batch = statistics.median(batch for _, batch in measured)
    results: dict[str, Any] = {"batch": BATCH, "dataloader_batch": batch, "microseconds": {}}
    print(f"{batch:8.1f} us: a batch of DataLoader's, of {BATCH_SIZE} tiny samples")
    for name in NAMES:
        first = statistics.median(states[name][0] for states, _ in measured)
        later = statistics.median(states[name][1] for states, _ in measured)
        share = statistics.median(states[name][1] / batch for states, batch in measured)
        results["microseconds"][name] = {"first": first, "later": later, "of_a_batch": share}
        goal = f", to reach {GOAL:.1f}" if name == OWN else ""
        print(
            f"{later:8.1f} us, {share:.2f} of a batch{goal} "
            f"({first:.0f} us for the first of an epoch): {name}"
        )
    print("written:", write("state_cost", results))


if __name__ == "__main__":
    main()
